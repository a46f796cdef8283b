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

/* An epoch that couldn't be had is asked for again; one that an exporter knows for so long is read
 * again. Not tuned. */
#define EPOCH_AGAIN_NSEC (NSEC_PER_SEC)

/* Finds the one that the namespace has with others of its set, or makes one; e counts as one of its
 * namespaces from then on, and has its id already. NULL: no memory. */
struct exchange_epoch *epoch_get(struct exchange_ns *e);

/* e, which is one of its exchange's namespaces by now: what was known of the epoch before a
 * restart, and the namespace's records have, is known here. */
void epoch_recall(struct exchange_ns *e);

/* e is none of them any more; it goes with the last one. Where it is being changed that goes on. */
void epoch_put(struct exchange_ns *e);

/* An operation that reads it. NULL: no memory. */
struct exchange_io *epoch_read_new(struct exchange_epoch *p);

/* What it has read; 0: nothing that counts. */
uint64_t epoch_of(const struct exchange_io *io);

/* Learns what `io`, which is over, has read. 0: it is known, and is the store's; -ENOENT: the store
 * has none, so it has no page either; -ESTALE: it is about to change; else why it isn't known. */
int epoch_take(struct exchange_epoch *p, const struct exchange_io *io);

/* What is there instead of an epoch is none. */
void epoch_note_refused(struct exchange_epoch *p);

/* This is what the store has. True: it is another one than was known here. Where it is the one that
 * was known before a restart nothing was invalidated meanwhile, and it counts as known since then.
 */
bool epoch_learn(struct exchange_epoch *p, uint64_t number);

/* Something was invalidated: nothing is imported or exported before the store has
 * another epoch, which is written at once, and again until it was. */
void epoch_change(struct exchange_epoch *p);

/* Asks for the epoch where it was asked for longer than EPOCH_AGAIN_NSEC ago: another host may have
 * changed it, and what is written under the one before is found by nobody. True: it is known, and
 * needn't be waited for. */
bool epoch_refresh(struct exchange_epoch *p);

/* Goes on; when it is to be called again, or UINT64_MAX. */
uint64_t epoch_work(struct exchange_epoch *p);

#endif
