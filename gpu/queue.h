/*
 * A device's thread: every call of the daemon on a device that may block is made there, in order,
 * and under a deadline. The loop submits jobs and learns of their end through a descriptor; a
 * driver that hangs keeps the thread and nothing else.
 *
 *   job:  submitted -> running -> done (its callback runs in queue_reap())
 *                 \           \-> late: the deadline passed; done with -ETIMEDOUT, and what the
 * call \              brings when it ever returns is destroyed by the thread
 *                   \-> done with -ETIMEDOUT at once, while the queue is stuck
 *
 * A queue is *stuck* from a late job until its call returns; then it works again. Batches of copies
 * run beside other jobs, each direction in order; the rest, COPY_WITHIN too, in order of
 * submission. A DESTROY or UNREGISTER waits for copies submitted before it, and is never refused:
 * it waits until the driver answers. What a late copy reads and writes stays in use until the queue
 * isn't stuck any more.
 *
 * Threads: all functions from one (the loop), callbacks run there.
 */
#ifndef KVL_GPU_QUEUE_H
#define KVL_GPU_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/device.h"

struct queue;

enum job_kind {
        JOB_CREATE,  /* extents, zeroed and exported */
        JOB_DESTROY, /* extents */
        JOB_ZERO,
        JOB_COPY_OUT, /* device to host */
        JOB_COPY_IN,
        JOB_COPY_WITHIN, /* between extents of the device */
        JOB_CANARY,      /* does one still hold its value? */
        JOB_REGISTER,    /* memory of the host, for copies at full speed (device.h) */
        JOB_UNREGISTER,
};

/* CREATE brings these, DESTROY takes them. */
struct job_extent {
        struct extent *extent;       /* owned */
        struct extent_handle handle; /* exported once: fd owned, or bytes */
        uint32_t number;             /* the caller's; queue_park names it by that. 0: not parked */
        uint32_t member;             /* CREATE, CANARY: on which of the device's members; 0 */
};

enum queue_parked { PARKED_EXTENT, PARKED_CANARY };

/*
 * Who keeps extents for the process that comes after this one: a duplicate of each exported
 * descriptor, by the extent's number. A CREATE is done when all it made is kept. A DESTROY lets go
 * before it destroys; so does a CREATE that failed, or that nobody waits for any more. Extents
 * without number or descriptor are left out. Called from the queue's thread.
 */
struct queue_park {
        /* It is kept as of the next wait(). 0; -errno with `why`: nothing of it is. */
        int (*park)(void *data, enum queue_parked what, uint32_t number, int fd,
                char why[DEVICE_WHY_BYTES]);
        /* 0: everything parked is kept; -errno with `why`: perhaps not. Returns in bounded time,
         * which is no part of the queue's deadline. */
        int (*wait)(void *data, char why[DEVICE_WHY_BYTES]);
        /* Lets go of the descriptor that is kept for the extent with this number. Never fails; does
         * nothing where none is kept. */
        void (*drop)(void *data, uint32_t number);
        void *data; /* borrowed; outlives the queue's thread */
};

/*
 * Descriptors can outlive what their memory held: a device that is reset, or loses power while the
 * machine sleeps, says nothing of that to who imports it again. So the process before leaves a
 * *canary* beside its extents, the smallest extent there is, with a value at both ends. What holds
 * it holds the rest.
 */
struct queue_canary {
        uint32_t number; /* the caller's, as queue_park names it */
        uint64_t value;  /* not 0, which memory that was cleared has */
};

struct job;
typedef void (*job_fn)(struct job *job, int result, void *data);

/*
 * Heap memory, from job_new(); the queue's from submission until its callback returns, then freed.
 * A job that times out is another copy's business: the callback gets this one all the same.
 */
