/*
 * Client of the descriptor store that started this process ($NOTIFY_SOCKET: systemd, or kvleased
 * --keep), by the protocol of sd_notify(3). It also has the descriptors that the previous process
 * stored.
 *
 *   added: ordered -> sent, by a thread of its own -> kept, when a barrier behind it has passed
 *   dropped: ordered -> sent
 *
 * Orders go out in sequence; all pending ones are sent together, with one barrier behind them. A
 * caller that has waited long enough declares the store *late*: no caller waits then until a
 * barrier passes. No two names may be of one open file (a dup() of the other): systemd would keep
 * one.
 *
 * Threads: keeper_add(), keeper_drop() and keeper_wait() from any, the rest from the loop's.
 */
#ifndef KVL_SERVER_KEEPER_H
#define KVL_SERVER_KEEPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/core/state/keep.h"

struct keeper;
struct detail;

struct keeper_options {
        uint32_t max;                  /* descriptors that are kept at most */
        uint64_t max_open;             /* open files that the next process may have */
        size_t other_names_bytes;      /* of the names of sockets beside them, each with its ':' */
        unsigned patience_msec;        /* until it is late */
        void (*on_passed)(void *data); /* in the keeper's thread: a barrier has passed */
        void *data;                    /* borrowed */
};

/* Starts the thread. Returns 0 with an owned keeper, or -errno. */
int keeper_new(const struct keeper_options *o, struct keeper **ret_keeper);

/*
 * Sends the remaining orders and ends the thread; nothing is dropped by that. Later orders are
 * ignored. Returns false if the thread is stuck in a call (the service manager hangs): don't free
 * it, and end the process by _exit().
 */
bool keeper_stop(struct keeper *k);

/* Ends the keeper after it was stopped and no thread uses it. Closes inherited descriptors that
 * were not taken. Nothing for NULL. */
void keeper_free(struct keeper *k);

/* Adds a descriptor that the previous process stored; called before any keeper_add(). Takes fd in
 * any case. The first of several with one name counts. Returns 0 or -ENOMEM. */
int keeper_inherit(struct keeper *k, enum keep_kind kind, uint32_t number, int fd);

/*
 * Orders that a duplicate of `fd` is stored, under a name that isn't stored yet. Returns 0:
 * *ret_ticket (may be NULL) is passed once it is stored; -EMFILE, -ENOMEM with the sentence:
 * nothing was ordered.
 */
int keeper_add(struct keeper *k, enum keep_kind kind, uint32_t number, int fd, uint64_t *ret_ticket,
        struct detail *d);

/* Drops a descriptor from the store; nothing if it isn't there. An inherited one that wasn't taken
 * stays open. */
void keeper_drop(struct keeper *k, enum keep_kind kind, uint32_t number);

/* Blocks until all earlier additions are stored. Returns 0; -ETIMEDOUT with the sentence: the store
 * is late. */
int keeper_wait(struct keeper *k, struct detail *d);

/* The highest ticket up to which all additions are stored; UINT64_MAX: the store is late. */
uint64_t keeper_passed(const struct keeper *k);

/* The loop has waited long enough. */
void keeper_give_up(struct keeper *k);
bool keeper_is_late(const struct keeper *k);

/* Implement take() and list() of struct keep_ops (daemon/core/state/keep.h). */
int keeper_take(struct keeper *k, enum keep_kind kind, uint32_t number);
uint32_t keeper_list(struct keeper *k, enum keep_kind kind, uint32_t *ret_numbers, uint32_t max);

/* Drops and closes inherited descriptors that were not taken. Returns their number. */
uint32_t keeper_release_rest(struct keeper *k);

/* Is there room for `n` more, after all n_extents existing and planned extents are stored? Returns
 * 0, or -EMFILE with the sentence. */
int keeper_admit(struct keeper *k, uint64_t n_extents, uint32_t n, struct detail *d);

/* Number of stored and ordered descriptors: all; extents. */
uint32_t keeper_count(struct keeper *k);
uint32_t keeper_count_extents(struct keeper *k);

/* Descriptors that can be stored, under any names. */
uint64_t keeper_room(const struct keeper *k);

#endif
