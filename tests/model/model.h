/*
 * The naive model of daemon/core's state: arrays, and loops over all of them. It knows each page's
 * key, its pins, the group it was granted to, and the parent of each published key. From that it
 * computes the bytes that a tenant must be charged: sets with a page in use, or mapped by a client.
 *
 * It doesn't know the eviction policy. After an operation that may evict it asks which pages were
 * evicted, and checks that each was idle with no pin below it.
 *
 * About half of the attachments are shared: the test plays their client in the segments. The daemon
 * learns late of that. A page that was dropped from the cache may stay GONE after its last pin; a
 * page claimed from a magazine may look ready. Before half of the comparisons the daemon is made to
 * look, and neither may be left.
 */
#ifndef KVL_TESTS_MODEL_H
#define KVL_TESTS_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/state/group.h"
#include "daemon/core/state/store.h"
#include "daemon/core/requests/submit.h"
#include "tests/unit/fake-device.h"

#define N_TENANTS    3
#define N_NS         3 /* per tenant */
#define N_MEMBERS    10
#define N_KEYS       80
#define MAX_PAGES    160
#define MAX_SETS     32
#define MAX_REQUEST  200
#define BUDGET_BYTES UINT64_C(16384)
#define EXTENT_BYTES 1024
#define GRANULARITY  256
#define TENANT_LIMIT 8192
#define MAX_CLIENTS  4
#define NONE         (-1)

/* READY: in a magazine and not claimed. GONE: dropped from the cache, not free yet. */
enum model_state { M_FREE, M_READY, M_GRANTED, M_CACHED, M_GONE };

struct model_attach;

struct model_page {
        enum model_state state;
        int group;                   /* READY, GRANTED */
        int key;                     /* CACHED, GONE */
        unsigned grant_epoch;        /* READY: the namespace's; GRANTED */
        struct model_attach *holder; /* READY: owner of the magazine, */
        uint32_t slot;               /* and where in it */
        unsigned long serial;        /* CACHED, GONE: no other page ever published has it */
};

struct model_ns {
        bool exists;
        int tenant, shape;
        unsigned epoch, version_epoch, version;
        bool keep_zero;    /* page 0 of set 0 is never granted */
        bool has_null_set; /* all of set 0 is */
        struct model_page pages[MAX_PAGES];
        int where[N_KEYS];  /* page, NONE: not cached */
        int parent[N_KEYS]; /* key it was published under, NONE */
        unsigned tokens[N_KEYS];
        bool recalled[MAX_SETS];
        bool soft[MAX_SETS];         /* of these: for a lease of others */
        uint32_t set_pages, n_pages; /* geometry */
        uint64_t set_bytes;
};

struct model_attach {
        struct attach *real; /* NULL: not open */
        unsigned version_epoch;
        unsigned pins[MAX_PAGES]; /* taken over the socket */
        bool mapped[MAX_SETS];
        bool shared;
        unsigned counts[MAX_PAGES]; /* pins in its segment */
};

/* Parent of a PUBLISH with CHAIN. */
struct model_chain {
        uint32_t attach_id; /* 0: nothing */
        int status;         /* of the entries before */
        int key;
        unsigned long serial;
};

struct model_member {
        struct member *real; /* NULL: unused */
        int tenant, group;
        bool metadata_only;
        struct model_attach attach[N_NS];
        struct submit_chain real_chain;
        struct model_chain chain;
};

struct shape {
        uint64_t plane_page_bytes;
        uint32_t n_planes, set_pages, n_sets;
        uint64_t set_bytes;
        bool keep_zero;
};

static inline bool is_null(const struct model_ns *ns, uint32_t page)
{
        return (ns->keep_zero && page == 0) || (ns->has_null_set && page < ns->set_pages);
}

extern const struct shape shapes[N_NS];

extern struct fake_device device;
extern struct store store;
extern struct tenant *tenants[N_TENANTS];
extern struct model_ns spaces[N_TENANTS][N_NS];
extern struct model_member members[N_MEMBERS];
extern int last_group;
extern uint64_t limits[N_TENANTS];
extern uint64_t now_nsec;
extern unsigned n_evicted, n_refused, n_claimed, n_taken_back, n_recalled, n_unmapped;
extern unsigned long last_serial;
extern uint64_t seed, rng_state;
extern unsigned long step;
extern const char *op;

