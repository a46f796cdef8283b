#include "daemon/core/requests/expected.h"

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/reclaim/prefetch.h"
#include "policy/expect.h"

/* Returns NULL without memory. */
static struct expect *get_expectations(struct ns *ns)
{
        if (!ns->expect)
                ns->expect = expect_new(ns->evict, ns->policy, &ns->tree, &ns->catalog.ancestors,
                        ns->geometry.capacity_pages, &ns->store->counters.expected);
        return ns->expect;
}

static uint32_t note_expected(struct ns *ns, uint32_t page, uint32_t ttl_msec, uint64_t now_nsec)
{
        struct expect *e = get_expectations(ns);
        uint64_t n_pages[TREE_TIERS] = {0}, ttl;
        uint32_t n_walked;

        if (!e)
                return 0;
        ttl = ttl_msec > 0 ? MIN(ttl_msec, EXPECT_TTL_MOST_MSEC) : EXPECT_TTL_MSEC;
        for (unsigned i = 0; i < TIER_COUNT; i++)
                n_pages[i] = ns->tiers[i].n_pages[PAGE_SEALED];
        n_walked = expect_add(e, page, ns_note(ns, page)->depth, now_nsec + ttl * NSEC_PER_MSEC,
                n_pages, now_nsec);
        prefetch_note_expected(ns, page);
        return n_walked;
}

/* A cached page's parents are cached, too: searches the last cached key by bisection. PAGE_NONE:
 * not even the first is cached. */
static uint32_t find_deepest(const struct ns *ns, const uint8_t *keys, uint32_t n)
{
        uint32_t n_found = 0, deepest = PAGE_NONE;

        while (n_found < n) {
                uint32_t half = n_found + (n - n_found + 1) / 2;
                uint32_t page = ns_find_page(ns, keys + (size_t)(half - 1) * KEY_BYTES);

                if (page == PAGE_NONE) {
                        n = half - 1;
                        continue;
                }
                deepest = page;
                n_found = half;
        }
        return deepest;
}

int expected_by_keys(struct attach *a, const uint8_t *keys, uint32_t n, uint32_t ttl_msec,
        uint64_t now_nsec, struct detail *d)
{
        uint32_t page;
        int r;

        store_set_now(a->ns->store, now_nsec);
        r = attach_check_version(a, d);
        if (r != 0)
                return r;
        page = find_deepest(a->ns, keys, n);
        if (page != PAGE_NONE)
                (void)note_expected(a->ns, page, ttl_msec, now_nsec);
        return 0;
}

uint32_t expected_by_page(
        struct attach *a, uint32_t page, uint32_t generation, uint32_t ttl_msec, uint64_t now_nsec)
{
        const struct page *p = ns_page(a->ns, page);

        store_set_now(a->ns->store, now_nsec);
        if (!p || p->state != PAGE_SEALED || ns_page_is_stale(a->ns, p) ||
                (uint32_t)p->generation != generation)
                return 0;
        return note_expected(a->ns, page, ttl_msec, now_nsec);
}
