/*
 * Memory of the host on its way back to the system. To unmap a set and to give its memory back
 * takes a millisecond for some megabytes, and requests would wait for it: a thread does it. Nobody
 * else ever gets such an extent, so nothing waits for it either; it is charged to nobody any more.
 * A GPU's memory goes back on its queue instead.
 *
 * Threads: all functions from one (the loop).
 */
#ifndef KVL_CORE_DISCARD_H
#define KVL_CORE_DISCARD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

struct device_arena;
struct extent;

/* Extents that wait, each with its file open; of a set that has more, all. Not tuned. */
#define DISCARDS_MAX 8

/* What a set leaves. Heap memory, from discard_new(). Memory of the host, whose backend can be
 * called from two threads for different extents and arenas (gpu/device.h). */
struct discard {
        struct list_link link;
        struct device_arena *arena; /* owned; NULL: it is mapped nowhere in this process */
        uint64_t extent_bytes;      /* of each */
        uint32_t n_mapped;          /* of the extents, the first ones: in the arena, side by side */
        uint32_t n;
        struct extent *extents[]; /* owned */
};

/* In the store; all zero: there is no thread, and everything goes at once. */
struct discards {
        bool has_thread;
        pthread_t thread;
        pthread_mutex_t lock; /* of what follows; never held while memory goes */
        pthread_cond_t wake;
        struct list_link waiting; /* struct discard.link, the oldest first */
        uint32_t n_extents;       /* of these, and of what is going */
        bool stopping;
};

/* Starts the thread. 0; -EAGAIN: there can be none, and everything goes at once. */
int discards_start(struct discards *d);

/* Ends the thread when all is given back. Nothing where there is none. */
void discards_stop(struct discards *d);

/* Room for n extents, `n` is 0. NULL: no memory. */
struct discard *discard_new(uint32_t n);

/* Takes `what`, which nobody is handed any more. Where there is no thread, or it has enough to do,
 * it has gone when this returns. */
void discard_submit(struct discards *d, struct discard *what);

#endif
