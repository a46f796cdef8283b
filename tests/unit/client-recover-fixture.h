/*
 * A daemon that lives in a child, with the clients that it serves: wherever it ends, what it kept
 * is found by the one that comes after, in the test. What that one should find the child says in
 * memory that both share (struct facts).
 */
#ifndef KVL_TESTS_CLIENT_RECOVER_FIXTURE_H
#define KVL_TESTS_CLIENT_RECOVER_FIXTURE_H

#include "daemon/core/state/detail.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/life/recover.h"
#include "tests/unit/fake-keep.h"
#include "tests/unit/test-support.h"

#define KIB        UINT64_C(1024)
#define PAGE_BYTES (128 * KIB)
#define SET_BYTES  (2048 * KIB) /* an extent of the host device */
#define SET_PAGES  16
#define N_SETS     8
#define NOW        1

struct daemon {
        struct store store;
        struct tenant *a, *b;
        struct recovery recovery;
        struct detail d;
};

#define need(call) assert_int_equal(call, 0)

/* Takes over what is kept, where anything is. */
void daemon_start(struct daemon *dm, const struct keep *keep);
void daemon_check(struct daemon *dm);

/* All clients leave first. */
void daemon_end(struct daemon *dm);

/* Releases the pages that no client claimed at start. */
void release_rest(struct fake_keep *k);

/* Nothing of clients is kept any more, but the tables. */
void check_nothing_kept(const struct fake_keep *k);

/* ---- clients ---- */

/* A member with its record; its process is this one. token: of the group; NULL: a new one. */
struct member *join(struct tenant *t, const uint8_t *token, bool metadata_only);

/* The one that has the id; NULL: none. */
struct member *find(struct daemon *dm, uint64_t id);

struct attach *open_ns(struct member *m, const char *name, uint64_t frame);
void lease(struct attach *a, uint32_t n, uint64_t frame, uint32_t *ret_pages);

/* n keys, of the numbers from `first` on. */
void make_keys(uint8_t *keys, unsigned first, unsigned n);

/* Under those keys; at most SET_PAGES. */
int publish(struct attach *a, unsigned first, uint32_t n, uint32_t *pages);

/* ---- the first daemon ---- */

/* Facts about it that the test gets. */
struct facts {
        uint64_t one, mate, other;
        uint32_t group_id;
        uint8_t group_token[GROUP_TOKEN_BYTES], token[CLIENT_TOKEN_BYTES];
        uint32_t sealed[4];  /* published and pinned by one; the first two once more */
        uint32_t leased[8];  /* by one: frames 21 (5 pages), 22 (3) */
        uint32_t claimed;    /* out of the mate's magazine */
        uint32_t in_segment; /* pinned in the mate's segment */
        uint32_t n_ready;
};

extern struct facts *facts;

/* Maps it; before any daemon lives. */
void facts_init(void);

/* For fake_keep_fork(): three clients (one and its mate in a group; another tenant's) with what the
 * facts say. data: NULL, or what it does then, a void (*)(struct daemon *dm, struct attach *a,
 * struct attach *b): a is one's namespace, b its mate's. */
void live(struct fake_keep *k, void *data);

#endif
