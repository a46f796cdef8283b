/*
 * The log of invalidations that hosts share (format/change.h): operations that write and
 * read changes of an epoch, and repeat other hosts' changes here. exchange-epoch.c decides when to
 * begin which. Loop thread only.
 */
#ifndef KVL_EXCHANGE_EXCHANGE_CHANGE_H
#define KVL_EXCHANGE_EXCHANGE_CHANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/exchange/exchange.h"

struct exchange_io;

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
