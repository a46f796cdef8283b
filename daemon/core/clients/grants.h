/*
 * The grants of a group in a namespace: its leased pages that aren't published yet. Pages are added
 * when they are leased (lease.h), or put in a magazine. They are removed when they are published
 * (publish.h), given back, or missing in a client's report. Loop thread only.
 */
#ifndef KVL_CORE_GRANTS_H
#define KVL_CORE_GRANTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "proto/shm.h"

struct attach;
struct detail;
struct grants;
struct group;
struct ns;

/* Adds a GRANTED page, whose owner is the group, to its grants. */
void grants_add(struct grants *g, uint32_t page);

/* Removes the page from its group's grants; the caller publishes or frees it. */
void grants_remove(struct grants *g, uint32_t page);

/* Gives back a granted page that isn't in a magazine and wasn't given back before. It becomes FREE,
 * at once or when no lingering member of the group maps its set. */
void grants_give_back(struct grants *g, uint32_t page);

/* Does a lingering member of the group have the page's set mapped? */
bool grants_may_be_written(const struct grants *g, uint32_t page);

/* Is the page granted to this attachment's group, and in no magazine? Returns 0, or -EINVAL with
 * the page's actual state in *d. */
int grants_check_page(const struct attach *a, uint32_t page, struct detail *d);

/* Grant a FREE page to the group, the namespace's first or `page`. seq: page_note.seq. */
uint32_t grants_take_page(struct attach *a, uint32_t seq);
void grants_take(struct attach *a, uint32_t page, uint32_t seq);

/* Gives granted pages back (grants_give_back()). Returns 0; -EINVAL if one isn't granted to the
 * group (nothing changed). */
int free_pages(struct attach *a, const uint32_t *pages, uint32_t n, struct detail *d);

/* Repeats free_pages() after a restart, if it may have been done: gives back the pages that this
 * member leased itself and skips all others. A page given back before wasn't granted to it again,
 * as it can't have asked for one since. */
void free_pages_again(struct attach *a, const uint32_t *pages, uint32_t n);

/*
 * The client holds `pages` of its grants and no others: frees the group's other pages in the
 * namespace, except those in magazines. `continues`: a part of the report under way; otherwise the
 * report under way is discarded. `more`: another part follows, so no page is freed yet. Returns 0
 * with the number of freed pages; -ESTALE: no report to continue, begin again (a report doesn't
 * survive a restart); -EBUSY: other members of the group, lingering ones included, have the
 * namespace open; -EINVAL: a page isn't granted to the group, the report is discarded.
 */
int report_pages(struct attach *a, const uint32_t *pages, uint32_t n, bool continues, bool more,
        uint64_t *ret_freed, struct detail *d);

/* ---- magazines ------------------------------------------------------------------------------- */

/*
 * An attachment's magazine: pages granted in advance, in its pin segment. The client claims a slot
 * by exchanging it for 0. The daemon fills empty slots and can take back unclaimed pages without
 * the client's help. The daemon remembers which page it put where; the segment only tells whether
 * the page is still there. Pages in a magazine are GRANTED to the group and charged like other
 * pages. page.ready is set until the daemon has seen that a page was claimed.
 */

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
