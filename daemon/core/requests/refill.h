/*
 * Refills a client's magazine: makes space for its pages as for a lease. clients/grants.h
 * describes magazines, and puts and takes pages. Loop thread only.
 */
#ifndef KVL_CORE_REFILL_H
#define KVL_CORE_REFILL_H

#include <stdbool.h>
#include <stdint.h>

struct attach;

/*
 * Fills the magazine up to the level, or by `wanted` pages if that is more, as far as FREE pages,
 * limit and budget allow. Idle cached pages of the namespace are evicted only for the level, once
 * it has grown; other namespaces' never are. Does nothing if it was filled at this same time.
 * Doubles the level if the last refill was a moment ago, and halves it for each second since.
 * Clears refill_asked. Returns as magazine_sync().
 */
bool magazine_refill(struct attach *a, uint32_t wanted, uint64_t now_nsec);

/* Sets that a refill lacked were made: fills the magazine as far as that refill would have. */
void magazine_top_up(struct attach *a, uint64_t now_nsec);

#endif
