/*
 * What reaches the disk for a store (disk.h): operations on one file, several at once, in no order.
 * An engine has threads of its own: libuv's pool has one thread in the daemon, which the files of
 * its state need (daemon/server/system/disk.h), and a disk that hangs would hang those, too. Sums
 * of what was read are made there as well, where they don't hold the loop up. Tests have engines of
 * their own, that fail and lose power.
 *
 * Threads: submit(), reap() and close() from one. What an operation names belongs to the engine
 * from submit() until reap() hands it back.
 */
#ifndef KVL_TIER_DISK_ENGINE_H
#define KVL_TIER_DISK_ENGINE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/list.h"
#include "daemon/tier/disk.h"

struct disk_chunk;
struct disk_block;
struct disk_engine;

enum disk_op_kind {
        DISK_OP_READ,    /* all of it, or an error; -ENODATA: the file ends before */
        DISK_OP_WRITE,   /* all of it, or an error */
        DISK_OP_FLUSH,   /* what was written before is durable. -ENOENT: the file was deleted.
                            -ENODATA: it is shorter than `bytes` */
        DISK_OP_ZERO,    /* the range reads as zeros, and stays allocated; 0 where the file system
                            can't */
        DISK_OP_DISCARD, /* the file has nothing in it, durably */
};

struct disk_op {
        struct list_link link;
        enum disk_op_kind kind;
        uint64_t offset, bytes;
        struct iovec *iov; /* changed while it runs */
        unsigned n_iov;
        int result; /* 0 or -errno */
        /* After a READ that succeeded, in the engine's thread: touches what the op names. NULL. */
        void (*check)(struct disk_op *op);

        /* The store's. */
        struct list_link flight; /* disk_file.flight */
        void (*done)(struct disk_file *d, struct disk_op *op);
        uint64_t since_nsec; /* it is under way; 0: it waits */
        bool is_late;
        struct disk_chunk *chunk; /* busy with it */
        struct disk_block *block;
        struct disk_io *io; /* its pages first .. first + n - 1 */
        uint32_t first, n;
};

struct disk_engine_ops {
        const char *name;
        /* Takes the op; never fails. */
        void (*submit)(struct disk_engine *e, struct disk_op *op);
        /* Makes the list: what is done. */
        void (*reap)(struct disk_engine *e, struct list_link *ret_done);
        /* Waits for what is under way, at most so long. False: not all was, threads are left
         * behind. */
        bool (*close)(struct disk_engine *e, unsigned msec);
};

struct disk_engine {
        const struct disk_engine_ops *ops;
};

/* fd: the file; event_fd: written to when there is something to reap; both borrowed. 0 or -errno.
 */
typedef int (*disk_engine_start_fn)(
        int fd, int event_fd, unsigned depth, void *data, struct disk_engine **ret_engine);

int disk_uring_start(
        int fd, int event_fd, unsigned depth, void *data, struct disk_engine **ret_engine);
int disk_threads_start(
        int fd, int event_fd, unsigned depth, void *data, struct disk_engine **ret_engine);

/* disk_open() with an engine of the caller's instead of options.engine. For tests. */
int disk_open_with(const char *path, uint64_t bytes, const struct disk_options *options,
        disk_engine_start_fn start, void *data, struct disk_file **ret_disk,
        char why[DISK_WHY_BYTES]);

/* ---- for engines ----------------------------------------------------------------------------- */

/* Runs it, and blocks; `check` included. */
void disk_op_run(int fd, struct disk_op *op);

/* What a transfer of `r` bytes, or -errno, makes of it. True: it is over, with op->result; false:
 * the rest is to be done, iov and offset are at it. */
bool disk_op_moved(struct disk_op *op, int64_t r);

/* The file system couldn't do ZERO in one call (-EOPNOTSUPP): in several. 0 or -errno. */
int disk_zero_otherwise(int fd, uint64_t offset, uint64_t bytes);

/* After FLUSH: is the file still all there? 0, -ENOENT, -ENODATA, another -errno. */
int disk_file_is_whole(int fd, uint64_t bytes);

void disk_ring(int event_fd);

/* A lock that is held for less than a sleep and a wake take: who wants it spins first. */
void disk_lock_init(pthread_mutex_t *lock);

#endif
