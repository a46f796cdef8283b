#include "daemon/core/clients/pin.h"

#include <assert.h>
#include <errno.h>

#include "base/fault-point.h"
#include "base/fd.h"
#include "base/macros.h"
#include "daemon/core/cache/lines.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/clients/client-record.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/state/pin-counts.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/tenant.h"
#include "proto/status.h"

/* Pages to be released whose memory is prefetched together: enough to hide the latency. Not tuned.
 */
#define RELEASE_BLOCK 16u

/* Counters of unpinned pages that take about as long as a look at one page. Not tuned. */
#define COUNTERS_PER_LOOK 16

/* ---- limits ---------------------------------------------------------------------------------- */

int pin_check(const struct attach *a, uint32_t n, struct detail *d)
{
        const struct tenant *t = a->ns->tenant;
        uint32_t max = t->attrs.max_pins;

        if (max == 0 || a->member->n_pins + n <= max)
                return 0;
        return detail_set(d, KVL_STATUS_QUOTA,
                "this client has %llu pins, and %u more would be beyond the %u that a client of "
                "tenant %s may have: release some, or raise it with: kvleasectl tenants set %s max_pins=...",
                (unsigned long long)a->member->n_pins, n, max, t->name, t->name);
}

/* A tenant can have so many members: an earlier daemon's, then up to max_clients. */
static_assert(PAGE_MAX_CLIENT_PINS * (uint64_t)CLIENT_SLOTS < UINT32_MAX &&
                      TENANT_MAX_CLIENTS <= CLIENT_SLOTS,
        "page.n_pins");

int pin_check_page(const struct attach *a, uint32_t page, uint32_t n, struct detail *d)
{
        uint32_t count = pin_counts_get(&a->pins, page);

        if (count + n <= PAGE_MAX_CLIENT_PINS)
                return 0;
        return detail_set(d, KVL_STATUS_QUOTA,
                "page %u of namespace %s is pinned %u times by this client, and %u more could be "
                "beyond the %d that a client may have of a page: release some",
                page, a->ns->name, count, n, PAGE_MAX_CLIENT_PINS);
}

/* Makes counters that the next daemon gets. */
static int make_kept(struct attach *a, struct detail *d)
{
        uint32_t capacity_pages = a->ns->geometry.capacity_pages;
        _cleanup_fd_ int fd =
                memfd_create_sized("kvlease-socket-pins", pin_counts_bytes(capacity_pages));
        int r;

        if (fd < 0)
                return detail_set(d, fd, "no memory to count pins in: %s", status_text(fd));
        r = pin_counts_map(&a->pins, fd, capacity_pages);
        if (r < 0)
                return detail_set(d, r, "no memory to count pins in");
        r = attach_record_pins(a, fd, d);
        if (r < 0)
                pin_counts_deinit(&a->pins);
        return r;
}

int pin_reserve(struct attach *a, uint32_t n, struct detail *d)
{
        int r = pin_check(a, n, d);

        if (r != 0 || n == 0 || a->pins.len > 0)
                return r;
        if (a->record != 0)
                return make_kept(a, d);
        r = pin_counts_reserve(&a->pins, a->ns->geometry.capacity_pages);
        return r < 0 ? detail_set(d, r, "no memory for %u pins", n) : 0;
}

/* Gives the page the pins that the file says, if possible. */
static uint32_t adopt_page(uint32_t page, uint32_t n, void *data)
{
        struct attach *a = data;
        const struct page *p = ns_page(a->ns, page);

        if (!p || !page_is_shown(p->state) || page_pins(p) > UINT32_MAX - n)
                return 0;
        ns_pin_page(a->ns, page, n);
        a->member->n_pins += n;
        return n;
}

int pin_adopt(struct attach *a, int fd)
{
        return pin_counts_adopt(&a->pins, fd, a->ns->geometry.capacity_pages, adopt_page, a);
}

/* ---- adding and removing pins ---------------------------------------------------------------- */

/* Tests kill the daemon on either side of the stores that the next daemon reads. */
static void change_count(struct attach *a, uint32_t page, bool is_more)
{
        if (a->pins.is_kept)
                FAULT_POINT("socket-pin-before");
        if (is_more) {
                pin_counts_add(&a->pins, page, 1);
                a->member->n_pins++;
        } else {
                pin_counts_release(&a->pins, page);
                a->member->n_pins--;
        }
        if (a->pins.is_kept)
                FAULT_POINT("socket-pin-after");
}

