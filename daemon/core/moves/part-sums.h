/*
 * Checksums of the parts of pages in lower tiers' memory (state/codecs.h), so that a copy of some
 * planes can be checked without reading the others. The first copy of some planes of a page checks
 * the whole page by its own sum. It sets the sums of the page's parts, which later copies use. They
 * belong to the set, for a generation of its page, and don't survive a restart. They take 8 bytes
 * for each part and page, beside parts of about PART_SUMS_MIN_BYTES or more. Loop thread only.
 */
#ifndef KVL_CORE_PART_SUMS_H
#define KVL_CORE_PART_SUMS_H

#include <stdbool.h>
#include <stdint.h>

struct extent_set;
struct move_plane;

/* Smaller planes aren't copied alone: sums would take more than a five-hundredth of the summed
 * bytes. */
#define PART_SUMS_MIN_BYTES 4096

/* Are the sums of the page's present parts known? */
bool part_sums_are_known(const struct extent_set *set, uint32_t page);

/* Returns the sums of the page's parts, in order; borrowed while the set exists. They were known
 * when the caller last asked. If the page was dropped since, they are the dropped page's. */
const uint64_t *part_sums_of(const struct extent_set *set, uint32_t page);

/* Notes the sums of all parts of the present page, which a move has set. Does nothing without
 * memory. */
void part_sums_note(struct extent_set *set, uint32_t page, const struct move_plane *parts);

#endif
