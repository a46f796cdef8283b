/*
 * What is on its way back to the system. How it goes: memory/discard.h.
 */
#ifndef KVL_CORE_OBJECTS_DISCARD_H
#define KVL_CORE_OBJECTS_DISCARD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/core/objects/stake.h"

struct device_arena;
struct discards;
struct extent;
struct job;
struct queue;

/* Who empties files. Functions may not fail. */
struct discard_ops {
        /* Takes fd; calls `done` later, never here, with 0 or -errno. -ECANCELED: it is lost, and
         * isn't tried again. `owner`: a tenant's number; 0: nobody's any more. */
        void (*punch)(void *data, uint32_t owner, int fd, uint64_t bytes,
                void (*done)(void *done_data, int result), void *done_data);
        /* All that was submitted is done when it returns, in bounded time. Nothing comes after. */
        void (*finish)(void *data);
};

/* What a set leaves. Heap memory, from discard_new(). Memory of the host, whose backend can be
 * called from two threads for different extents and arenas (gpu/device.h). */
struct discard {
        struct list_link link;
        struct discards *discards; /* while it is going */
        struct stake *stake;       /* borrowed: whose it was; NULL: nobody's that is left */
        struct charge charge;      /* of what is held up */
        uint64_t bytes;            /* of all */
        uint64_t since_nsec;       /* going; 0: discards_look() hasn't seen it yet */
        bool is_held;
        uint32_t n_given; /* extents that were handed on, the first ones: they are emptied there */
        uint32_t n_going; /* of these not done yet; 0: the kernel refused, it is tried again */
        bool is_refused, is_refused_held; /* in this round; as it was when it was held up first */
        struct job *parting;              /* owned: instead of the extents below, on this queue */
        struct queue *queue;              /* borrowed */
        struct device_arena *arena;       /* owned; NULL: it is mapped nowhere in this process */
        uint64_t extent_bytes;            /* of each */
        uint32_t n_mapped; /* of the extents, the first ones: in the arena, side by side */
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
        /* The loop's: */
        const struct discard_ops *ops; /* NULL: the thread empties files */
        void *ops_data;                /* borrowed */
        bool is_over;                  /* `ops` finished: files stay as they are */
        struct list_link going;        /* struct discard.link, the oldest first */
        uint32_t n_going;
};

#endif
