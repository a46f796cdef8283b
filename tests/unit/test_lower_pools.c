/* Pools below a device: limits, shares and recalls work there as on devices. */
#include "daemon/core/clients/grants.h"
#include "daemon/core/core.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/sizing.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/memory/wait.h"
#include "daemon/core/reclaim/take-back.h"
#include "daemon/core/reclaim/recall-work.h"
#include "tests/unit/region-fixture.h"
#include "daemon/core/cache/drop.h"
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

SCENE(test_there, 4, 3)
{
        struct fixture *f;
        struct tenant *c;
        struct pool *pool;

        f = &l->w.f;
        pool = pool_of(&l->w);
        assert_string_equal(l->host_pool->props->name, "host of fake");
        assert_int_equal(l->host_pool->tier, TIER_HOST);
        assert_int_equal(
                store_add_disk(&f->store, l->host_pool, NULL, 5 * SET_BYTES, SET_BYTES, &f->d), 0);
        l->disk_pool = l->host_pool->below;
        assert_string_equal(l->disk_pool->props->name, "disk of fake");
        assert_null(store_find_pool(&f->store, "host"));
        assert_null(store_find_pool(&f->store, "host of fake"));
        assert_ptr_equal(store_next_pool(&f->store, NULL), pool);
        assert_ptr_equal(store_next_pool(&f->store, pool), l->host_pool);
        assert_ptr_equal(store_next_pool(&f->store, l->host_pool), l->disk_pool);
        assert_null(store_next_pool(&f->store, l->disk_pool));
        assert_int_equal(tenant_new(&f->store, "c", &f->a->attrs, &c, &f->d), 0);
        for (enum tier_kind tier = 0; tier < TIER_COUNT; tier++, pool = pool->below) {
                assert_ptr_equal(pool_share_find(f->a, pool)->account, &f->a->accounts[tier]);
                assert_ptr_equal(pool_share_find(c, pool)->account, &c->accounts[tier]);
        }
        assert_null(pool);
}

RECALL_SCENE(test_refused, 4)
{
        assert_int_equal(
                store_add_disk(&w->f.store, pool_of(w), NULL, SET_BYTES - 1, SET_BYTES, &w->f.d),
                -EINVAL);
        assert_non_null(strstr(w->f.d.text, "disk of fake"));
        assert_null(pool_of(w)->below);
}

/* Pages of a lower tier are charged only there. */
SCENE(test_limit, 4, 8)
{
        struct extent_set *set;

        cache_sets(l->a, 5000, 1);
        set_host_limit(l, l->w.f.a, 3 * SET_BYTES - 1);
        assert_int_equal(fill_below(l->a, 0), 2);
        assert_int_equal(set_bind_in(l->a->ns, TIER_HOST, NULL, &set, &l->w.f.d), KVL_STATUS_QUOTA);
        assert_int_equal(charged(l->w.f.a, TIER_HOST), 2 * SET_BYTES);
        assert_int_equal(charged(l->w.f.a, TIER_DEVICE), SET_BYTES);
        assert_int_equal(host_share(l, l->a)->charged_bytes, 2 * SET_BYTES);
        assert_int_equal(l->host_pool->account.charged_bytes, 2 * SET_BYTES);
        assert_int_equal(pool_of(&l->w)->account.charged_bytes, SET_BYTES);
        fixture_check(&l->w.f);
        set_host_limit(l, l->w.f.b, 0);
        assert_int_equal(fill_below(l->b, 0), 0);
}

/* The pool is full, and no tenant is a set or more over its share: no set is evicted. */
static void expect_settled(struct lower *l)
{
        assert_false(region_make_room(host_share(l, l->a), NULL, SET_BYTES, NULL));
        assert_false(region_make_room(host_share(l, l->b), NULL, SET_BYTES, NULL));
}

