/*
 * Internals of a queue: its state, and its thread's work. All calls of the driver are in
 * queue-work.c, each under the deadline; none with the lock held.
 */
#ifndef KVL_GPU_QUEUE_WORK_H
#define KVL_GPU_QUEUE_WORK_H

#include <pthread.h>

#include "base/list.h"
#include "gpu/queue.h"

/*
 * The thread's part of a job: all data that a call of the driver may use. A late job leaves it;
 * then the work belongs to the thread alone.
 */
struct work {
        struct list_link link; /* queue.others, .copies[] or .flights */
        struct task *task;     /* NULL: late, no caller waits for it any more */
        enum job_kind kind;
        uint64_t seq, bytes, canary;
        struct extent *zero;
        struct device_copy *copies; /* owned */
        struct device_batch *batch; /* in flight: the driver's */
        uint64_t since_nsec;        /* in flight: from then on */
        char why[DEVICE_WHY_BYTES];
        bool is_import, lets_go;
        size_t n;
        struct job_extent extents[];
};

/* A job and the queue's data about it. */
struct task {
        struct list_link link; /* queue.done */
        struct work *work;     /* owned until submission */
        int result;
        struct job job;
};

struct queue {
        pthread_mutex_t lock; /* of everything below but `props`; never held in a call */
        pthread_cond_t wake;  /* the thread: work, or the end */
        pthread_cond_t news;  /* for opening and closing: the thread has progressed */
        pthread_t thread;
        unsigned refs; /* owner, thread */
        uint64_t deadline_nsec;
        int event_fd; /* -1: the owner has closed the queue */

        struct device *device; /* owned by the thread */
        struct device_props props;
        struct device_options options;
        char name[DEVICE_NAME_MAX + 1];
        struct queue_park park; /* constant from the first job on; functions NULL: none */
        struct queue_canary canaries[DEVICE_MEMBERS_MAX]; /* to be made; number 0: none */
        int open_result;
        char open_why[DEVICE_WHY_BYTES];
        bool opened, stopping, ended;

        struct list_link others;    /* all but copies from and to the host */
        struct list_link copies[2]; /* by enum device_direction */
        struct list_link flights;   /* batches under way */
        struct list_link done;      /* struct task.link */
        uint64_t last_seq;
        struct work *running;
        const char *call;                /* the driver's function that runs; NULL */
        uint64_t since_nsec;             /* start of the call; or of waiting work */
        unsigned n_late;                 /* late works that haven't returned yet */
        char late_why[DEVICE_WHY_BYTES]; /* of the last one */
        bool broken;
        char broken_why[DEVICE_WHY_BYTES];
};

/* Called before each call of the driver: records it. Returns the device. */
struct device *call_begin(struct queue *q, const char *call);

/* Notes why the call failed. Returns true while a caller waits for the work, which may be NULL. */
bool call_end(struct queue *q, struct work *w, int result);

/* Drops parked descriptors, then destroys the extents. last_owner: see extent_destroy(). */
void destroy_extents(struct queue *q, struct job_extent *extents, size_t n, bool last_owner);

/* Runs a work. Returns 0; -errno: nothing stays behind; -EINPROGRESS: a batch is now in flight. */
int run_work(struct queue *q, struct work *w);

#endif
