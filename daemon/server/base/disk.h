/*
 * Work on files, off the loop: jobs run one after another, in order, in a thread of libuv's pool.
 * Loop thread only, except run(). Jobs that wait when the loop is closed run before that: they keep
 * uv_run() active.
 */
#ifndef KVL_SERVER_DISK_H
#define KVL_SERVER_DISK_H

#include <stdbool.h>

#include <uv.h>

#include "base/list.h"

struct disk_job {
        struct list_link link;
        /* In another thread: touches only data of the job that no other code changes meanwhile. */
        void (*run)(struct disk_job *job);
        /* In the loop thread, after run(): the job is the caller's again. */
        void (*done)(struct disk_job *job);
};

struct disk {
        uv_loop_t *loop;          /* borrowed */
        struct list_link jobs;    /* struct disk_job.link */
        struct disk_job *running; /* the first of them; NULL: none */
        uv_work_t work;
};

/*
 * Starts the pool, which has one thread, and waits until it works. (libuv would start it with the
 * first job, and abort on failure.) Called once, before any other thread is started: it changes the
 * environment. Returns 0 or -errno.
 */
int disk_start(void);

void disk_init(struct disk *d, uv_loop_t *loop);

/* Borrows the job until done() is called. Never fails. */
void disk_do(struct disk *d, struct disk_job *job);

#endif
