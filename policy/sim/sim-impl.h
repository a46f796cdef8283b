/* State of an instance, shared by the simulator's files only. */
#ifndef KVL_POLICY_SIM_IMPL_H
#define KVL_POLICY_SIM_IMPL_H

#include "policy/expect.h"
#include "policy/sim/flight.h"
#include "policy/sim/sim.h"

#define SIM_TIERS 2

struct slots {
        uint32_t *free; /* a stack */
        uint32_t n_free, n_used, capacity;
};

struct sim {
        struct sim_trace trace; /* borrowed arrays */
        struct sim_options options;
        struct tree tree;
        void *policy;
        uint32_t *slot_1;       /* by block, plus one; 0: not cached */
        uint32_t *block_of;     /* by slot in use */
        uint32_t *next_same;    /* optimum: for each trace.blocks[i], the next request with it */
        uint32_t *next_use;     /* optimum: for each block, its next request */
        uint32_t *continued_by; /* drawn hints: by request, the next one with its text, UINT32_MAX:
                                   none */
        struct slots tiers[SIM_TIERS];
        uint32_t n_slots;
        uint32_t next; /* request */
        struct flight flight;
        struct expect *expect;  /* owned; NULL: nothing is expected */
        uint32_t n_queued;      /* index after the last request that was queued */
        uint32_t *last_request; /* last request with each block; to choose wrong expectations */
        uint64_t draws;         /* random numbers so far */
        struct sim_result result;
};

/* Slot of a cached block; NODE_NONE: it isn't cached. */
static inline uint32_t sim_slot(const struct sim *s, uint32_t block)
{
        return s->slot_1[block] - 1;
}

/* Pages are numbered: first the trace's blocks, then as many for each group of layers with a
 * window. */
static inline uint32_t sim_n_pages(const struct sim *s)
{
        return s->trace.n_unique * (1 + s->options.windows.groups);
}

static inline uint32_t sim_window_page(const struct sim *s, uint32_t block, uint32_t group)
{
        return (1 + group) * s->trace.n_unique + block;
}

static inline bool sim_is_ours(const struct sim *s, const struct sim_request *r)
{
        return s->options.tenant == SIM_ALL_TENANTS || s->options.tenant == r->tenant;
}

/* The finalizer of splitmix64 (Steele, Lea, Flood 2014). */
static inline uint64_t sim_mix(uint64_t x)
{
        x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
        return x ^ x >> 31;
}

/* Number of cached blocks from the path's start. */
uint32_t sim_longest_hit(const struct sim *s, const uint32_t *path, uint32_t n);

/* Counts a request that finds n_hit blocks. */
void sim_count_request(struct sim *s, const struct sim_request *r, uint32_t n_hit);

/* Lets the policy do all its housekeeping, which the daemon does bit by bit. */
void sim_work(struct sim *s, uint64_t now_nsec);

/* Drops or demotes a block of a full device. Returns false if none can be. */
bool sim_evict_one(struct sim *s, uint64_t now_nsec);

/* Caches and holds block i of a request's path. Its parent must be cached, and a slot free. */
void sim_insert(struct sim *s, uint32_t request, uint32_t i, uint64_t now_nsec);

/* Caches and holds that block's page of a group of layers with a window, which has no parent. */
void sim_insert_window(struct sim *s, uint32_t request, uint32_t i, uint32_t group, bool passed,
        uint64_t now_nsec);

/* Makes a free slot on the device. Returns false if no block can be evicted. */
bool sim_make_room(struct sim *s, uint64_t now_nsec);

/* Ends the running request; n_cached blocks of its path are cached. */
void sim_end_request(struct sim *s, const struct sim_request *r, uint32_t n_cached);

/* Finds the requests that continue others, for drawn hints. Returns 0 or -ENOMEM; sim_free() in
 * any case. */
int sim_hints_init(struct sim *s);

/* Tells the policy that a request ends, with its ending, and its hint if its whole path is cached.
 */
void sim_tell_end(struct sim *s, uint32_t request, uint32_t n_cached, uint64_t now_nsec);

/* Runs a request of the trace, with the pages of layers that have a window. */
void windows_run(struct sim *s, const struct sim_request *r);

#endif
