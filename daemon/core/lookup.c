#include "daemon/core/lookup.h"

#include <errno.h>

#include "base/macros.h"
#include "daemon/core/client-record.h"
#include "daemon/core/detail.h"
#include "daemon/core/prefetch.h"
#include "daemon/core/request.h"
#include "daemon/core/store.h"
#include "proto/status.h"

/* A lookup has found it as its deepest page: that speaks for its ancestors, too (drop_leaf()). */
static void note_found(struct attach *a, uint32_t page, uint64_t request)
{
        struct ns *ns = a->ns;

        ns_note_use(ns, page);
        ns_note(ns, page)->was_found = 1;
        ns->evict->touch(ns->policy, page, request_id(a, request), ns_store(ns)->now_nsec);
        prefetch_note_found(a, page);
        request_tell(ns, request_id(a, request), REQUEST_FOUND, page);
}

static void pin_run(struct attach *a, const uint32_t *pages, uint32_t n, uint64_t request)
{
        struct ns *ns = a->ns;

        for (uint32_t i = n; i-- > 0;) {
                ns_pin_page(ns, pages[i]);
                attach_note_pin(a, pages[i]);
        }
        note_found(a, pages[n - 1], request);
}

void count_lookups(struct ns *ns, uint64_t n_lookups, uint64_t n_keys, uint64_t n_hits)
{
        struct store_counters *c = &ns_store(ns)->counters;

        ns->counters.keys += n_keys;
        ns->counters.hits += n_hits;
        c->lookups += n_lookups;
        c->lookup_keys += n_keys;
        c->lookup_hits += n_hits;
}

int lookup_pages(struct attach *a, const uint8_t *keys, uint32_t n, uint64_t request,
        uint64_t now_nsec, uint32_t *ret_pages, uint32_t *ret_n, uint64_t *ret_tokens,
        struct detail *d)
{
        struct ns *ns = a->ns;
        uint64_t tokens = 0;
        uint32_t found = 0;
        int r;

        store_set_now(ns_store(ns), now_nsec);
        *ret_n = 0;
        r = attach_check_version(a, d);
        if (r != 0)
                return r;
        for (; found < n; found++) {
                uint32_t page = ns_find_page(ns, keys + (size_t)found * KEY_BYTES);

                if (page == PAGE_NONE)
                        break;
                /* The run may name it n times. */
                r = attach_check_page_pins(a, page, n, d);
                if (r != 0)
                        return r;
                ret_pages[found] = page;
                tokens += ns_page(ns, page)->tokens;
        }
        r = found > 0 ? attach_reserve_pins(a, found, d) : 0;
        if (r != 0)
                return r;
        count_lookups(ns, 1, n, found);
        if (found == 0)
                return KVL_STATUS_MISS;
        pin_run(a, ret_pages, found, request);
        *ret_n = found;
        *ret_tokens = tokens;
        return 0;
}

/* Counts one pin each down in the member's own map; all back up again where one isn't there. */
static int uncount_pins(struct attach *a, const uint32_t *pages, uint32_t n, struct detail *d)
{
        for (uint32_t i = 0; i < n; i++) {
                uint64_t *count = map_find(&a->pins, pages[i]);

                if (count && *count > 0) {
                        (*count)--;
                        continue;
                }
                for (uint32_t j = 0; j < i; j++)
                        (*map_find(&a->pins, pages[j]))++;
                return detail_set(d, -EINVAL, "page %u isn't pinned by this client%s", pages[i],
                        count ? " that often" : "");
        }
        return 0;
}

int release_pages(
        struct attach *a, const uint32_t *pages, uint32_t n, uint64_t now_nsec, struct detail *d)
{
        int r;

        store_set_now(ns_store(a->ns), now_nsec);
        r = uncount_pins(a, pages, n, d);
        if (r < 0)
                return r;
        for (uint32_t i = n; i-- > 0;) {
                const uint64_t *count = map_find(&a->pins, pages[i]);

                if (count)
                        attach_show_pins(a, pages[i], *count);
                if (count && *count == 0)
                        map_remove(&a->pins, pages[i]);
                a->member->n_pins--;
                ns_unpin_page(a->ns, pages[i], 1);
        }
        return 0;
}

uint32_t touch_page(
        struct attach *a, uint32_t page, uint32_t generation, uint64_t request, uint64_t now_nsec)
{
        struct ns *ns = a->ns;
        const struct page *p = ns_page(ns, page);

        store_set_now(ns_store(ns), now_nsec);
        if (!p || p->state != PAGE_SEALED || ns_page_is_stale(ns, p) ||
                (uint32_t)p->generation != generation)
                return 0;
        note_found(a, page, request);
        return MIN((uint32_t)ns_note(ns, page)->depth, EVICT_WALK_PAGES);
}
