/*
 * Work on files, off the loop: jobs run one after another, in the order they came, in a thread of
 * libuv's pool. Loop thread only, but for run(). What is waiting when the loop is closed is run
 * before that: uv_run() has it as active.
 */
#ifndef KVL_SERVER_DISK_H
#define KVL_SERVER_DISK_H

#include <stdbool.h>

#include <uv.h>

#include "base/list.h"

struct disk_job {
        struct list_link link;
        /* In another thread: touches what the job names and nobody else changes meanwhile. */
        void (*run)(struct disk_job *job);
        /* In the loop thread, after that: the job is its maker's again. */
        void (*done)(struct disk_job *job);
};

struct disk {
        uv_loop_t *loop;          /* borrowed */
        struct list_link jobs;    /* struct disk_job.link */
        struct disk_job *running; /* the first of them; NULL: none */
        uv_work_t work;
};

/*
 * Starts the pool, which has one thread: libuv would do it with the first job, and abort where
 * there can be no thread. Waits until it works. Once, before any other thread is started (it
 * changes the environment). 0 or -errno: there may be none.
 */
int disk_start(void);

void disk_init(struct disk *d, uv_loop_t *loop);

/* Borrows the job until done() is called. Never fails. */
void disk_do(struct disk *d, struct disk_job *job);

#endif
