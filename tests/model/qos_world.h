/*
 * World of the QoS model: a store on one or two devices without memory, tenants with random
 * attributes, and their clients. Clients lease, publish, look up, map and release. It plays the
 * server, too: it sends recalls, and tries waiting leases again in order. After every operation the
 * whole state is checked: by the store's own checker, limits, sums and the rule of region.h. Every
 * answer must be one that the header allows.
 */
#ifndef KVL_TESTS_QOS_WORLD_H
#define KVL_TESTS_QOS_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/state/group.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/memory/region.h"
#include "daemon/core/requests/lease.h"

#define MAX_TENANTS 6
#define N_CLIENTS   2 /* per tenant */
#define MAX_HOLDS   8
#define MAX_PAGES   24 /* of one lease */
#define MAX_SLOTS   64 /* sets of a namespace */
#define MAX_POOLS   2
#define EXTENT      1024
#define MSEC        UINT64_C(1000000)
#define TICK_NSEC   (10 * MSEC) /* how often the server tries those that wait */
#define FOREVER     UINT64_C(3600000000000)

struct rng {
        uint64_t state;
};

/* Pages granted to, or pinned by, a client. */
struct hold {
        uint32_t n; /* 0: nothing */
        uint32_t pages[MAX_PAGES];
        bool is_pinned;
        uint64_t until_nsec; /* it releases the pages then */
};

struct world;

struct client {
        struct q_tenant *tenant;
        struct member *member; /* NULL: none */
        struct attach *attach;
        struct hold holds[MAX_HOLDS];
        bool mapped[MAX_SLOTS];
        uint64_t unmap_nsec[MAX_SLOTS]; /* when it was told to unmap; 0: it wasn't */
        /* A lease that waits; n 0: none. */
        struct lease_request rq;
        uint64_t since_nsec, hold_nsec;
};

struct q_tenant {
        struct tenant *real;
        struct pool_share *share; /* where its namespace is */
        char name[8];
        bool safepoints, maps;
        uint32_t shape;
        struct client clients[N_CLIENTS];
        uint32_t n_chains;      /* published so far */
        uint32_t chain_len[64]; /* the latest, by number modulo 64 */
        uint64_t last_charged;  /* after the step before */
        uint64_t last_excess;
};

struct world_counters {
        uint64_t granted, at_once, waited, refused, degraded, timeouts, recalled, unmapped, deaths;
        uint64_t within_reserve, set_attrs, no_room_to_reserve, hits;
        uint64_t longest_wait_nsec;
        uint64_t compacted; /* sets emptied by compaction whose clients were told */
        uint64_t unfair;    /* leases that wait for more than their fair share */
};

extern struct store store;
extern struct pool *pools[MAX_POOLS];
extern uint32_t n_pools;
extern struct q_tenant tenants[MAX_TENANTS];
extern uint32_t n_tenants;
extern uint64_t now_nsec;
extern uint64_t seed;
extern unsigned long step;
extern const char *op;
extern struct rng rng;
extern struct world_counters counters;
extern bool compacts; /* sets with little in them are emptied now and then */

#define CHECK(condition, ...)                                    \
        do {                                                     \
                if (!(condition))                                \
                        fail(#condition, __LINE__, __VA_ARGS__); \
        } while (0)

/* Prints where and why, and ends the program. */
__attribute__((noreturn, format(printf, 3, 4))) void fail(
        const char *condition, int line, const char *format, ...);

uint64_t draw(struct rng *r);
/* 0..n-1 */
uint32_t draw_below(struct rng *r, uint32_t n);
uint32_t rnd(uint32_t n);

/* A store with `pools_wanted` devices that hold `sets` sets of EXTENT bytes each. No tenants. */
void world_start(uint32_t pools_wanted, uint32_t sets);

/* All clients leave; nothing may be left on the devices. */
void world_end(void);

/* Attributes without limits: dynamic, weight 1. */
struct tenant_attrs plain_attrs(void);

/* Adds a tenant; its clients have a namespace of this shape (0, 1) on this device. */
struct q_tenant *world_add_tenant(
        const struct tenant_attrs *attrs, uint32_t shape, uint32_t pool, bool safepoints);

uint64_t set_bytes_of(const struct q_tenant *t);
uint32_t set_pages_of(const struct q_tenant *t);
struct pool *pool_of(const struct q_tenant *t);

/* ---- what clients do ------------------------------------------------------------------------- */

void client_join(struct client *c);
void client_die(struct client *c);
bool client_waits(const struct client *c);
struct hold *client_free_hold(struct client *c);
uint32_t client_held_pages(const struct client *c);

/* Returns lease_ask()'s code. A grant is put into a free hold, which must exist, until now +
 * hold_nsec. */
int client_lease(struct client *c, const struct lease_request *rq, uint64_t hold_nsec,
        struct lease_result *ret);

/* Publishes a granted hold as a chain with this number: from then on it is pinned. */
void client_publish(struct client *c, struct hold *h, uint32_t chain);

/* Returns the pages found of the chain, which are held until now + hold_nsec. */
uint32_t client_lookup(struct client *c, uint32_t chain, uint32_t len, uint64_t hold_nsec);

void client_let_go(struct client *c, struct hold *h);
void client_call_off(struct client *c);

/* ---- what the server does -------------------------------------------------------------------- */

/* Returns true if it did; else it doesn't fit, which must be right. */
bool world_set_attrs(struct q_tenant *t, const struct tenant_attrs *attrs);

/* Advances time by TICK_NSEC, and runs all that waits for time. */
void world_tick(void);

/* Tries waiting leases again, as long as that changes something. */
void world_retry(void);

/* Checks the whole state; call it after every operation. */
void world_check(void);

/* Fair shares by water-filling with fractions, of the tenants of a pool; those that want[i]. */
void world_ideal(const struct pool *pool, const bool *want, double *ret_ideal);

#endif
