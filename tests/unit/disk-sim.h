/*
 * An engine for tests (daemon/tier/disk-engine.h) that runs in the calling thread: operations wait
 * until the test lets one of them happen. It knows the bytes of a disk after a power cut: all that
 * a FLUSH covered, and any part of the rest, in any order. Fails the test if two operations write
 * the same bytes at the same time, because their order is undefined.
 */
#ifndef KVL_TESTS_DISK_SIM_H
#define KVL_TESTS_DISK_SIM_H

#include "daemon/tier/disk-engine.h"

enum sim_tear { SIM_WHOLE, SIM_PAGES /* 4 KiB */, SIM_SECTORS /* 512 */, SIM_HEADS, N_SIM_TEARS };

/* A write that may reach the disk, or not. */
struct sim_write {
        struct list_link link;
        struct disk_op *op; /* under way; NULL: it is done */
        uint64_t offset, len;
        bool in_flush; /* done before the FLUSH that is under way began */
        char data[];
};

struct sim {
        struct disk_engine engine;
        int fd, event_fd; /* borrowed */
        bool is_manual;   /* operations wait for sim_step(); otherwise they happen at once */
        bool knows_power; /* keeps what follows */
        uint64_t bytes;
        char *durable;            /* owned: the disk after what was flushed */
        struct list_link writes;  /* struct sim_write */
        struct list_link waiting; /* operations */
        struct list_link done;
        unsigned n_waiting;
        /* Kinds of operations, by bit, that fail with `error`. */
        unsigned fails;
        int error;
        unsigned n_flushes;
};

/* 0..n-1: which operation happens, and what a cut leaves. Before anything else. */
void sim_set_random(uint32_t (*random_below)(uint32_t n));

/* A disk_engine_start_fn; data: struct sim, with is_manual and knows_power set. */
int sim_start(int fd, int event_fd, unsigned depth, void *data, struct disk_engine **ret_engine);

/* One of the operations that wait happens, whichever; false: none waits. */
bool sim_step(struct sim *s);

/* All happen. */
void sim_run(struct sim *s);

/* Returns the bytes of the disk after a power cut now, owned by the caller. part: share of the
 * unflushed bytes that reached the disk, in 256ths. */
char *sim_cut(struct sim *s, enum sim_tear tear, unsigned part);

#endif
