/*
 * What hosts tell each other of what they invalidate (daemon/exchange/change.h): operations that
 * write and read changes of an epoch, and what this host does after others. When which of them is
 * begun: exchange-epoch.c. Loop thread only.
 */
#ifndef KVL_CORE_EXCHANGE_CHANGE_H
#define KVL_CORE_EXCHANGE_CHANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/objects/exchange.h"

struct exchange_io;

/* So long the store keeps an epoch, or a change, that nobody reads: the longest there is
 * (remote.h). Losing an epoch costs what was exported under it; losing a change, that a host which
 * was away meanwhile keeps what was invalidated. */
#define EPOCH_EXPIRY_MSEC (UINT64_C(365) * 24 * 3600 * 1000)

/* An operation that writes p->changes.sent, where nobody has written one at p->changes.at; one that
 * reads the one that lies there. NULL: no memory. */
struct exchange_io *change_write_new(struct exchange_epoch *p);
struct exchange_io *change_read_new(struct exchange_epoch *p);

/* Of one that reads and is over, with result 0: it is p->changes.coming from now on. False: what
 * lies there is none, and goes from there. */
bool change_take(struct exchange_epoch *p, const struct exchange_io *io);

/* What is coming is done here, in all namespaces that have the epoch. False: not all of it yet. */
bool change_follow(struct exchange_epoch *p);

/* All that was followed has gone. */
bool change_is_over(const struct exchange_epoch *p);

#endif
