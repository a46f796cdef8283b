/*
 * The epochs of namespaces: random numbers that all hosts get from the store. exchange.h describes
 * them. Loop thread only.
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

/* ---- changes: exchange-change.c -------------------------------------------------------------- */

/* The log of invalidations that hosts share (format/change.h): operations that write and read
 * changes of an epoch, and repeat other hosts' changes here. */

/* How long the store keeps an epoch, or a change, that isn't read: the longest time possible
 * (remote.h). A lost epoch costs the pages exported under it. After a lost change, a host that was
 * away meanwhile keeps invalidated pages. */
#define EPOCH_EXPIRY_MSEC (UINT64_C(365) * 24 * 3600 * 1000)

/* The first makes an operation that writes p->changes.sent, if there is no change at p->changes.at;
 * the second, one that reads the change there. NULL: no memory. */
struct exchange_io *change_write_new(struct exchange_epoch *p);
struct exchange_io *change_read_new(struct exchange_epoch *p);

/* Takes the result of a read that has ended with 0 as p->changes.coming. Returns false if it isn't
 * a change: it is removed from the store. */
bool change_take(struct exchange_epoch *p, const struct exchange_io *io);

/* Applies the coming change here, in all namespaces that have the epoch. Returns false if a part is
 * left. */
bool change_follow(struct exchange_epoch *p);

/* Were all pages of applied changes dropped? */
bool change_is_over(const struct exchange_epoch *p);

#endif
