/*
 * I/O engine of a disk store (disk.h): operations on one file, several at once, in no order. An
 * engine has its own threads. libuv's pool has one thread in the daemon, for the files of its state
 * (daemon/server/base/disk.h); a hanging disk would block those, too. The engine's threads also
 * compute the sums of read bytes, off the loop. Tests have engines that fail and lose power.
 *
 * Threads: submit(), reap() and close() from one. The data of an operation belong to the engine
 * from submit() until reap() returns it.
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
        DISK_OP_READ,  /* all bytes, or an error; -ENODATA: the file is shorter */
        DISK_OP_WRITE, /* all bytes, or an error */
        DISK_OP_FLUSH, /* makes earlier writes durable. -ENOENT: the file was deleted. -ENODATA: it
                          is shorter than `bytes` */
        DISK_OP_ZERO,  /* zeroes the range, which stays allocated; 0 if the file system can't */
        DISK_OP_DISCARD, /* empties the file, durably */
};

struct disk_op {
        struct list_link link;
        enum disk_op_kind kind;
        uint64_t offset, bytes;
        struct iovec *iov; /* changed while it runs */
        unsigned n_iov;
        int result; /* 0 or -errno */
        /* Called after a successful READ, in the engine's thread: may touch only data of the
         * operation. NULL: none. */
        void (*check)(struct disk_op *op);

        /* The store's. */
        struct list_link flight; /* disk_file.flight */
        void (*done)(struct disk_file *d, struct disk_op *op);
        uint64_t since_nsec; /* start time; 0: it waits */
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
        /* Fills the list with the operations that are done. */
        void (*reap)(struct disk_engine *e, struct list_link *ret_done);
        /* Waits at most `msec` for running operations. Returns false if some still run: threads are
         * left behind. */
        bool (*close)(struct disk_engine *e, unsigned msec);
};

struct disk_engine {
        const struct disk_engine_ops *ops;
};

/* Starts an engine. fd: the file; event_fd: written to when operations can be reaped; both
 * borrowed. Returns 0 or -errno. */
typedef int (*disk_engine_start_fn)(
        int fd, int event_fd, unsigned depth, void *data, struct disk_engine **ret_engine);

int disk_uring_start(
        int fd, int event_fd, unsigned depth, void *data, struct disk_engine **ret_engine);
int disk_threads_start(
        int fd, int event_fd, unsigned depth, void *data, struct disk_engine **ret_engine);

/* disk_open() with the caller's engine. For tests. */
int disk_open_with(const char *path, uint64_t bytes, const struct disk_options *options,
        disk_engine_start_fn start, void *data, struct disk_file **ret_disk,
        char why[DISK_WHY_BYTES]);

/* ---- for engines ----------------------------------------------------------------------------- */

/* The threads of an engine, and operations on their way to them and back: embedded first in the
 * engine's own struct. */
struct disk_pool {
        struct disk_engine engine;
        int fd, event_fd; /* borrowed */
        int wake_fd;      /* the engine's: written to if there is work, or the end; -1: `wake` */
        void (*release)(struct disk_pool *p); /* frees the engine's struct; no thread runs */
        pthread_mutex_t lock;                 /* of what follows */
        pthread_cond_t wake;                  /* a thread: work, or the end */
        pthread_cond_t news;                  /* for close(): a thread has ended */
        struct list_link todo, done;
        unsigned n_running;
        bool is_stopping;

        pthread_t threads[DISK_THREADS];
        unsigned n_threads; /* that were started */
};

/* Initializes a zeroed pool. `ops` has disk_pool_submit(), disk_pool_reap(), disk_pool_close(). */
void disk_pool_init(struct disk_pool *p, const struct disk_engine_ops *ops, int fd, int event_fd);

/* Starts n threads. Returns 0; -errno, after which the pool is released. */
int disk_pool_start(struct disk_pool *p, unsigned n, void *(*run)(void *));

/* In a thread: an operation is done; the thread ends. */
void disk_pool_finish(struct disk_pool *p, struct disk_op *op);
void disk_pool_leave(struct disk_pool *p);

/* struct disk_engine_ops. */
void disk_pool_submit(struct disk_engine *e, struct disk_op *op);
void disk_pool_reap(struct disk_engine *e, struct list_link *ret_done);
bool disk_pool_close(struct disk_engine *e, unsigned msec);

/* Runs the operation and its `check`; blocks. */
void disk_op_run(int fd, struct disk_op *op);

/* Records a transfer of `r` bytes, or -errno. Returns true if the operation has ended, with
 * op->result; false: iov and offset are at the rest. */
bool disk_op_moved(struct disk_op *op, int64_t r);

/* Does a ZERO in several calls, if the file system can't in one (-EOPNOTSUPP). Returns 0 or
 * -errno. */
int disk_zero_otherwise(int fd, uint64_t offset, uint64_t bytes);

/* Checks after a FLUSH that the file still has its name and size. Returns 0, -ENOENT, -ENODATA,
 * another -errno. */
int disk_file_is_whole(int fd, uint64_t bytes);

void disk_ring(int event_fd);

#endif
