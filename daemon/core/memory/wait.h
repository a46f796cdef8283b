/*
 * Leases that wait for memory, or for a device that is making it. policy/admission.h decides the
 * order. The server keeps the requests (parked.h), retries them in the order of wait_order(), and
 * calls lease_call_off() for clients that don't wait any more.
 *
 *   lease_ask() -> -EINPROGRESS -> (something changed, or its deadline) -> lease_ask() again -> ...
 *
 * A lease that waits for memory holds none: it gets all pages at once. One that waits for a device
 * has the sets that are being made for it. While a lease waits for the dynamic pool of a device,
 * later ones get nothing from that pool. Leases within a reservation don't wait for others. Loop
 * thread only.
 */
#ifndef KVL_CORE_WAIT_H
#define KVL_CORE_WAIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/core/state/group.h"
#include "daemon/core/memory/region.h"

struct attach;
struct ns;
struct pool;
struct store;

/* A lease of n pages arrives, after all others. It isn't waiting yet, but may have to. */
void wait_arrive(struct attach *a, uint32_t n, uint64_t deadline_nsec);

/* Returns the bytes to bind for the attachment's lease beside the FREE pages. Requires
 * wait_arrive(). */
uint64_t wait_lacks_bytes(const struct attach *a);

/* The attachment's lease begins to wait for n pages, for `reason`. Requires wait_arrive(); it must
 * not wait already. */
void wait_begin(struct attach *a, uint32_t n, enum lease_reason reason);

/* The attachment's lease is retried or stops waiting. Returns true if it did wait. */
bool wait_end(struct attach *a);

/* Returns the earliest deadline of all waiting leases; UINT64_MAX: none. O(waiting). */
uint64_t wait_deadline(const struct store *s);

/* Does any lease wait for memory? Memory can become free without notice (pins in segments). */
bool wait_any_for_room(const struct store *s);

/* Stores the first `max` waiting leases, in the order of retries, and returns how many it stored.
 * `pool` NULL: those of all pools. O(n log n), n waiting. Unordered if there is no memory to sort.
 */
uint32_t wait_order(struct store *s, const struct pool *pool, struct attach **ret, uint32_t max);

/* Does no lease that waits come before `a`? Then `a` may take from the dynamic pool, or bind more
 * under its tenant's limit. A lease that waits for QUOTA or RESERVATION comes before leases of its
 * own tenant only. A lease that waits for the pool beyond its fair share comes only before others
 * beyond theirs. `a` was passed to wait_arrive(), or waits. O(waiting); O(1) if none waits. */
bool wait_is_next(const struct attach *a);

/* Returns a lease that waits for memory in a's namespace and comes before a: FREE pages there
 * belong to it. If the tenant queues (when_full), leases that wait for a device count, too: the
 * sets made for a lease are its own. NULL: none. O(1) if no lease waits there. */
const struct attach *wait_before(const struct attach *a);

/* Memory became free: calls store.owner.on_room if any lease waits. */
void wait_wake(struct store *s);

#endif
