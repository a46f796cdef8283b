/*
 * Sums of the parts of pages that lie in memory below the device (ground/codecs.h), so that a copy
 * of some planes can be compared without reading the others. They are set by the first copy of some
 * planes of a page, which compares all of it with the page's own sum, and do for the copies after
 * it. They are the set's, of a generation of its page, and aren't kept over a restart: 8 bytes for
 * each part and page, beside parts that store PART_SUMS_MIN_BYTES or so each. Loop thread only.
 */
#ifndef KVL_CORE_PART_SUMS_H
#define KVL_CORE_PART_SUMS_H

#include <stdbool.h>
#include <stdint.h>

struct extent_set;
struct move_plane;

/* Planes of fewer bytes aren't copied without the others of their page: sums would be more than a
 * five-hundredth of what they are of. */
#define PART_SUMS_MIN_BYTES 4096

/* Those of the page as it is now are known. */
bool part_sums_are_known(const struct extent_set *set, uint32_t page);

/* Those of the page's parts, in their order: borrowed, as long as the set is there. They were known
 * when the caller last asked; of a page that has gone since, they are those of the page that was.
 */
const uint64_t *part_sums_of(const struct extent_set *set, uint32_t page);

/* Notes those of all parts of the page as it is now, which a move has set. Without memory nothing
 * is noted. */
void part_sums_note(struct extent_set *set, uint32_t page, const struct move_plane *parts);

#endif
