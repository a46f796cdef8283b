/*
 * Takes memory back from shares that exceed their share, for reservations and for shares that are
 * entitled to it. memory/region.h computes shares and changes nothing. Loop thread only.
 */
#ifndef KVL_CORE_TAKE_BACK_H
#define KVL_CORE_TAKE_BACK_H

#include <stdbool.h>
#include <stdint.h>

struct claim;
struct detail;
struct ns;
struct pool;
struct pool_share;

/*
 * Finds memory for a share that is within its reservation, or entitled to `bytes` more by fair
 * share; otherwise it does nothing. Frees unmapped sets of the share that exceeds its share most at
 * once. Recalls mapped sets, whose clients all use safe points, for the missing part of
 * share.wanted_bytes (soft: recall.h). Takes nothing of `spare` (NULL: none). Requires
 * region_note_want(). Returns true if `bytes` are admitted for the claim now.
 */
bool region_make_room(
        struct pool_share *s, const struct ns *spare, uint64_t bytes, const struct claim *claim);

/* Reserves `bytes`, rounded up to extent_bytes, for the share. Takes effect at once; region_work()
 * takes the memory back from other shares. Returns 0; -ENOSPC: it doesn't fit the budget beside the
 * other reservations, with a sentence that says how much is left and which tenants hold the rest.
 */
int region_reserve(struct pool_share *s, uint64_t bytes, struct detail *d);

/* Takes back the memory that reservations lack, and lent memory that its owner wants. Frees
 * unmapped sets of the share that exceeds its share most at once. Recalls mapped sets, softly if
 * all clients use safe points, else with a deadline. A soft recall gets a deadline after a second.
 * Cheap if nothing is missing. */
void region_work(struct pool *pool);

#endif
