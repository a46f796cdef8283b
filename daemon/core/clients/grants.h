/*
 * The grants of a group in a namespace: its leased pages that aren't published yet. Pages are added
 * when they are leased (lease.h, magazine.h). They are removed when they are published (publish.h),
 * given back, or missing in a client's report. Loop thread only.
 */
#ifndef KVL_CORE_GRANTS_H
#define KVL_CORE_GRANTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

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

#endif
