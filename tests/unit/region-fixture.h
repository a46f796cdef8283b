/* Words for tests of regions, on top of a world whose recalls can be watched. */
#ifndef KVL_TESTS_REGION_FIXTURE_H
#define KVL_TESTS_REGION_FIXTURE_H

#include "daemon/core/life/tenant-life.h"
#include "daemon/core/memory/region.h"
#include "tests/unit/recall-fixture.h"

#define SEC (1000 * MSEC)

static inline struct pool_share *share_of(struct world *w, const struct tenant *t)
{
        return pool_share_find(t, store_find_pool(&w->f.store, NULL));
}

static inline struct pool *pool_of(struct world *w)
{
        return store_find_pool(&w->f.store, NULL);
}

/* 0 or why not; it waits for nothing. */
static inline int set_reserve(struct world *w, struct tenant *t, uint64_t bytes)
{
        struct tenant_attrs attrs = t->attrs;
        int r;

        attrs.class = TENANT_PINNED;
        attrs.reserve_bytes = bytes;
        r = tenant_set_attrs(t, &attrs, &w->f.d);
        fixture_check(&w->f);
        return r;
}

static inline void set_limit(struct world *w, struct tenant *t, unsigned sets)
{
        struct tenant_attrs attrs = t->attrs;

        attrs.limit_bytes = sets * SET_BYTES;
        assert_int_equal(tenant_set_attrs(t, &attrs, &w->f.d), 0);
        fixture_check(&w->f);
}

static inline int ask(struct world *w, struct attach *a, uint32_t n, uint32_t *ret_pages,
        enum lease_reason *ret_reason)
{
        const struct lease_request rq = {.n = n, .min = n};
        struct lease_result result;
        int r = lease_ask(a, &rq, w->now_nsec, ret_pages, &result, &w->f.d);

        if (ret_reason)
                *ret_reason = result.reason;
        fixture_check(&w->f);
        return r;
}

/* Whole sets of granted pages, as many as it gets. */
static inline unsigned grab_all(struct world *w, struct attach *a)
{
        uint32_t pages[SET_PAGES];
        unsigned n = 0;

        while (ask(w, a, SET_PAGES, pages, NULL) == 0)
                n++;
        return n;
}

static inline void cache_sets(struct attach *a, unsigned first_key, unsigned n_sets)
{
        for (unsigned i = 0; i < n_sets; i++)
                cache_chain(a, first_key + i * 100, SET_PAGES);
}

static inline void map_all(struct attach *a)
{
        list_for_each (set, &a->ns->device.sets_bound, struct extent_set, link)
                if (!map_find(&a->mapped, set->index))
                        assert_int_equal(map_set(a, set->index), 1);
}

/* The client unmaps all sets that it was asked to unmap. */
static inline void keep_safe_point(struct world *w)
{
        for (unsigned i = 0; i < w->n_told; i++)
                if (w->told[i].idle)
                        unmap_set(w, w->told[i].a, w->told[i].set);
        w->n_told = 0;
}

/* Caches a page that isn't requested again, and maps its set. */
static inline int use_one(struct world *w, struct attach *a, unsigned key)
{
        uint32_t page, sealed, n;
        uint8_t bytes[KEY_BYTES];
        struct publish p = {.pages = &page, .keys = bytes, .n = 1, .last_tokens = PAGE_TOKENS};
        int r = ask(w, a, 1, &page, NULL);

        if (r != 0)
                return r;
        if (!map_find(&a->mapped, page / SET_PAGES))
                assert_int_equal(map_set(a, page / SET_PAGES), 1);
        make_keys(bytes, key, 1);
        assert_int_equal(publish_pages(a, &p, w->now_nsec, &sealed, &n, NULL), 0);
        assert_int_equal(release_pages(a, &page, 1, w->now_nsec, NULL), 0);
        return 0;
}

#endif
