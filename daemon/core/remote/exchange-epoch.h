/*
 * The epochs of namespaces: random numbers that all hosts have from the store. exchange/exchange.h
 * says what they are for. Loop thread only.
 */
#ifndef KVL_CORE_EXCHANGE_EPOCH_H
#define KVL_CORE_EXCHANGE_EPOCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "daemon/core/objects/exchange.h"

/* An epoch is read again after so long, known or not: what another host invalidates is known here
 * then. */
#define EPOCH_AGAIN_NSEC (NSEC_PER_SEC)

/* Finds the one that the namespace has with others of its set, or makes one; e counts as one of its
 * namespaces from then on, and has its id already. NULL: no memory. */
struct exchange_epoch *epoch_get(struct exchange_ns *e);

/* e, which is one of its exchange's namespaces by now: what was known of the epoch before a
 * restart, and the namespace's records have, is known here. */
void epoch_recall(struct exchange_ns *e);

/* e is none of them any more. The epoch goes with the last one; where it must change, as soon as it
 * has: that goes on in epoch_work(). */
void epoch_put(struct exchange_ns *e);

/* All of them go, no namespace has one any more. What must change is sent once more. */
void epochs_end(struct exchange *x);

/* An operation that reads it. NULL: no memory. */
struct exchange_io *epoch_read_new(struct exchange_epoch *p);

/* Learns what `io`, which is over, has read. 0: it is known, and is the store's; -ENOENT: the store
 * has none, so it has no page either; -ESTALE: it is about to change, or has changed since it was
 * read; else why it isn't known. */
int epoch_take(struct exchange_epoch *p, const struct exchange_io *io);

/* That was invalidated: nothing is imported or exported before the store has another epoch, which
 * is written at once, and again until it was; and before that what it was that was invalidated. */
void epoch_change(struct exchange_epoch *p, const struct change_item *what);

/* Asks for the epoch where it was asked for longer than EPOCH_AGAIN_NSEC ago: another host may have
 * changed it, and what is written under the one before is found by nobody. True: it is known, and
 * needn't be waited for. */
bool epoch_refresh(struct exchange_epoch *p);

/* Goes on; when it is to be called again, or UINT64_MAX. Reads the epoch every EPOCH_AGAIN_NSEC,
 * and follows what other hosts have invalidated. It may be gone then. */
uint64_t epoch_work(struct exchange_epoch *p);

#endif
