/*
 * Keeps descriptors for tests whose daemon is a child that dies. The parent has a table, which the
 * child gets by fork(). The child sends each change back at once, as a message. Messages sent
 * before a kill arrive, in order.
 */
#ifndef KVL_TESTS_KEEP_PARENT_H
#define KVL_TESTS_KEEP_PARENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/core/state/keep.h"

#define KEEP_PARENT_MAX 256

struct keep_entry {
        enum keep_kind kind;
        uint32_t number;
        int fd;       /* owned; -1: free */
        bool is_left; /* by the process before, and not taken yet */
};

struct keep_parent {
        struct keep_entry entries[KEEP_PARENT_MAX];
        int fd; /* of the child: to the parent; -1 in the parent */
};

extern const struct keep_ops keep_parent_ops;

void keep_parent_init(struct keep_parent *k);
void keep_parent_deinit(struct keep_parent *k);

/* Another life begins: everything that is kept was left by the one before. */
void keep_parent_begin(struct keep_parent *k);

/* The kept descriptor, borrowed; -1. */
int keep_parent_find(const struct keep_parent *k, enum keep_kind kind, uint32_t number);
unsigned keep_parent_count(const struct keep_parent *k, enum keep_kind kind);

/*
 * Runs fn(data) in a child, for which a life begins, and notes what it keeps until it is dead;
 * kill_after_usec > 0: it is killed then. The child leaves by _exit(fn's). Returns its wait
 * status.
 */
int keep_parent_run(struct keep_parent *k, int (*fn)(struct keep_parent *k, void *data), void *data,
        uint64_t kill_after_usec);

#endif
