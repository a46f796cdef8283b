/*
 * An attachment's magazine: pages granted in advance, in its pin segment. The client claims a slot
 * by exchanging it for 0. The daemon fills empty slots and can take back unclaimed pages without
 * the client's help. The daemon remembers which page it put where; the segment only tells whether
 * the page is still there. Pages in a magazine are GRANTED to the group and charged like other
 * pages. page.ready is set until the daemon has seen that a page was claimed. Loop thread only.
 */
#ifndef KVL_CORE_MAGAZINE_H
#define KVL_CORE_MAGAZINE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/shm.h"

struct attach;
struct grants;
struct ns;

/* Notes the pages claimed since the last call. Returns false once after the client wrote another
 * value into a slot; the page counts as claimed. */
bool magazine_sync(struct attach *a);

/* Recovery, with `share` adopted: marks pages in slots as ready again if their notes say that they
 * were put there, and empties other slots. A page that was being put or taken counts as claimed. */
void magazine_adopt(struct attach *a);

/* Was `page`, which the record has in a magazine of the group, claimed meanwhile? */
bool magazine_is_claimed(struct grants *g, uint32_t page);

/* Takes back unclaimed pages and frees them. Returns their number. */
uint32_t magazine_drain(struct attach *a);

/* Drains all magazines of the namespace. Returns the number of freed pages. */
uint32_t magazine_drain_ns(struct ns *ns);

/* Shrinks idle magazines, before cached pages are evicted: if the last refill was a second ago or
 * more, a magazine keeps only the pages that a refill would give it now. Returns the number of
 * freed pages. O(attachments + freed pages). */
uint32_t magazine_trim_idle(struct ns *ns, uint64_t now_nsec);

/* Takes back unclaimed pages in recalled sets, from all magazines of the namespace. Returns the
 * number of freed pages. */
uint32_t magazine_drain_recalled(struct ns *ns);

/* The lowest level of a magazine. Not tuned. */
#define MAGAZINE_LEVEL_MIN 8u

/* Adapts the level at a refill, for a tenant that can have `reach` pages in the namespace: raises
 * it if refills follow each other fast, and lowers it with every second of a pause. */
void magazine_adapt_level(struct attach *a, uint64_t reach, uint64_t now_nsec);

/* Returns how many pages the magazine lacks to have its share `target` of the pages that all
 * magazines of the namespace may have. */
uint32_t magazine_shortage(const struct attach *a, uint64_t target, uint64_t reach);

/* Puts up to n FREE pages of the namespace into empty slots. Returns how many. */
uint32_t magazine_put_pages(struct attach *a, uint32_t n);

/* Shows the client the level, and that n_more pages were put or (less than 0) taken back. */
void magazine_show(struct attach *a, int64_t n_more);

#endif
