/*
 * The epochs of namespaces: random numbers that all hosts get from the store. exchange.h
 * describes them. Loop thread only.
 */
#ifndef KVL_EXCHANGE_EXCHANGE_EPOCH_H
#define KVL_EXCHANGE_EXCHANGE_EPOCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "daemon/exchange/exchange.h"

/* An epoch is read again after this time, known or not: other hosts' invalidations are known here
 * then. */
#define EPOCH_AGAIN_NSEC (NSEC_PER_SEC)

/* Returns the epoch that the namespace shares with others of its set, or makes one. e is counted as
 * one of its namespaces; e's id is set before. NULL: no memory. */
struct exchange_epoch *epoch_get(struct exchange_ns *e);

/* Restores the state of the epoch from the records of e's namespace, after a restart. e is in its
 * exchange's list. */
void epoch_recall(struct exchange_ns *e);

/* e doesn't use the epoch any more. The epoch is freed with the last namespace. If it must change,
 * epoch_work() continues until it has, and frees it then. */
void epoch_put(struct exchange_ns *e);

/* Frees all epochs; no namespace has one any more. Changes that are due are sent once more. */
void epochs_end(struct exchange *x);

/* Makes an operation that reads the epoch. NULL: no memory. */
struct exchange_io *epoch_read_new(struct exchange_epoch *p);

/* Takes in the epoch that `io`, which is over, has read. Returns 0: it is known, and is the
 * store's; -ENOENT: the store has none, and so no page; -ESTALE: it is about to change, or has
 * changed since the read; else the reason why it is unknown. */
int epoch_take(struct exchange_epoch *p, const struct exchange_io *io);

/* Notes an invalidation: no page is imported or exported before the store has a new epoch. First
 * the invalidation, then the epoch is written, at once and until that succeeds. */
void epoch_change(struct exchange_epoch *p, const struct change_item *what);

/* Reads the epoch if the last read is older than EPOCH_AGAIN_NSEC: another host may have changed
 * it, and pages under the old one can't be found. Returns true if it is known, and the caller
 * needn't wait. */
bool epoch_refresh(struct exchange_epoch *p);

/* Continues; returns when to call it again, or UINT64_MAX. Reads the epoch every EPOCH_AGAIN_NSEC,
 * and applies other hosts' invalidations. It may free the epoch. */
uint64_t epoch_work(struct exchange_epoch *p);

#endif
