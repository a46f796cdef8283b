/*
 * The naive model of daemon/core's state: arrays, and loops over all of them. It knows which key is
 * cached where, who pins what, who was granted what and which parent a key was published under;
 * from that it says how many bytes a tenant must be charged: the sets with a page in use or a
 * client that maps them. What it does not know is the eviction policy. After an operation that may
 * evict it asks which pages went, and checks of each that it was idle with nothing pinned below.
 */
#ifndef KVL_TESTS_MODEL_H
#define KVL_TESTS_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/group.h"
#include "daemon/core/store.h"
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

enum model_state { M_FREE, M_GRANTED, M_CACHED, M_GONE };

struct model_page {
        enum model_state state;
        int group;            /* GRANTED */
        int key;              /* CACHED, GONE */
        unsigned grant_epoch; /* GRANTED */
};

struct model_ns {
        bool exists;
        int tenant, shape;
        unsigned epoch, version_epoch, version;
        bool keep_zero;
        struct model_page pages[MAX_PAGES];
        int where[N_KEYS];  /* page, NONE: not cached */
        int parent[N_KEYS]; /* key it was published under, NONE */
        unsigned tokens[N_KEYS];
        uint32_t set_pages, n_pages; /* geometry */
        uint64_t set_bytes;
};

struct model_attach {
        struct attach *real; /* NULL: not open */
        unsigned version_epoch;
        unsigned pins[MAX_PAGES];
        bool mapped[MAX_SETS];
};

struct model_member {
        struct member *real; /* NULL: unused */
        int tenant, group;
        bool metadata_only;
        struct model_attach attach[N_NS];
};

struct shape {
        uint64_t plane_page_bytes;
        uint32_t n_planes, set_pages, n_sets;
        uint64_t set_bytes;
        bool keep_zero;
};

extern const struct shape shapes[N_NS];

extern struct fake_device device;
extern struct store store;
extern struct tenant *tenants[N_TENANTS];
extern struct model_ns spaces[N_TENANTS][N_NS];
extern struct model_member members[N_MEMBERS];
extern int last_group;
extern uint64_t limits[N_TENANTS];
extern uint64_t now_nsec;
extern unsigned n_evicted, n_refused;
extern uint64_t seed, rng_state;
extern unsigned long step;
extern const char *op;

#define CHECK(condition, ...)                                    \
        do {                                                     \
                if (!(condition))                                \
                        fail(#condition, __LINE__, __VA_ARGS__); \
        } while (0)

/* Says where and why, and ends the program. */
__attribute__((noreturn, format(printf, 3, 4))) void fail(
        const char *condition, int line, const char *format, ...);

/* 0..n-1 of the sequence that the seed starts. */
uint32_t rnd(uint32_t n);

/* The key with this number. */
void key_bytes(int key, uint8_t out[KEY_BYTES]);

/* Over all members. */
unsigned pins_of(const struct model_ns *ns, uint32_t page);
bool set_is_bound(const struct model_ns *ns, uint32_t set);
uint32_t bound_sets(const struct model_ns *ns);

/* What a tenant, what the device must be charged: sets with a page in use or a client that maps
 * them. */
uint64_t usage_of(int tenant);
uint64_t usage(void);

/* Neither the page with this key nor anything cached below it is pinned. */
bool is_evictable(const struct model_ns *ns, int top);

/* What the operations do to the model. */
unsigned model_drop_subtree(struct model_ns *ns, int top);
unsigned model_invalidate(struct model_ns *ns);
void model_unpin(struct model_attach *a, struct model_ns *ns, uint32_t page, unsigned n);
void model_close(struct model_member *m, int slot);

/* The real thing; NULL where it does not exist. */
struct ns *real_ns(const struct model_ns *ns);

/* After what may evict or sweep: takes over which pages went, and checks that they were fit to go.
 */
void learn(bool may_evict);

/* The whole real state against the model, and the invariant checker. */
void compare(void);

#endif
