/* Fixture of the tests of compaction: texts scattered over sets, whose bytes identify them. */
#ifndef KVL_TESTS_COMPACT_FIXTURE_H
#define KVL_TESTS_COMPACT_FIXTURE_H

#include "daemon/core/cache/pages.h"
#include "daemon/core/life/open.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/reclaim/compact.h"
#include "daemon/core/requests/invalidate.h"
#include "tests/unit/recall-fixture.h"

#define SECOND (UINT64_C(1000) * MSEC)
#define LATER  (100 * SECOND)

/* ---- bytes ---- */

static inline uint8_t *bytes_of(const struct ns *ns, uint32_t page, uint32_t plane)
{
        struct extent_set *set = ns_set_of(ns, page);

        return fake_bytes(set->extents[plane]) +
               page % ns->geometry.set_pages * (ns->geometry.extent_bytes / ns->geometry.set_pages);
}

static inline void fill(const struct ns *ns, uint32_t page, unsigned seed)
{
        for (uint32_t plane = 0; plane < ns->layout.n_planes; plane++)
                for (unsigned i = 0; i < ns->layout.plane_page_bytes; i++)
                        bytes_of(ns, page, plane)[i] = (uint8_t)(seed * 31 + plane * 7 + i);
}

static inline void assert_filled(const struct ns *ns, uint32_t page, unsigned seed)
{
        for (uint32_t plane = 0; plane < ns->layout.n_planes; plane++)
                for (unsigned i = 0; i < ns->layout.plane_page_bytes; i++)
                        assert_int_equal(
                                bytes_of(ns, page, plane)[i], (uint8_t)(seed * 31 + plane * 7 + i));
}

/* ---- what is cached ---- */

static inline uint32_t find(const struct attach *a, unsigned key)
{
        uint8_t bytes[KEY_BYTES];

        make_keys(bytes, key, 1);
        return ns_find_page(a->ns, bytes);
}

static inline void assert_cached(const struct attach *a, unsigned key)
{
        uint32_t page = find(a, key);

        assert_int_not_equal(page, PAGE_NONE);
        assert_filled(a->ns, page, key);
}

/* n texts of one page each, with keys from `first`. */
static inline void cache_pages(struct attach *a, unsigned first, unsigned n)
{
        for (unsigned i = 0; i < n; i++) {
                uint32_t page;

                publish_chain(a, first + i, 1, &page);
                fill(a->ns, page, first + i);
                assert_int_equal(release_pages(a, &page, 1, 1, NULL), 0);
        }
}

/* The page of `key` continues the one of `parent`. */
static inline uint32_t cache_below(struct attach *a, unsigned parent, unsigned key)
{
        uint8_t keys[KEY_BYTES], parent_key[KEY_BYTES];
        struct publish p = {
                .keys = keys, .parent_key = parent_key, .n = 1, .last_tokens = PAGE_TOKENS};
        uint32_t page, sealed, n;

        make_keys(keys, key, 1);
        make_keys(parent_key, parent, 1);
        assert_int_equal(lease_pages(a, 1, 1, &page, NULL), 0);
        fill(a->ns, page, key);
        p.pages = &page;
        assert_int_equal(publish_pages(a, &p, 1, &sealed, &n, NULL), 0);
        assert_int_equal(release_pages(a, &page, 1, 1, NULL), 0);
        return page;
}

static inline void drop(struct attach *a, unsigned first, unsigned n)
{
        for (unsigned i = 0; i < n; i++) {
                uint8_t key[KEY_BYTES];
                uint64_t n_pages;

                make_keys(key, first + i, 1);
                assert_int_equal(invalidate_key(a, key, &n_pages, NULL), 0);
        }
}

/* Pages that lie a stride apart which isn't their size, as many to a set. The store has four sets
 * of them for 56 of others. */
#define APART_PAGE_BYTES 1728
#define APART_STRIDE     1792 /* 7 * 256 */
#define APART_SETS(n)    ((n)*SET_PAGES * APART_STRIDE / SET_BYTES)

static inline struct attach *open_apart(struct world *w, struct member *m, unsigned n_planes)
{
        const struct attach_options o = {.stride_bytes = APART_STRIDE};
        struct ns_layout l = test_layout();
        struct attach *a = NULL;

        l.plane_page_bytes = APART_PAGE_BYTES;
        l.n_planes = n_planes;
        store_find_pool(&w->f.store, "")->extent_bytes = n_planes * SET_PAGES * APART_STRIDE;
        assert_int_equal(attach_open_with(m, "n", &l, &o, &a, NULL), 0);
        assert_int_equal(a->ns->geometry.set_pages, SET_PAGES);
        assert_int_equal(a->ns->geometry.extent_bytes, SET_PAGES * APART_STRIDE);
        return a;
}

/* Set 0 with six pages of keys 2 to 7, set 1 with two of keys 8 and 9. */
static inline void scatter(struct attach *a)
{
        cache_pages(a, 0, 16);
        drop(a, 0, 2);
        drop(a, 10, 6);
        assert_int_equal(a->ns->device.n_sets, 2);
        assert_int_equal(ns_set_of(a->ns, find(a, 9))->index, 1);
}

static inline bool turn(struct world *w)
{
        bool more = compact_turn(&w->f.store, w->now_nsec);

        fixture_check(&w->f);
        return more;
}

#endif