struct job {
        enum job_kind kind;
        job_fn done;                /* may be NULL */
        void *data;                 /* borrowed */
        char why[DEVICE_WHY_BYTES]; /* of the failure */
        uint64_t bytes;             /* CREATE: of each extent */
        /* CREATE: of extents that another process made, parked already; their handles' descriptors
         * are borrowed until the callback, where that says -ETIMEDOUT for good. */
        bool is_import;
        /* DESTROY: what they hold stays as it is, for who has them mapped. So it does where a
         * CREATE that imports fails. */
        bool lets_go;
        uint64_t canary; /* CANARY: the value; one extent, whose handle is borrowed as above, and
                            which stays as it is. -ESTALE: it holds something else */
        struct extent *zero;         /* ZERO: borrowed; offset, len in copies[0] */
        struct device_copy *copies;  /* COPY, ZERO: owned, n; NULL after a late one. COPY_WITHIN:
                                        where to and where from by turns, `len` of the first.
                                        REGISTER, UNREGISTER: host and len of copies[0]; a REGISTER
                                        that was late may be there all the same, and is to be
                                        undone as if it were. -EOPNOTSUPP: the device has none */
        size_t n;                    /* extents or copies */
        struct job_extent extents[]; /* CREATE, DESTROY, CANARY */
};

/* n: extents or copies it has room for. NULL: no memory. */
struct job *job_new(enum job_kind kind, size_t n);

/* Not submitted, or in its callback after what it brought was taken. Doesn't touch extents. */
void job_free(struct job *job);

/*
 * Opens the device on a thread of its own. Waits for that, at most the deadline. Returns as
 * device_open(); -ETIMEDOUT: the driver hangs (the thread is left behind). deadline_msec: of each
 * call from now on.
 */
int queue_open(const char *name, const struct device_options *options, unsigned deadline_msec,
        struct queue **ret_queue, char why[DEVICE_WHY_BYTES]);

/* Makes a queue for a device that is open, which it takes on success only. 0 or -errno. For tests.
 */
int queue_open_device(struct device *device, unsigned deadline_msec, struct queue **ret_queue);

/* Copies it. Before the first job; without it nothing is parked. */
void queue_set_park(struct queue *q, const struct queue_park *park);

/*
 * Copies it. Before the next extent is parked a canary is made on the member (0 of a device without
 * members) and parked, of which nothing but the parked descriptor is left then: it costs an extent
 * of the smallest size where memory is kept, and nothing before. A CREATE for which that fails
 * fails, and the next one tries again.
 */
void queue_set_canary(struct queue *q, unsigned member, const struct queue_canary *canary);

/* Waits for what is submitted, at most the deadline; callbacks don't run. Closes the device and
 * ends the thread. False: it is stuck or has too much to do, thread and device are left behind, the
 * process should end by _exit(). */
bool queue_close(struct queue *q);

/* Properties, constant. Nothing else of the device may be touched from outside its thread. */
const struct device_props *queue_props(const struct queue *q);

/* Readable where queue_reap() has something to do. Borrowed. */
int queue_fd(const struct queue *q);

/* Takes the job. Its callback runs in queue_reap(), never here. */
void queue_submit(struct queue *q, struct job *job);

/*
 * The same, and waits for its end, which the deadline bounds: for who has no loop yet. Nothing else
 * is on the queue. Takes the job, whose own callback isn't called. Its result; `why` is set by
 * a failure alone, ret_extents (may be NULL) to what a CREATE brought.
 */
int queue_run(struct queue *q, struct job *job, struct job_extent *ret_extents,
        char why[DEVICE_WHY_BYTES]);

/* Runs callbacks of jobs that are done, or late by now. Returns their number. */
unsigned queue_reap(struct queue *q);

/* When the job that runs is late (CLOCK_MONOTONIC, ns): queue_reap() then. UINT64_MAX: none runs.
 */
uint64_t queue_deadline_nsec(const struct queue *q);

bool queue_is_stuck(const struct queue *q);

/* The device answered -ENXIO: it is broken for good, and every CREATE from now on fails with it. */
bool queue_is_broken(const struct queue *q);

#endif
