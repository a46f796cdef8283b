/*
 * Leases that wait: for room, or for a device that makes it. Which one is next is decided by
 * policy/admission.h. Knows no peer: the server keeps the request (parked.h), runs it again in the
 * order that wait_order() gives, and calls lease_call_off() where nobody waits any more.
 *
 *   lease_ask() -> -EINPROGRESS -> (something changed, or its deadline) -> lease_ask() again -> ...
 *
 * A lease that waits for room holds nothing: it is atomic. (One that waits for a device has the
 * sets that are being made for it.) While one waits for the dynamic pool of a device, those after
 * it in the order get nothing from that pool; within a reservation nobody waits for anybody. Loop
 * thread only.
 */
#ifndef KVL_CORE_WAIT_H
#define KVL_CORE_WAIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/core/objects/wait.h"
#include "daemon/core/quota/region.h"

struct attach;
struct ns;
struct pool;
struct store;

/* A lease of n pages comes that may have to wait: now, after all others. It doesn't wait. */
void wait_arrive(struct attach *a, uint32_t n, uint64_t deadline_nsec);

/* What would have to be bound for it, beside the FREE pages there are. wait_arrive() was called for
 * it. */
uint64_t wait_lacks_bytes(const struct attach *a);

/* The attachment's lease waits for n pages, for `reason`. It didn't wait; wait_arrive() was called
 * for it. */
void wait_begin(struct attach *a, uint32_t n, enum lease_reason reason);

/* The attachment's lease doesn't wait any more, or is tried again. True where it did wait. */
bool wait_end(struct attach *a);

/* The earliest deadline of all that wait; UINT64_MAX. O(waiting). */
uint64_t wait_deadline(const struct store *s);

/* Does anybody wait for room? What makes room can go without a word (pins in segments). */
bool wait_any_for_room(const struct store *s);

/*
 * Those that wait, in the order in which they are to be tried: the first `max` into ret. Their
 * number. `pool` NULL: of all. O(n log n), n waiting. Without memory for that: in any order.
 */
uint32_t wait_order(struct store *s, const struct pool *pool, struct attach **ret, uint32_t max);

/*
 * May `a` take from the dynamic pool, or bind more under its tenant's limit, or does somebody come
 * before it who waits for that? Who waits for a QUOTA or a RESERVATION comes before its own
 * tenant's only; who waits for the pool beyond its fair share comes before others beyond theirs
 * only. `a` was passed to wait_arrive(), or waits. O(waiting); O(1) where nobody waits.
 */
bool wait_is_next(const struct attach *a);

/*
 * Who waits for room in a's namespace and comes before a: FREE pages there are theirs. Where the
 * tenant queues (when_full), so does who waits for a device: what was made for it is its own. NULL:
 * nobody. O(1) where nobody waits there.
 */
const struct attach *wait_before(const struct attach *a);

/* Something came free that somebody may wait for: store.owner.on_room is told, if anybody waits. */
void wait_wake(struct store *s);

#endif
