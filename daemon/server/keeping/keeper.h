/*
 * Leaves descriptors with whoever started this process ($NOTIFY_SOCKET: systemd, or kvleased
 * --keep), by the protocol of sd_notify(3), and has those of the process before this one.
 *
 *   added: ordered -> sent, by a thread of its own -> kept, when a barrier behind it has passed
 *   dropped: ordered -> sent
 *
 * Orders go out one after the other; all that are there go out together, with one barrier behind
 * them. Who waits for long enough calls the keeper *late*: nobody waits any more, until a barrier
 * passes. No two names may be of one open file (a dup() of the other): systemd would keep one.
 *
 * Threads: keeper_add(), keeper_drop() and keeper_wait() from any, the rest from the loop's.
 */
#ifndef KVL_SERVER_KEEPER_H
#define KVL_SERVER_KEEPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/core/ground/keep.h"

struct keeper;
struct detail;

struct keeper_options {
        uint32_t max;             /* descriptors that are kept at most */
        uint64_t max_open;        /* open files that they may be, in the process after this one */
        size_t other_names_bytes; /* of the names of sockets beside them, each with its ':' */
        unsigned patience_msec;   /* until it is late */
        void (*on_passed)(void *data); /* in the keeper's thread: a barrier has passed */
        void *data;                    /* borrowed */
};

/* Starts the thread. 0 with an owned keeper, -errno. */
int keeper_new(const struct keeper_options *o, struct keeper **ret_keeper);

/*
 * Sends what is left of the orders and ends the thread; nothing is dropped by that. Orders that
 * come later go nowhere. False: it is stuck in a call (the service manager hangs): it isn't to be
 * freed, and the process should end by _exit().
 */
bool keeper_stop(struct keeper *k);

/* Stopped, and no thread uses it any more. Closes what nobody took. NULL: nothing. */
void keeper_free(struct keeper *k);

/* What the process before this one left, before anything is added. Takes the descriptor in any
 * case. 0 or -ENOMEM. Of several of one name the first counts. */
int keeper_inherit(struct keeper *k, enum keep_kind kind, uint32_t number, int fd);

/*
 * Orders that a duplicate of `fd` is kept. The name isn't kept yet. 0: *ret_ticket (may be NULL)
 * says how far a barrier must get; -EMFILE, -ENOMEM with the sentence: nothing was ordered.
 */
int keeper_add(struct keeper *k, enum keep_kind kind, uint32_t number, int fd, uint64_t *ret_ticket,
        struct detail *d);

/* Nothing where it isn't kept. What is inherited and wasn't taken stays open. */
void keeper_drop(struct keeper *k, enum keep_kind kind, uint32_t number);

/* Blocks until all is kept that was added before. 0; -ETIMEDOUT with the sentence: it is late. */
int keeper_wait(struct keeper *k, struct detail *d);

/* What was added up to this ticket is kept; UINT64_MAX: the keeper is late. */
uint64_t keeper_passed(const struct keeper *k);

/* The loop has waited long enough. */
void keeper_give_up(struct keeper *k);
bool keeper_is_late(const struct keeper *k);

/* What take() and list() of struct keep_ops (daemon/core/ground/keep.h) are. */
int keeper_take(struct keeper *k, enum keep_kind kind, uint32_t number);
uint32_t keeper_list(struct keeper *k, enum keep_kind kind, uint32_t *ret_numbers, uint32_t max);

/* Drops and closes what nobody took. How many. */
uint32_t keeper_release_rest(struct keeper *k);

/* Is there room for `n` more, when all n_extents are kept that there are or that are being made? 0,
 * or -EMFILE with the sentence. */
int keeper_admit(struct keeper *k, uint64_t n_extents, uint32_t n, struct detail *d);

/* Kept, or on the way: all; extents. */
uint32_t keeper_count(struct keeper *k);
uint32_t keeper_count_extents(struct keeper *k);

/* How many can be kept, whatever their names are. */
uint64_t keeper_room(const struct keeper *k);

#endif
