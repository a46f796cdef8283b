/*
 * For implementations of a store (remote-io.h): batches that were submitted and are done, and the
 * functions that an implementation provides.
 *
 * Threads: the implementation's threads call remote_op_done(). All others: the loop.
 */
#ifndef KVL_REMOTE_REMOTE_STORE_H
#define KVL_REMOTE_REMOTE_STORE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "base/macros.h"
#include "daemon/remote/io/remote-io.h"

/* A batch. */
struct remote_task {
        struct list_link link;   /* remote_store.done; before that the implementation's */
        _Atomic uint32_t n_left; /* operations without a result */
        _Atomic bool is_canceled;
        void *work; /* the implementation's state; NULL: none */
        struct remote_io io;
};

static inline struct remote_task *remote_task_of(struct remote_io *io)
{
        return container_of(io, struct remote_task, io);
}

struct remote_ops {
        /* Takes a batch that was checked, whose n_left is set. slots[i] is the slot of operation
         * i's keys. Returns 0 or -errno, with nothing done. */
        int (*begin)(struct remote_store *s, struct remote_task *t, const uint16_t *slots);
        /* t->is_canceled was set: wakes the threads that have the batch. */
        void (*cancel)(struct remote_store *s, struct remote_task *t);
        /* Frees t->work; NULL: there is none. */
        void (*free_work)(struct remote_task *t);
        /* Ends the threads. Each batch that was taken is done then. */
        void (*stop)(struct remote_store *s);
        /* Frees the store, which remote_store_deinit() has left. */
        void (*free)(struct remote_store *s);
        unsigned (*descriptors)(struct remote_store *s);                       /* but event_fd */
        void (*stats)(struct remote_store *s, struct remote_stats *ret_stats); /* but n_waiting */
        bool (*node_next)(
                struct remote_store *s, unsigned *iter, struct remote_node_stats *ret_stats);
};

/* The first member of an implementation's store. */
struct remote_store {
        const struct remote_ops *ops;
        pthread_mutex_t lock;  /* of `done` and is_rung; implementations may use it for their own */
        struct list_link done; /* struct remote_task.link */
        pthread_cond_t is_done; /* a task was added to it */
        bool is_rung;
        int event_fd;

        /* The loop's. */
        unsigned max_ops, n_waiting;
        bool is_closing;
};

/* Returns 0; -errno: nothing has to be left. */
int remote_store_init(struct remote_store *s, const struct remote_ops *ops, unsigned max_ops);
void remote_store_deinit(struct remote_store *s);

/* An operation of the batch has its result. The batch is done with the last one, and isn't the
 * caller's any more. Any thread, without the lock. */
void remote_op_done(struct remote_store *s, struct remote_task *t);

/* Bytes of the value's buffers; 0: they are invalid. */
uint64_t remote_value_bytes(const struct remote_op *op);

/* Does the operation read or write a value? */
static inline bool remote_kind_has_value(enum remote_kind kind)
{
        return kind == REMOTE_READ || kind == REMOTE_WRITE;
}

#endif