/* A tenant below its share gets whole unmapped sets of the tenant that is furthest over. */
SCENE(test_share, 2, 4)
{
        struct pool_share *of_b;

        of_b = host_share(l, l->b);
        cache_sets(l->a, 5000, 1);
        assert_int_equal(fill_below(l->a, 0), 4);
        for (unsigned n = 1; n <= 2; n++) {
                assert_int_not_equal(cache_below(l->b, n * 100), 0);
                region_note_want(of_b, SET_BYTES, SET_BYTES, l->w.f.store.now_nsec);
                assert_true(region_make_room(of_b, NULL, SET_BYTES, NULL));
                assert_int_equal(charged(l->w.f.a, TIER_HOST), (4 - n) * SET_BYTES);
                assert_int_equal(cache_below(l->b, n * 100), 0);
                fixture_check(&l->w.f);
        }
        region_note_want(of_b, SET_BYTES, SET_BYTES, l->w.f.store.now_nsec);
        region_note_want(host_share(l, l->a), SET_BYTES, SET_BYTES, l->w.f.store.now_nsec);
        expect_settled(l);
        assert_int_equal(charged(l->w.f.a, TIER_DEVICE), SET_BYTES);
        assert_int_equal(count_hits(l->a, 5000, SET_PAGES), SET_PAGES);
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

/* Reservations are of devices: they don't limit tenants in lower tiers. */
SCENE(test_reservation, 4, 4)
{
        struct tenant_attrs attrs;

        attrs = l->w.f.a->attrs;
        attrs.class = TENANT_PINNED;
        attrs.reserve_bytes = SET_BYTES;
        attrs.burst = BURST_NONE;
        assert_int_equal(tenant_set_attrs(l->w.f.a, &attrs, &l->w.f.d), 0);
        assert_int_equal(l->host_pool->reserved_bytes, 0);
        assert_int_equal(fill_below(l->a, 0), 4);
}

/* Leases wait for devices: what is below goes on meanwhile. */
SCENE(test_waits, 4, 4)
{
        struct claim claim = {0};

        wait_arrive(l->b, SET_PAGES, UINT64_MAX);
        wait_begin(l->b, SET_PAGES, LEASE_REASON_POOL_FULL);
        wait_arrive(l->a, SET_PAGES, UINT64_MAX);
        claim.lease = l->a;
        assert_false(wait_is_next(l->a));
        assert_int_equal(region_admits(host_share(l, l->a), SET_BYTES, &claim), LEASE_REASON_NONE);
        assert_int_equal(fill_below(l->a, 0), 4);
        assert_true(wait_end(l->b));
}

/* A lower limit of one tier takes sets of that tier: unmapped ones at once, mapped ones by recall.
 */
TEST(test_limit_lowered)
{
        struct extent_set *kept;
        struct lower l;

        start_lower(&l, 4, 4);
        cache_sets(l.a, 5000, 2);
        assert_int_equal(fill_below(l.a, 0), 4);
        kept = list_first(&l.a->ns->tiers[TIER_HOST].sets_bound, struct extent_set, link);
        assert_int_equal(map_set(l.a, kept->index), 1);
        set_host_limit(&l, l.w.f.a, 2 * SET_BYTES);
        assert_int_equal(charged(l.w.f.a, TIER_HOST), 2 * SET_BYTES);
        assert_int_equal(l.w.f.store.recalls.n, 0);
        set_host_limit(&l, l.w.f.a, 0);
        assert_int_equal(charged(l.w.f.a, TIER_HOST), SET_BYTES);
        assert_int_equal(kept->recall.state, RECALL_ASKED);
        assert_int_equal(kept->recall.kind, RECALL_FORCED);
        assert_int_equal(work(&l.w), RECALL_SOON);
        keep_safe_point(&l.w);
        assert_int_equal(charged(l.w.f.a, TIER_HOST), 0);
        assert_int_equal(charged(l.w.f.a, TIER_DEVICE), 2 * SET_BYTES);
        end_lower(&l);
}

/* So does a budget that is less than what is held. */
SCENE(test_budget_lowered, 4, 4)
{
        cache_sets(l->a, 5000, 2);
        assert_int_equal(fill_below(l->a, 0), 4);
        l->host_pool->account.limit_bytes = 3 * SET_BYTES;
        region_changed(l->host_pool);
        assert_int_equal(work(&l->w), RECALL_NOTHING);
        assert_int_equal(charged(l->w.f.a, TIER_HOST), 3 * SET_BYTES);
        assert_int_equal(charged(l->w.f.a, TIER_DEVICE), 2 * SET_BYTES);
}

/* How large a reservation should be doesn't depend on what lies below. */
SCENE(test_sizing, 4, 4)
{
        struct pool_share *of_a;

        of_a = host_share(l, l->a);
        assert_int_equal(fill_below(l->a, 0), 4);
        assert_int_equal(sizing_demand(l->w.f.a), 0);
        region_note_want(of_a, SET_BYTES, SET_BYTES, l->w.f.store.now_nsec);
        assert_int_equal(sizing_demand(l->w.f.a), 0);
        region_note_want(share_of(&l->w, l->w.f.a), SET_BYTES, SET_BYTES, l->w.f.store.now_nsec);
        assert_int_equal(sizing_demand(l->w.f.a), SET_BYTES);
}

/* The device's limit is none of the host's. */
SCENE(test_device_limit_lowered, 4, 4)
{
        cache_sets(l->a, 5000, 2);
        assert_int_equal(fill_below(l->a, 0), 4);
        set_limit(&l->w, l->w.f.a, 1);
        assert_int_equal(charged(l->w.f.a, TIER_HOST), 4 * SET_BYTES);
        assert_int_equal(charged(l->w.f.a, TIER_DEVICE), SET_BYTES);
        assert_int_equal(recall_sets(l->w.f.a, NULL, UINT64_MAX, 0), 1);
}

/* Pages are preallocated on the device alone. */
SCENE(test_stock, 4, 4)
{
        struct extent_set *set;

        assert_int_equal(set_bind_in(l->a->ns, TIER_DEVICE, NULL, &set, NULL), 0);
        assert_int_equal(set_bind_in(l->a->ns, TIER_DEVICE, NULL, &set, NULL), 0);
        assert_int_equal(set_bind_in(l->a->ns, TIER_HOST, NULL, &set, NULL), 0);
        l->a->ns->reclaim.prealloc.n_to_keep = 2 * SET_PAGES;
        idle_sets_drain(&l->w.f.store);
        assert_int_equal(l->a->ns->device.n_sets, 2);
        assert_int_equal(l->a->ns->tiers[TIER_HOST].n_sets, 0);
        l->a->ns->reclaim.prealloc.n_to_keep = 0;
        idle_sets_add_all(l->a->ns);
        idle_sets_drain(&l->w.f.store);
}

static void expect_broken(struct lower *l, const char *text)
{
        uint64_t n_pages, n_sets;

        assert_int_equal(store_check(&l->w.f.store, &n_pages, &n_sets, &l->w.f.d), -EUCLEAN);
        if (!strstr(l->w.f.d.text, text))
                fail_msg("'%s' does not say '%s'", l->w.f.d.text, text);
}

SCENE(test_check, 4, 4)
{
        struct pool_share *s;

        assert_int_equal(fill_below(l->a, 0), 4);
        s = host_share(l, l->a);
        l->host_pool->account.charged_bytes++;
        expect_broken(l, "charge of device of host of fake");
        l->host_pool->account.charged_bytes--;
        l->host_pool->n_sets++;
        expect_broken(l, "number of sets on device of host of fake");
        l->host_pool->n_sets--;
        s->charged_bytes++;
        expect_broken(l, "regions of device host of fake");
        s->charged_bytes--;
        s->account = &l->w.f.a->account;
        expect_broken(l, "the account of another tenant or tier");
        s->account = &l->w.f.a->accounts[TIER_HOST];
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

/* Raised again in the middle: what is going goes, no more. Lowered again: as much more. */
RECALL_SCENE(test_again_meanwhile, 16)
{
        struct attach *a;

        w->f.store.drop_slice_pages = 1;
        a = enter(w->f.a, "n");
        fill_sets(a, 0, 12);
        lower_limit(w, 8);
        assert_int_equal(w->f.a->n_recalled, 4);
        (void)turn(w, a);
        lower_limit(w, 6);
        assert_int_equal(w->f.a->n_recalled + (12 * SET_BYTES - charged_limit(w)) / SET_BYTES, 6);
        (void)turn(w, a);
        lower_limit(w, 16);
        assert_int_equal(work_in_steps(w, BUDGET), RECALL_NOTHING);
        assert_int_equal(charged_limit(w), 6 * SET_BYTES);
        fill_sets(a, 500, 10);
        assert_int_equal(charged_limit(w), 16 * SET_BYTES);
}
