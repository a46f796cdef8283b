/* What the simulator's files share of an instance. Nobody else includes this. */
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
        uint32_t *slot_1;    /* of a block, plus one; 0: not cached */
        uint32_t *block_of;  /* of a slot in use */
        uint32_t *next_same; /* optimum: of each trace.blocks[i], the request that has it next */
        uint32_t *next_use;  /* optimum: of each block, the same as of the running request */
        struct slots tiers[SIM_TIERS];
        uint32_t n_slots;
        uint32_t next; /* request */
        struct flight flight;
        struct expect *expect;  /* owned; NULL: nothing is expected */
        uint32_t n_queued;      /* requests that have been in the queue, or are */
        uint32_t *last_request; /* that has a block; where something is expected wrongly */
        uint64_t draws;         /* random numbers so far */
        struct sim_result result;
};

/* Where a block is cached; NODE_NONE: nowhere. */
static inline uint32_t sim_slot(const struct sim *s, uint32_t block)
{
        return s->slot_1[block] - 1;
}

/* Numbers of pages: the trace's blocks, and then as many for each group of layers with a window. */
static inline uint32_t sim_n_pages(const struct sim *s)
{
        return s->trace.n_unique * (1 + s->options.windows.groups);
}

static inline uint32_t sim_window_page(const struct sim *s, uint32_t block, uint32_t group)
{
        return (1 + group) * s->trace.n_unique + block;
}

/* Blocks of the path that are cached, from its start on. */
uint32_t sim_longest_hit(const struct sim *s, const uint32_t *path, uint32_t n);

/* A request begins that finds so many blocks. */
void sim_count_request(struct sim *s, const struct sim_request *r, uint32_t n_hit);

/* The policy does all the housekeeping it has, as the daemon lets it do in time. */
void sim_work(struct sim *s, uint64_t now_nsec);

/* One of a full device goes, or goes down. False where none can. */
bool sim_evict_one(struct sim *s, uint64_t now_nsec);

/* Block i of a request's path is cached from now on, and held. The one before is cached, and there
 * is a free slot. */
void sim_insert(struct sim *s, uint32_t request, uint32_t i, uint64_t now_nsec);

/* The same of that block's page of a group of layers with a window: it has no parent. */
void sim_insert_window(struct sim *s, uint32_t request, uint32_t i, uint32_t group, bool passed,
        uint64_t now_nsec);

/* There is a free slot, now. False where none can be had. */
bool sim_make_room(struct sim *s, uint64_t now_nsec);

/* The running request ends, of whose path so many blocks are cached. */
void sim_end_request(struct sim *s, const struct sim_request *r, uint32_t n_cached);

/* A request of the trace runs, with pages of layers that have a window. */
void windows_run(struct sim *s, const struct sim_request *r);

#endif
