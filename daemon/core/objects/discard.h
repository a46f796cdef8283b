/* Memory that is being given back to the system. memory/discard.h has the functions. */
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

/* The service that empties files. Its functions can't fail. */
struct discard_ops {
        /* Takes ownership of fd. Calls `done` later, never from here, with 0 or -errno. -ECANCELED:
         * the request is lost and isn't retried. `owner`: a tenant's number; 0: the tenant is gone.
         */
        void (*punch)(void *data, uint32_t owner, int fd, uint64_t bytes,
                void (*done)(void *done_data, int result), void *done_data);
        /* Returns in bounded time, once all requests are done. No request follows. */
        void (*finish)(void *data);
};

/* The memory of a freed set, from discard_new(). Memory of the host, whose backend may be called
 * from two threads for different extents and arenas (gpu/device.h). */
struct discard {
        struct list_link link;
        struct discards *discards; /* while its memory is being freed */
        struct stake *stake;       /* borrowed: the former owner's; NULL: none is left */
        struct charge charge;      /* pays while the memory is held up */
        uint64_t bytes;            /* of all extents */
        uint64_t since_nsec;       /* when discards_look() first saw it; 0: not yet */
        bool is_held;
        uint32_t n_given;                 /* the first n extents were handed to discard_ops */
        uint32_t n_going;                 /* of these, not done; 0: the kernel refused, retry */
        bool is_refused, is_refused_held; /* in this round; as of when it was first held up */
        struct job *parting;              /* owned: frees on this queue instead */
        struct queue *queue;              /* borrowed */
        struct device_arena *arena;       /* owned; NULL: not mapped in this process */
        uint64_t extent_bytes;            /* of each extent */
        uint32_t n_mapped;                /* the first n extents lie side by side in the arena */
        uint32_t n;
        struct extent *extents[]; /* owned */
};

/* Part of the store. All zero: there is no thread, and memory is freed at once. */
struct discards {
        bool has_thread;
        pthread_t thread;
        pthread_mutex_t lock; /* guards the next fields; not held while memory is freed */
        pthread_cond_t wake;
        struct list_link waiting; /* struct discard.link, the oldest first */
        uint32_t n_extents;       /* waiting, or being freed */
        bool stopping;
        /* Used by the loop thread only: */
        const struct discard_ops *ops; /* NULL: the thread empties files */
        void *ops_data;                /* borrowed */
        bool is_over;                  /* `ops` has finished: files stay as they are */
        struct list_link going;        /* struct discard.link, the oldest first */
        uint32_t n_going;
};

#endif
