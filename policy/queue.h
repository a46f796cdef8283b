/*
 * Queues of nodes in arrays: 8 bytes a node, no allocation, every call O(1). Several queues may
 * share one array of links, as a node is in at most one of them; the caller knows which. All-zero
 * memory is an empty queue. Links of a node in no queue are undefined.
 */
#ifndef KVL_POLICY_QUEUE_H
#define KVL_POLICY_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/tree.h"

/* Nodes plus one, modulo 2^32: NODE_NONE is 0. */
struct queue_link {
        uint32_t older_1, newer_1;
};

struct queue {
        uint32_t oldest_1, newest_1;
        uint32_t n;
};

static inline uint32_t queue_oldest(const struct queue *q)
{
        return q->oldest_1 - 1;
}

static inline uint32_t queue_newest(const struct queue *q)
{
        return q->newest_1 - 1;
}

/* NODE_NONE: it is the oldest. */
static inline uint32_t queue_older(const struct queue_link *links, uint32_t node)
{
        return links[node].older_1 - 1;
}

/* NODE_NONE: it is the newest. */
static inline uint32_t queue_newer(const struct queue_link *links, uint32_t node)
{
        return links[node].newer_1 - 1;
}

/* Redirects the links that refer to `node` (its neighbours', or the queue's ends) to `older_1` and
 * `newer_1`. */
static inline void queue_bend(struct queue *q, struct queue_link *links, struct queue_link at,
        uint32_t newer_1, uint32_t older_1)
{
        *(at.older_1 ? &links[at.older_1 - 1].newer_1 : &q->oldest_1) = newer_1;
        *(at.newer_1 ? &links[at.newer_1 - 1].older_1 : &q->newest_1) = older_1;
}

static inline void queue_put(
        struct queue *q, struct queue_link *links, uint32_t node, struct queue_link at)
{
        links[node] = at;
        queue_bend(q, links, at, node + 1, node + 1);
        q->n++;
}

static inline void queue_add_newest(struct queue *q, struct queue_link *links, uint32_t node)
{
        queue_put(q, links, node, (struct queue_link){.older_1 = q->newest_1});
}

static inline void queue_add_oldest(struct queue *q, struct queue_link *links, uint32_t node)
{
        queue_put(q, links, node, (struct queue_link){.newer_1 = q->oldest_1});
}

static inline void queue_unlink(struct queue *q, struct queue_link *links, uint32_t node)
{
        queue_bend(q, links, links[node], links[node].newer_1, links[node].older_1);
        q->n--;
}

/* `to`, which is in no queue, takes the place of `node`. */
static inline void queue_move(struct queue *q, struct queue_link *links, uint32_t node, uint32_t to)
{
        links[to] = links[node];
        queue_bend(q, links, links[to], to + 1, to + 1);
}

/* Debug: true if the node's neighbours in the queue, or the queue's ends, refer to it. */
static inline bool queue_refers_to(
        const struct queue *q, const struct queue_link *links, uint32_t n_links, uint32_t node)
{
        struct queue_link at = links[node];

        if (at.older_1 > n_links || at.newer_1 > n_links)
                return false;
        return (at.older_1 ? links[at.older_1 - 1].newer_1 : q->oldest_1) == node + 1 &&
               (at.newer_1 ? links[at.newer_1 - 1].older_1 : q->newest_1) == node + 1;
}

/* Debug: true if links are consistent and there are n nodes. n_links: size of `links`. */
static inline bool queue_is_sound(
        const struct queue *q, const struct queue_link *links, uint32_t n_links)
{
        uint32_t older_1 = 0, n = 0;

        for (uint32_t at_1 = q->oldest_1; at_1 != 0; at_1 = links[at_1 - 1].newer_1) {
                if (at_1 > n_links || links[at_1 - 1].older_1 != older_1 || ++n > q->n)
                        return false;
                older_1 = at_1;
        }
        return q->newest_1 == older_1 && n == q->n;
}

#endif
