/* Pools below a device: limits, shares and recalls work there as on devices. */
#include "daemon/core/clients/grants.h"
#include "daemon/core/core.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/reclaim/room.h"
#include "daemon/core/reclaim/recall.h"
#include "tests/unit/region-fixture.h"
#include "daemon/core/life/tenant-life.h"
#include "tests/unit/recall-fixture.h"

/* Sets of the device are `start()`'s; host memory, and a disk where that isn't 0. */
struct lower {
        struct world w;
        struct fake_device host;
        struct pool *host_pool, *disk_pool;
        struct member *ma, *mb;
        struct attach *a, *b;
};

static void set_host_limit(struct lower *l, struct tenant *t, uint64_t bytes)
{
        struct tenant_attrs attrs = t->attrs;

        attrs.host_limit_bytes = bytes;
        attrs.disk_limit_bytes = UINT64_MAX;
        assert_int_equal(tenant_set_attrs(t, &attrs, &l->w.f.d), 0);
        fixture_check(&l->w.f);
}

static void start_lower(struct lower *l, unsigned device_sets, unsigned host_sets)
{
        struct fixture *f = &l->w.f;

        *l = (struct lower){0};
        start(&l->w, device_sets);
        fake_device_init(&l->host, "host", 256);
        l->host.hands_out_fds = true;
        assert_int_equal(store_add_below(&f->store, pool_of(&l->w), &l->host.device,
                                 host_sets * SET_BYTES, SET_BYTES, &f->d),
                0);
        l->host_pool = pool_of(&l->w)->below;
        set_host_limit(l, f->a, UINT64_MAX);
        set_host_limit(l, f->b, UINT64_MAX);
        l->ma = join(f->a);
        l->mb = join(f->b);
        l->ma->safepoints = l->mb->safepoints = true;
        l->a = open_ns(l->ma, "x");
        l->b = open_ns(l->mb, "y");
}

static void end_lower(struct lower *l)
{
        member_free(l->ma);
        member_free(l->mb);
        fixture_end(&l->w.f);
        assert_int_equal(l->host.n_extents, 0);
        assert_true(l->host.closed);
}

#define SCENE(fn, ...) TEST_ON(fn, struct lower, l, start_lower, end_lower, ##__VA_ARGS__)

static struct pool_share *host_share(struct lower *l, const struct attach *a)
{
        return pool_share_find(a->ns->tenant, l->host_pool);
}

/* Caches a set of pages in host memory, with keys of their own. Returns as set_bind_in(). */
static int cache_below(struct attach *a, unsigned first_key)
{
        struct extent_set *set;
        uint8_t keys[SET_PAGES * KEY_BYTES];
        uint32_t pages[SET_PAGES], sealed[SET_PAGES], n;
        struct publish p = {
                .pages = pages, .keys = keys, .n = SET_PAGES, .last_tokens = PAGE_TOKENS};
        const struct page_use use = {
                .state = PAGE_GRANTED, .owner = a->member->group->id, .client = a->member->id};
        int r = set_bind_in(a->ns, TIER_HOST, NULL, &set, NULL);

        if (r != 0)
                return r;
        for (unsigned i = 0; i < SET_PAGES; i++) {
                pages[i] = set_take_page(set, &use);
                grants_add(a->grants, pages[i]);
        }
        make_keys(keys, first_key, SET_PAGES);
        assert_int_equal(publish_pages(a, &p, 1, sealed, &n, NULL), 0);
        assert_int_equal(n, SET_PAGES);
        assert_int_equal(release_pages(a, pages, SET_PAGES, 1, NULL), 0);
        return 0;
}

static unsigned fill_below(struct attach *a, unsigned first_key)
{
        unsigned n = 0;

        while (cache_below(a, first_key + n * 100) == 0)
                n++;
        return n;
}

static uint64_t charged(const struct tenant *t, enum tier_kind tier)
{
        return t->accounts[tier].charged_bytes;
}

/* A set that a client has mapped is recalled; softly for another tenant. */
SCENE(test_share_of_mapped, 2, 2)
{
        struct pool_share *of_b;

        of_b = host_share(l, l->b);
        assert_int_equal(fill_below(l->a, 0), 2);
        list_for_each (set, &l->a->ns->tiers[TIER_HOST].sets_bound, struct extent_set, link)
                assert_int_equal(map_set(l->a, set->index), 1);
        region_note_want(of_b, SET_BYTES, SET_BYTES, l->w.f.store.now_nsec);
        assert_false(region_make_room(of_b, NULL, SET_BYTES, NULL));
        assert_int_equal(host_share(l, l->a)->recalled_bytes, SET_BYTES);
        assert_int_equal(l->a->ns->tiers[TIER_HOST].n_withheld, 0);
        assert_int_equal(work(&l->w), RECALL_SOON);
        assert_int_equal(l->w.n_told, 1);
        assert_int_equal(l->a->ns->tiers[TIER_HOST].n_withheld, SET_PAGES);
        keep_safe_point(&l->w);
        assert_int_equal(host_share(l, l->a)->recalled_bytes, 0);
        assert_int_equal(charged(l->w.f.a, TIER_HOST), SET_BYTES);
        assert_int_equal(cache_below(l->b, 0), 0);
}

/* A tenant's limit that is lowered under what it has cached: how much goes at once, what goes when,
 * and what others see meanwhile. */

#define BUDGET 8 /* page records a turn */

static void lower_limit(struct world *w, unsigned n)
{
        struct tenant_attrs attrs = w->f.a->attrs;

        attrs.limit_bytes = n * SET_BYTES;
        assert_int_equal(tenant_set_attrs(w->f.a, &attrs, &w->f.d), 0);
        fixture_check(&w->f);
}

