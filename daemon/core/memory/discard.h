/*
 * Memory of the host on its way back to the system. To unmap a set and to give its memory back
 * takes a millisecond for some megabytes, and requests would wait for it: a thread does it. Nobody
 * else ever gets such an extent, so nothing waits for it either. A GPU's memory goes back on its
 * queue instead.
 *
 * Clients had the files, and may have kept them: who writes into one, from memory that it never
 * delivers, keeps whoever gives the file's memory back waiting. So where there is somebody for it
 * (struct discard_ops: the server's reaper) the memory is given back there, and the thread, or the
 * device's queue, gets a set whose files are empty.
 *
 *   discard:  submitted -> going (its files are being emptied) -> empty -> unmapped and closed
 *                 \              \-> held up (DISCARD_HELD_NSEC) -/   (the kernel refuses to empty
 *                 \                  them, as they are immutable: again and again, while its tenant
 *                 \                  has clients)
 *                  \-> (nobody empties files) emptied, unmapped and closed by the thread
 *
 * What goes is charged to nobody: it is gone in a moment. What is held up is charged to its tenant
 * again as far as its device has room, also beyond the tenant's limit, and so is, from the
 * beginning, what the tenant lets go of meanwhile: so memory can't be had twice for long.
 *
 * Threads: all functions from one (the loop).
 */
#ifndef KVL_CORE_DISCARD_H
#define KVL_CORE_DISCARD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/objects/discard.h"

struct device_arena;
struct discards;
struct extent;
struct job;
struct queue;
struct tenant;

/* Extents that wait, each with its file open; of a set that has more, all. Not tuned. */
#define DISCARDS_MAX 8

/* What nobody holds up is gone long before: in a millisecond, and on a machine that is busy with
 * other programs within some hundred. Not tuned. */
#define DISCARD_HELD_NSEC UINT64_C(1000000000)

/* All zero before. */
void discards_init(struct discards *d);

/* Starts the thread. 0; -EAGAIN: there can be none, and everything goes at once. */
int discards_start(struct discards *d);

/* From now on files are emptied by these. Borrowed. Nothing was submitted yet. */
void discards_set_ops(struct discards *d, const struct discard_ops *ops, void *data);

/* Finishes with `ops`, ends the thread when all is given back. What comes later is let go of as it
 * is where there were ops. Safe to repeat. */
void discards_stop(struct discards *d);

/* Time goes on: what is held up is charged. To be called about every DISCARD_HELD_NSEC while it
 * returns true, and after discard_submit(): something is going. */
bool discards_look(struct discards *d, uint64_t now_nsec);

/* The tenant goes; what is on its way is nobody's. */
void discards_leave_tenant(struct discards *d, const struct tenant *t);

/* Room for n extents, `n` is 0. NULL: no memory. */
struct discard *discard_new(uint32_t n);

/* Takes `what`, which nobody is handed any more. Where there is no thread, or it has enough to do,
 * it has gone when this returns, unless it is going. */
void discard_submit(struct discards *d, struct discard *what);

/* The tenant of what is discarded goes: it is nobody's. */
void discard_leave_tenant(struct discard *what);

/* Is whatever the tenant lets go of to stay charged for a while? */
bool discard_is_charged(const struct tenant *t);

#endif
