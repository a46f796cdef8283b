/*
 * Keeps descriptors for a store (daemon/core/state/keep.h). They are in the test's own process. For
 * a store that is killed, another process keeps them at the other end of a socket.
 */
#ifndef KVL_TESTS_FAKE_KEEP_H
#define KVL_TESTS_FAKE_KEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/state/keep.h"

#define FAKE_KEEP_MAX 4096

struct fake_kept {
        enum keep_kind kind;
        uint32_t number;
        int fd;      /* owned */
        bool is_old; /* was left by the store before, and not taken yet */
};

struct fake_keep {
        struct fake_kept kept[FAKE_KEEP_MAX];
        uint32_t n;
        uint32_t room;    /* no more than these are taken; FAKE_KEEP_MAX at first */
        int sends_to;     /* a child's: what is ordered goes there, too. -1: nowhere */
        struct keep keep; /* for store.keep */
};

void fake_keep_init(struct fake_keep *k);

/* Closes everything. */
void fake_keep_deinit(struct fake_keep *k);

/* Another store begins: what is there is what was left. */
void fake_keep_restart(struct fake_keep *k);

/* Adds a descriptor as if an earlier store had left it; takes the descriptor. */
void fake_keep_leave(struct fake_keep *k, enum keep_kind kind, uint32_t number, int fd);

/* How many of a kind are there. */
uint32_t fake_keep_count(const struct fake_keep *k, enum keep_kind kind);

/* The descriptor; borrowed; -1: none. */
int fake_keep_find(const struct fake_keep *k, enum keep_kind kind, uint32_t number);

/* In the root that is kept: clients may have been told of what wasn't (state_root.is_unsure). */
void fake_keep_set_unsure(const struct fake_keep *k);

/*
 * Runs fn(data, k) in a child, which may be killed at a fault point (KVL_FAULT_POINT and
 * KVL_FAULT_PASS of its environment). k then has the descriptors that the child stored until then.
 * Returns the child's wait status. fn never returns to the test: the child ends after it.
 */
int fake_keep_fork(struct fake_keep *k, const char *point, unsigned pass,
        void (*fn)(struct fake_keep *k, void *data), void *data);

#endif