#define CHECK(condition, ...)                                    \
        do {                                                     \
                if (!(condition))                                \
                        fail(#condition, __LINE__, __VA_ARGS__); \
        } while (0)

/* Prints where and why, and ends the program. */
__attribute__((noreturn, format(printf, 3, 4))) void fail(
        const char *condition, int line, const char *format, ...);

/* Returns 0..n-1, from the seed's sequence. */
uint32_t rnd(uint32_t n);

/* The key with this number. */
void key_bytes(int key, uint8_t out[KEY_BYTES]);

/* Pins of all members, in segments or not. */
unsigned pins_of(const struct model_ns *ns, uint32_t page);
bool set_is_bound(const struct model_ns *ns, uint32_t set);
bool set_is_mapped(const struct model_ns *ns, uint32_t set);
uint32_t bound_sets(const struct model_ns *ns);

/* Bytes that a tenant, or the device, must be charged: sets with a page in use, or mapped by a
 * client. */
uint64_t usage_of(int tenant);
uint64_t usage(void);

/* The page is FREE, but its set is recalled: it isn't granted. */
bool is_withheld(const struct model_ns *ns, uint32_t page);

/* Learns the sets that are recalled now; recalled ones stay so until they are unbound. Returns the
 * bytes of new ones. */
uint64_t learn_recalled(bool may_recall);

/* Learns the soft recalls of a lease of tenant `asking`: sets of others that aren't mapped, as no
 * client keeps safe points. */
void learn_soft(int asking);

/* Neither the page with this key nor anything cached below it is pinned. */
bool is_evictable(const struct model_ns *ns, int top);

/* Effects of operations on the model. */
unsigned model_drop_subtree(struct model_ns *ns, int top);
unsigned model_invalidate(struct model_ns *ns);
void model_unpin(struct model_attach *a, struct model_ns *ns, uint32_t page, unsigned n);
/* `pins`: the member's, over the socket or in its segment. */
int model_publish_one(const struct model_member *m, struct model_ns *ns, unsigned *pins,
        uint32_t page, int key, int parent, unsigned tokens, uint32_t *ret_page);
/* False: one isn't the group's to free, and none was freed. */
bool model_free(
        const struct model_member *m, struct model_ns *ns, const uint32_t *pages, uint32_t n);
void model_close(struct model_member *m, int slot);

/* The real object; NULL if it doesn't exist. */
struct ns *real_ns(const struct model_ns *ns);

/* Learns which pages were evicted, and checks that they could be. Only `only` may lose cached pages
 * (NULL: every namespace may), as far as `how` allows. */
enum learn_how {
        MAY_SWEEP,     /* no cached page is evicted */
        MAY_PURGE,     /* pages in or below a recalled set, pinned or not */
        MAY_EVICT,     /* pages of other tenants, by fair share, also those in magazines */
        MAY_TAKE_BACK, /* cached pages, and pages in magazines */
};
void learn(const struct model_ns *only, enum learn_how how);

/* For a key just published: true if the index had no slot for it. */
bool learn_unindexed(struct model_ns *ns, int key);

/* Compares the whole real state with the model, and runs the invariant checker. */
void compare(void);

/* ---- what to try (model_pick.c) -------------------------------------------------------------- */

struct model_member *any_member(void);

/* NULL if the random choice hits nothing. */
struct model_attach *any_attach(struct model_member **ret_member, struct model_ns **ret_ns);

bool is_old(const struct model_attach *a, const struct model_ns *ns);

/* Picks n pages granted to the group, now and then others, seldom one twice. */
void pick_some_granted(const struct model_ns *ns, int group, uint32_t n, uint32_t *ret_pages);

/* Keys from a root down to `key`, last first; returns their number. */
uint32_t path_to(int key, int *path);

struct publish_case {
        int keys[N_KEYS], parent; /* NONE: a root */
        uint32_t n, pages[N_KEYS], last_tokens;
};

struct publish_case make_publish(const struct model_member *m, const struct model_ns *ns);

/* ---- clients that share memory (model_shared.c) ---------------------------------------------- */

/* A client's operations in its segments. */
struct shared_case {
        struct model_member *m;
        struct model_ns *ns;
        struct model_attach *a;
};

/* Gives the attachment just opened its segment. */
void shared_open(struct model_attach *a);

/* These operations on a shared attachment. */
void shared_lookup(const struct shared_case *s);
void shared_publish(const struct shared_case *s);
void shared_release(const struct shared_case *s);
void shared_free(const struct shared_case *s);
void shared_request_end(const struct shared_case *s);

void shared_claim(const struct shared_case *s);
void shared_refill(const struct shared_case *s);
void shared_touch(const struct shared_case *s);

/* ---- leases (model_lease.c) ------------------------------------------------------------------ */

/* The operation. */
void op_lease(void);

/* ---- recalls (model_recall.c) ---------------------------------------------------------------- */

/* Has the set a page that isn't free? */
bool set_is_used(const struct model_ns *ns, uint32_t set);

/* Bytes of the tenant's sets that are recalled. */
uint64_t recalled_bytes(int t);

/* Checks a recall of `bytes`: as much as `wanted`, in whole sets, or all there was. taken_before:
 * n_taken_back before the operation. */
void check_recalled(int t, uint64_t wanted, uint64_t bytes, unsigned taken_before);

/* The operations. */
void op_recall(void);
void op_recall_work(void);
void op_unmapped(void);

/* Is a READY page in its magazine? */
bool is_in_magazine(const struct model_page *p, uint32_t page);

#endif