/* n sets of texts of one page each, which have nothing to do with each other. */
static void fill_sets(struct attach *a, unsigned first, unsigned n)
{
        for (unsigned i = 0; i < n * SET_PAGES; i++)
                cache_chain(a, first + i, 1);
}

static uint64_t charged_limit(const struct world *w)
{
        return w->f.a->account.charged_bytes;
}

/* One turn: no more goes than its budget, and a page. */
static enum recall_next turn(struct world *w, struct attach *a)
{
        uint64_t before = ns_count_findable(a->ns);
        enum recall_next next = recall_work(&w->f.store, w->now_nsec, TIMEOUT, BUDGET);

        assert_true(before - ns_count_findable(a->ns) <= BUDGET + 1);
        fixture_check(&w->f);
        return next;
}

/* The first slice goes at once, the rest in turns; all of it without a word to clients, none of
 * whom has any of it. */
RECALL_SCENE(test_slices, 16)
{
        struct attach *a;
        unsigned n_turns = 1;

        w->f.store.drop_slice_pages = 2 * (SET_PAGES + 1);
        a = enter(w->f.a, "n");
        fill_sets(a, 0, 16);
        lower_limit(w, 3);
        assert_int_equal(charged_limit(w), 14 * SET_BYTES);
        assert_int_equal(ns_count_findable(a->ns), 14 * SET_PAGES);
        assert_int_equal(w->f.a->n_recalled, 11);
        assert_true(w->n_work > 0);
        while (turn(w, a) == RECALL_MORE)
                n_turns++;
        assert_true(n_turns >= 11 * SET_PAGES / (BUDGET + 1));
        assert_int_equal(charged_limit(w), 3 * SET_BYTES);
        assert_int_equal(ns_count_findable(a->ns), 3 * SET_PAGES);
        assert_int_equal(w->f.a->n_recalled, 0);
        assert_int_equal(w->n_told, 0);
}

/* Nothing more is leased from the first moment, and no lease has to do the rest of it. */
RECALL_SCENE(test_lease_meanwhile, 16)
{
        struct attach *a, *other;
        uint32_t page;
        uint64_t before;

        w->f.store.drop_slice_pages = SET_PAGES + 1;
        a = enter(w->f.a, "n");
        fill_sets(a, 0, 12);
        lower_limit(w, 4);
        before = ns_count_findable(a->ns);
        assert_int_equal(before, 11 * SET_PAGES);
        other = open_ns(a->member, "other");
        assert_int_equal(lease_pages(other, 1, 1, &page, NULL), KVL_STATUS_QUOTA);
        assert_int_equal(ns_count_findable(a->ns), before);
        fixture_check(&w->f);
        assert_int_equal(work_in_steps(w, BUDGET), RECALL_NOTHING);
        assert_int_equal(charged_limit(w), 4 * SET_BYTES);
        /* Within its limit it gives way to itself again. */
        assert_int_equal(lease_pages(other, 1, 1, &page, NULL), 0);
        assert_int_equal(charged_limit(w), 4 * SET_BYTES);
        assert_int_equal(ns_count_findable(a->ns), 3 * SET_PAGES);
}

/* Sets with few dependent pages are evicted before those with many, also in later turns. */
TEST_BARE(test_cheapest_first)
{
        struct attach *a, *held;
        uint32_t page;
        struct member *m;
        struct world w;

        start(&w, 8);
        w.f.store.drop_slice_pages = 1;
        m = join(w.f.a);
        held = open_ns(m, "held");
        publish_chain(held, 900, 1, &page);
        a = open_ns(m, "n");
        cache_chain(a, 0, 4 * SET_PAGES); /* over sets 0 to 3 */
        fill_sets(a, 500, 3);
        lower_limit(&w, 5);
        assert_int_equal(charged_limit(&w), 8 * SET_BYTES);
        assert_int_equal(work_in_steps(&w, BUDGET), RECALL_NOTHING);
        assert_int_equal(charged_limit(&w), 5 * SET_BYTES);
        assert_int_equal(count_hits(a, 0, 4 * SET_PAGES), 4 * SET_PAGES);
        assert_int_equal(ns_page(held->ns, page)->state, PAGE_SEALED);
        assert_int_equal(w.n_told, 0);
        member_free(m);
        recall_end(&w);
}

/* More pages than are looked at in one turn: none is, nothing goes at once, and what was bound last
 * goes first. */
TEST_BARE(test_many_pages)
{
        struct attach *a;
        struct member *m;
        struct world w;

        start(&w, 20);
        w.f.store.drop_slice_pages = 1;
        m = join(w.f.a);
        a = open_ns(m, "n");
        for (unsigned i = 0; i < 20; i++)
                cache_chain(a, i * SET_PAGES, SET_PAGES);
        for (unsigned i = 0; i < 20; i++)
                a->ns->sets.at[i]->cost_bytes = i; /* of some earlier look, and wrong by now */
        lower_limit(&w, 14);
        assert_int_equal(charged_limit(&w), 20 * SET_BYTES);
        assert_int_equal(w.f.a->n_recalled, 6);
        for (unsigned i = 0; i < 20; i++) {
                assert_int_equal(a->ns->sets.at[i]->recall.state != RECALL_NONE, i >= 14);
                assert_int_equal(a->ns->sets.at[i]->cost_bytes, 0); /* not weighed yet */
        }
        assert_int_equal(work_in_steps(&w, BUDGET), RECALL_NOTHING);
        assert_int_equal(charged_limit(&w), 14 * SET_BYTES);
        assert_int_equal(count_hits(a, 0, SET_PAGES), SET_PAGES);
        member_free(m);
        recall_end(&w);
}