void pin_add(struct attach *a, uint32_t page)
{
        ns_pin_page(a->ns, page, 1);
        change_count(a, page, true);
}

void pin_add_published(struct attach *a, uint32_t page)
{
        ns_pin_published(a->ns, page);
        change_count(a, page, true);
}

int pin_again(struct attach *a, const uint32_t *pages, uint32_t n, struct detail *d)
{
        int r = 0;

        for (uint32_t i = 0; i < n && r == 0; i++) {
                if (!pin_has_over_socket(a, pages[i]))
                        return detail_set(
                                d, -EINVAL, "page %u isn't pinned by this client", pages[i]);
                r = pin_check_page(a, pages[i], n, d); /* all pins may be of this page */
        }
        if (r == 0)
                r = pin_reserve(a, n, d);
        for (uint32_t i = 0; i < n && r == 0; i++)
                pin_add(a, pages[i]);
        return r;
}

/* Marks one pin of each page as about to be released, or none if one isn't there. */
static int begin_release(struct attach *a, const uint32_t *pages, uint32_t n, struct detail *d)
{
        struct pin_counts *c = &a->pins;
        uint32_t i = 0;

        while (i < n && pin_counts_begin_release(c, pages[i]))
                i++;
        if (i == n)
                return 0;
        for (uint32_t k = 0; k < i; k++)
                pin_counts_cancel_release(c, pages[k]);
        return detail_set(d, -EINVAL, "page %u isn't pinned by this client%s", pages[i],
                pin_counts_get(c, pages[i]) > 0 ? " that often" : "");
}

static void release_block(struct attach *a, const uint32_t *pages, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++)
                __builtin_prefetch(ns_note(a->ns, pages[i]), 1);
        for (uint32_t i = 0; i < n; i++)
                lines_prefetch_used(a->ns, pages[i]);
        for (uint32_t i = n; i-- > 0;) {
                change_count(a, pages[i], false);
                ns_unpin_page(a->ns, pages[i], 1);
        }
}

int pin_release(struct attach *a, const uint32_t *pages, uint32_t n, struct detail *d)
{
        int r = begin_release(a, pages, n, d);

        for (uint32_t left = n, block; left > 0 && r == 0; left -= block) {
                block = MIN(left, RELEASE_BLOCK);
                release_block(a, pages + left - block, block);
        }
        return r;
}

uint64_t pin_release_some(struct attach *a, uint64_t budget)
{
        uint32_t page, count;
        uint64_t n = 0;

        for (; n < budget && a->pins.n_pinned > 0; n++) {
                page = pin_counts_next(&a->pins, &a->pins_at, COUNTERS_PER_LOOK);
                if (page == PAGE_NONE)
                        continue;
                count = pin_counts_get(&a->pins, page);
                pin_counts_drop(&a->pins, page, count);
                a->member->n_pins -= count;
                ns_unpin_page(a->ns, page, count);
        }
        return n;
}

/* ---- queries --------------------------------------------------------------------------------- */

bool pin_has_over_socket(const struct attach *a, uint32_t page)
{
        return pin_counts_get(&a->pins, page) > 0;
}

bool pin_has(const struct attach *a, uint32_t page)
{
        return page < a->ns->geometry.capacity_pages &&
               (pin_has_over_socket(a, page) ||
                       (pins_is_open(&a->share) && pins_count(&a->share, page) > 0));
}

static bool is_held(const struct attach *a, uint32_t page)
{
        if (grants_check_page(a, page, NULL) == 0)
                return true;
        list_for_each (b, &a->ns->clients.attachments, struct attach, ns_link)
                if (b->grants == a->grants && pin_has(b, page))
                        return true;
        return false;
}

int pin_check_held(const struct attach *a, const uint32_t *pages, uint32_t n, struct detail *d)
{
        for (uint32_t i = 0; i < n; i++)
                if (!is_held(a, pages[i]))
                        return detail_set(d, -ENOENT,
                                "page %u of namespace %s is neither leased nor pinned by this client's group",
                                pages[i], a->ns->name);
        return 0;
}
