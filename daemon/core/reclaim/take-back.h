/*
 * Memory is taken back from who has more than its part, for reservations and for who deserves it.
 * What each may have is asked of quota/region.h, which changes nothing. Loop thread only.
 */
#ifndef KVL_CORE_TAKE_BACK_H
#define KVL_CORE_TAKE_BACK_H

#include <stdbool.h>
#include <stdint.h>

struct claim;
struct detail;
struct ns;
struct pool;
struct stake;

/*
 * Finds memory for a stake that is within its reservation, or deserves `bytes` more by fair share;
 * nothing is done where it is neither. Unmapped sets of who is furthest over go at once; of mapped
 * ones whose clients all keep safe points as many are recalled as are missing of stake.wanted_bytes
 * (soft: recall.h). region_note_want() was called. Nothing of `spare` goes (NULL: none). True where
 * bytes are admitted for the claim now.
 */
bool region_make_room(
        struct stake *s, const struct ns *spare, uint64_t bytes, const struct claim *claim);

/*
 * Reserves `bytes`, rounded up to extent_bytes, for the stake. 0; -ENOSPC: it doesn't fit the
 * budget beside the other reservations, with a sentence that says how much is left and who holds
 * it. Takes effect at once; memory that others hold of it is taken back by region_work().
 */
int region_reserve(struct stake *s, uint64_t bytes, struct detail *d);

/*
 * Takes back what is missing of reservations, and of lent ones what is wanted: unmapped sets of who
 * is furthest over at once; mapped ones are recalled, softly where all clients keep safe points,
 * else with a deadline, which a soft recall gets, too, where it takes more than a second. Cheap
 * where nothing is missing.
 */
void region_work(struct pool *pool);

#endif
