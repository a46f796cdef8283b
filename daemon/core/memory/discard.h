/*
 * Gives host memory back to the system. Unmapping a set and freeing its memory takes a millisecond
 * for some megabytes, so a thread does it while the loop handles requests. Such an extent isn't
 * reused, so no allocation waits for it. A GPU's memory is freed by its queue instead.
 *
 * Clients had the files and may have kept them. A client that writes into one from memory that it
 * never delivers blocks the process that frees the file's memory. So struct discard_ops (the
 * server's reaper) empties the files first, if it is set. Then the thread, or the device's queue,
 * gets a set with empty files.
 *
 *   discard:  submitted -> going (its files are being emptied) -> empty -> unmapped and closed
 *                  \              \-> held up (DISCARD_HELD_NSEC) -/   (the kernel refuses to empty
 *                  \                  them, as they are immutable: retried while the tenant has
 *                  \                  clients)
 *                   \-> (no discard_ops) emptied, unmapped and closed by the thread
 *
 * Memory that is being freed is charged to no account: it takes a moment. Memory that is held up is
 * charged to its tenant again, beyond the tenant's limit if necessary, as far as the device has
 * budget. Sets that such a tenant frees meanwhile stay charged from the start. So a tenant can't
 * have memory twice for long.
 *
 * Threads: all functions from one (the loop).
 */
#ifndef KVL_CORE_DISCARD_H
#define KVL_CORE_DISCARD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/state/store.h"

struct device_arena;
struct discards;
struct extent;
struct job;
struct queue;
struct tenant;

/* Extents in the queue, each with an open file; a set with more is queued whole. Not tuned. */
#define DISCARDS_MAX 8

/* Memory that isn't held up is freed long before this: in a millisecond, on a busy machine within
 * some hundred. Not tuned. */
#define DISCARD_HELD_NSEC UINT64_C(1000000000)

/* Initializes a zeroed struct. */
void discards_init(struct discards *d);

/* Starts the thread. Returns 0; -EAGAIN: there is no thread, and memory is freed at once. */
int discards_start(struct discards *d);

/* Sets the functions that empty files, borrowed. Call it before any discard_submit(). */
void discards_set_ops(struct discards *d, const struct discard_ops *ops, void *data);

/* Finishes `ops`, then ends the thread once all memory is freed. With ops, later discards leave
 * their files as they are. Idempotent. */
void discards_stop(struct discards *d);

/* Charges memory that is held up and retries refused files. Returns true while files are being
 * emptied: call it about every DISCARD_HELD_NSEC while it does, and after discard_submit(). */
bool discards_look(struct discards *d, uint64_t now_nsec);

/* Makes the discards of a tenant that is being freed ownerless. */
void discards_leave_tenant(struct discards *d, const struct tenant *t);

/* Makes a discard with space for n extents and its field `n` 0. NULL: no memory. */
struct discard *discard_new(uint32_t n);

/* Takes ownership of a discard whose set is given to no client any more. Frees the memory before it
 * returns if there is no thread or its queue is full, unless files are being emptied. */
void discard_submit(struct discards *d, struct discard *what);

/* Makes the discard of a tenant that is being freed ownerless. */
void discard_leave_tenant(struct discard *what);

/* Do sets that the tenant frees stay charged for a while? */
bool discard_is_charged(const struct tenant *t);

#endif
