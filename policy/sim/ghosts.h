/*
 * Evicted nodes that policies of the simulator remember: a bounded number of ids, in up to two
 * queues, each with a number. Exact, unlike s3fifo's; it grows as it fills.
 *
 * If there is no memory for one more, the oldest one is replaced, or the new one isn't remembered:
 * nothing fails.
 */
#ifndef KVL_POLICY_SIM_GHOSTS_H
#define KVL_POLICY_SIM_GHOSTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/map.h"
#include "policy/queue.h"

#define GHOST_QUEUES 2

struct ghost {
        uint64_t id, value;
        uint32_t queue; /* GHOST_QUEUES: unused */
};

struct ghosts {
        struct map index;                      /* of id: entry */
        struct ghost *entries;                 /* owned, n_entries */
        struct queue_link *links;              /* owned, n_links; of entries */
        uint32_t n_entries, n_links, max;      /* max > 0 */
        struct queue queues[GHOST_QUEUES + 1]; /* the last: of unused entries */
};

void ghosts_init(struct ghosts *g, uint32_t max);
void ghosts_deinit(struct ghosts *g);

/* Adds an id as the newest of its queue. If there are max, the oldest of its queue is forgotten, or
 * of the other. */
void ghosts_add(struct ghosts *g, unsigned queue, uint64_t id, uint64_t value);

/* Forgets an id. Returns true if it was there: *ret (may be NULL) is its ghost. */
bool ghosts_take(struct ghosts *g, uint64_t id, struct ghost *ret);

void ghosts_drop_oldest(struct ghosts *g, unsigned queue); /* if there is one */

static inline uint32_t ghosts_count(const struct ghosts *g, unsigned queue)
{
        return g->queues[queue].n;
}

uint64_t ghosts_memory_bytes(const struct ghosts *g);

#endif
