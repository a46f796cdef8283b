/*
 * A client's magazine is filled again: room is made for its pages as for a lease's. What a magazine
 * is, and how pages are put into it and taken back: clients/magazine.h. Loop thread only.
 */
#ifndef KVL_CORE_REFILL_H
#define KVL_CORE_REFILL_H

#include <stdbool.h>
#include <stdint.h>

struct attach;

/*
 * Fills it up to the level, or by `wanted` pages where that is more, as far as FREE pages, limit
 * and budget go. Idle cached pages of the namespace give way for the level alone, once that has
 * grown; other namespaces never. Nothing where it was filled at this very time already.
 * The level doubles where the last refill was a moment ago and halves for each second since then.
 * Clears refill_asked. Returns what magazine_settle() does.
 */
bool magazine_refill(struct attach *a, uint32_t wanted, uint64_t now_nsec);

/* Sets that it was short of were made: fills it as far as the refill that was short would have. */
void magazine_top_up(struct attach *a, uint64_t now_nsec);

#endif
