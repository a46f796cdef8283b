/*
 * Inside of a queue: what it keeps, and what its thread does for a job. The calls of the driver are
 * all made from queue-work.c, each under the deadline; none with the lock held.
 */
#ifndef KVL_GPU_QUEUE_WORK_H
#define KVL_GPU_QUEUE_WORK_H

#include <pthread.h>

#include "base/list.h"
#include "gpu/queue.h"

/*
 * What the thread works on: everything of a job that a call of the driver may look at. Where the
 * job is late it has left, and the work is the thread's alone.
 */
struct work {
        struct list_link link; /* queue.others, .copies[] or .flights */
        struct task *task;     /* NULL: late, nobody waits for it any more */
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

/* A job and what the queue keeps beside it. */
struct task {
        struct list_link link; /* queue.done */
        struct work *work;     /* owned until submission */
        int result;
        struct job job;
};

struct queue {
        pthread_mutex_t lock; /* of everything below but `props`; never held in a call */
        pthread_cond_t wake;  /* the thread: work, or the end */
        pthread_cond_t news;  /* who opens or closes: the thread got on */
        pthread_t thread;
        unsigned refs; /* owner, thread */
        uint64_t deadline_nsec;
        int event_fd; /* -1: the owner has gone */

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
        uint64_t since_nsec;             /* it runs since; or there is something to do since */
        unsigned n_late;                 /* works that nobody waits for, not back yet */
        char late_why[DEVICE_WHY_BYTES]; /* of the last one */
        bool broken;
        char broken_why[DEVICE_WHY_BYTES];
};

/* Around each call of the driver: notes that it runs. Returns the device. */
struct device *call_begin(struct queue *q, const char *call);

/* Notes why it failed. True while somebody waits for the work, which may be NULL. */
bool call_end(struct queue *q, struct work *w, int result);

/* Lets go of what was parked, first. last_owner: as extent_destroy(). */
void destroy_extents(struct queue *q, struct job_extent *extents, size_t n, bool last_owner);

/* 0; -errno, nothing stays behind; -EINPROGRESS: a batch that is in flight now. */
int run_work(struct queue *q, struct work *w);

#endif
