/*
 * A device's thread: it makes all of the daemon's calls on a device that may block, in order and
 * under a deadline. The loop submits jobs, and a descriptor signals their end. A hanging driver
 * blocks only this thread.
 *
 *   job:  submitted -> running -> done (its callback runs in queue_reap())
 *             \           \-> late: the deadline passed; done with -ETIMEDOUT. When the call
 *              \                returns at last, the thread destroys its results;
 *               \-> done with -ETIMEDOUT at once, while the queue is stuck.
 *
 * A queue is *stuck* from a late job until its call returns; then it works again. Batches of copies
 * run beside other jobs, in order for each direction; other jobs, also COPY_WITHIN, run in order of
 * submission. A DESTROY or UNREGISTER waits for copies submitted before it, and is never refused:
 * it waits until the driver answers. Memory used by a late copy stays in use while the queue is
 * stuck.
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
        JOB_CANARY,      /* does it still hold its value? */
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
 * Descriptor store for the next process: a duplicate of each exported descriptor, by the extent's
 * number. A CREATE is done when all its extents are stored. A DESTROY drops them first; so does a
 * CREATE that failed or is late. Extents without number or descriptor are left out. Called from the
 * queue's thread.
 */
struct queue_park {
        /* Stores the descriptor, as of the next wait(). Returns 0, or -errno with `why`: not
         * stored. */
        int (*park)(void *data, enum queue_parked what, uint32_t number, int fd,
                char why[DEVICE_WHY_BYTES]);
        /* Returns 0: everything parked is stored; -errno with `why`: perhaps not. Returns in
         * bounded time, which doesn't count for the queue's deadline. */
        int (*wait)(void *data, char why[DEVICE_WHY_BYTES]);
        /* Drops the stored descriptor of the extent with this number. Never fails; does nothing if
         * there is none. */
        void (*drop)(void *data, uint32_t number);
        void *data; /* borrowed; outlives the queue's thread */
};

/*
 * Descriptors can outlive the contents of their memory. After a device was reset, or lost power
 * while the machine slept, an importer isn't told. So the previous process leaves a *canary* beside
 * its extents: an extent of the smallest size, with a value at both ends. If the value is still
 * there, so are the other extents' contents.
 */
struct queue_canary {
        uint32_t number; /* the caller's, as queue_park names it */
        uint64_t value;  /* not 0, the value of cleared memory */
};

struct job;
typedef void (*job_fn)(struct job *job, int result, void *data);

/*
 * Heap memory, from job_new(). The queue owns it from submission until its callback returns, and
 * then frees it. The callback gets the job also after a time-out: the thread works on a copy.
 */
struct job {
        enum job_kind kind;
        job_fn done;                /* may be NULL */
        void *data;                 /* borrowed */
        char why[DEVICE_WHY_BYTES]; /* of the failure */
        uint64_t bytes;             /* CREATE: of each extent */
        /* CREATE: imports extents that another process made and parked. Their handles' descriptors
         * are borrowed until the callback; forever after -ETIMEDOUT. */
        bool is_import;
        /* DESTROY: contents stay, for processes that have the extents mapped. The same holds if an
         * importing CREATE fails. */
        bool lets_go;
        uint64_t canary; /* CANARY: the value; one extent, whose handle is borrowed as above, and
                            which doesn't change. -ESTALE: it holds another value */
        struct extent *zero; /* ZERO: borrowed; offset, len in copies[0] */
        struct device_copy
                *copies; /* COPY, ZERO: owned, n; NULL after a late one. COPY_WITHIN: destination
                            and source by turns, `len` of the first. REGISTER, UNREGISTER: host and
                            len of copies[0]; a late REGISTER may have worked, and must be undone.
                            -EOPNOTSUPP: not supported */
        size_t n;        /* extents or copies */
        struct job_extent extents[]; /* CREATE, DESTROY, CANARY */
};

/* n: extents or copies it has room for. NULL: no memory. */
struct job *job_new(enum job_kind kind, size_t n);

/* Frees a job that isn't submitted, or one in its callback whose results were taken. Doesn't touch
 * extents. */
void job_free(struct job *job);

/*
 * Opens the device on a thread of its own; waits for that, at most the deadline. Returns as
 * device_open(); -ETIMEDOUT: the driver hangs (the thread is left behind). deadline_msec: of each
 * call from now on.
 */
int queue_open(const char *name, const struct device_options *options, unsigned deadline_msec,
        struct queue **ret_queue, char why[DEVICE_WHY_BYTES]);

/* Makes a queue for an open device, which it takes only on success. Returns 0 or -errno. For
 * tests. */
int queue_open_device(struct device *device, unsigned deadline_msec, struct queue **ret_queue);

/* Copies the functions. Called before the first job; without it nothing is parked. */
void queue_set_park(struct queue *q, const struct queue_park *park);

/*
 * Copies the canary. Before the next extent is parked, one is made on the member (0 if the device
 * has no members) and parked; only its parked descriptor remains. It costs an extent of the
 * smallest size, only if extents are parked. If it fails, the CREATE fails, and the next one tries
 * again.
 */
void queue_set_canary(struct queue *q, unsigned member, const struct queue_canary *canary);

/* Waits for submitted jobs, at most the deadline; callbacks don't run. Closes the device and ends
 * the thread. Returns false if it is stuck or has too much to do: thread and device are left
 * behind, the process should end by _exit(). */
bool queue_close(struct queue *q);

/* Properties, constant. Nothing else of the device may be touched from outside its thread. */
const struct device_props *queue_props(const struct queue *q);

/* Readable if queue_reap() has something to do. Borrowed. */
int queue_fd(const struct queue *q);

/* Takes the job. Its callback runs in queue_reap(), never here. */
void queue_submit(struct queue *q, struct job *job);

/*
 * Submits a job and waits for its end, bounded by the deadline: for callers without a loop. The
 * queue must be empty. Takes the job, whose own callback isn't called. Returns its result; `why` is
 * only set by a failure; ret_extents (may be NULL) gets a CREATE's extents.
 */
int queue_run(struct queue *q, struct job *job, struct job_extent *ret_extents,
        char why[DEVICE_WHY_BYTES]);

/* Runs callbacks of jobs that are done, or late by now. Returns their number. */
unsigned queue_reap(struct queue *q);

/* Time (CLOCK_MONOTONIC, ns) when the running job is late: call queue_reap() then. UINT64_MAX: none
 * runs. */
uint64_t queue_deadline_nsec(const struct queue *q);

bool queue_is_stuck(const struct queue *q);

/* True after the device answered -ENXIO: it is broken, and every CREATE from now on fails with
 * that. */
bool queue_is_broken(const struct queue *q);

#endif
