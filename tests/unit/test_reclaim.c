#include "daemon/core/clients/attach.h"
#include "daemon/core/state/task.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/memory/tasks.h"
#include "daemon/core/memory/region.h"
#include "daemon/core/reclaim/reclaim.h"
#include "daemon/core/reclaim/take-back.h"
#include "daemon/core/requests/invalidate.h"
#include "daemon/core/requests/refill.h"
#include "tests/unit/core-fixture.h"

/* A whole set of cached pages, one chain; its first key is 100 * set. */
static void fill(struct attach *a, unsigned n_sets)
{
        for (unsigned i = 0; i < n_sets; i++)
                cache_chain(a, i * 100, SET_PAGES);
}

static void map_all(struct attach *a)
{
        struct extent_handle handle;

        list_for_each (set, &a->ns->device.sets_bound, struct extent_set, link)
                assert_int_equal(attach_map_set(a, set->index, 0, 1, &handle, NULL), 1);
}

CORE_SCENE(test_own_pages_first, 8, 2, 8)
{
        struct attach *a = enter(f->a, "x");
        uint32_t pages[2];

        fill(a, 2);
        assert_int_equal(f->n_pressure, 0);
        assert_int_equal(lease_pages(a, 2, 5, pages, &f->d), 0);
        assert_int_equal(f->n_pressure, 1);
        /* The oldest chain, from its end. */
        assert_int_equal(count_hits(a, 0, SET_PAGES), SET_PAGES - 2);
        assert_int_equal(count_hits(a, 100, SET_PAGES), SET_PAGES);
        assert_int_equal(f->a->counters.evictions, 2);
}

CORE_SCENE(test_limit_sentence, 8, 2, 8)
{
        struct attach *a = enter(f->a, "x");
        uint32_t pages[SET_PAGES], more[SET_PAGES];

        publish_chain(a, 0, SET_PAGES, pages);
        cache_chain(a, 100, 4);
        assert_int_equal(lease_pages(a, 3, 1, more, &f->d), 0);
        /* Within reach are one free page and four cached ones. */
        assert_int_equal(lease_pages(a, 6, 1, more, &f->d), KVL_STATUS_QUOTA);
        assert_non_null(strstr(f->d.text, "tenant a holds 2 KiB of its limit of 2 KiB"));
        assert_non_null(strstr(f->d.text, "8 pages pinned, 3 granted"));
        assert_non_null(strstr(f->d.text, "kvleasectl tenants set a limit="));
        assert_int_equal(count_hits(a, 100, 4), 4); /* nothing was evicted for it in vain */
        assert_int_equal(f->a->counters.refusals, 1);
        assert_int_equal(f->n_pressure, 1);
        assert_int_equal(lease_pages(a, 5, 1, more, &f->d), 0);
        assert_int_equal(count_hits(a, 100, 4), 0);
}

/* An empty tenant whose limit is below one set of the layout: what it holds isn't the reason. */
CORE_SCENE(test_limit_below_a_set, 8, 1, 8)
{
        struct ns_layout layout = test_layout();
        struct member *m;
        struct attach *a;
        uint32_t page;

        m = join(f->a);
        layout.plane_page_bytes = 192;
        layout.n_planes = 4;
        assert_int_equal(attach_open(m, "x", &layout, "", false, &a, NULL), 0);
        assert_true(a->ns->geometry.set_bytes > SET_BYTES);
        assert_int_equal(lease_pages(a, 1, 1, &page, &f->d), KVL_STATUS_QUOTA);
        assert_non_null(
                strstr(f->d.text, "1 page of namespace x takes 3 KiB (1 extent set of 3 KiB"));
        assert_non_null(strstr(f->d.text, "more than the limit of 1 KiB of tenant a"));
        assert_non_null(strstr(f->d.text, "tenants set a limit=3KiB"));
        /* No extent makes sets of this layout smaller. */
        assert_null(strstr(f->d.text, "extent ="));
}

CORE_SCENE(test_other_tenants_idle_sets, 4, 4, 4)
{
        struct attach *a = enter(f->a, "x");
        struct attach *b;
        uint32_t pages[3 * SET_PAGES];

        fill(a, 3);
        map_all(a);
        cache_chain(a, 900, SET_PAGES); /* the fourth set isn't mapped */
        b = enter(f->b, "x");
        assert_int_equal(lease_pages(b, SET_PAGES, 1, pages, &f->d), 0);
        assert_int_equal(count_hits(a, 900, SET_PAGES), 0);
        assert_int_equal(count_hits(a, 0, SET_PAGES), SET_PAGES);
        /* Mapped sets are never taken, and the text names no other tenant. */
        assert_int_equal(lease_pages(b, 1, 1, pages, &f->d), KVL_STATUS_FULL);
        assert_non_null(strstr(f->d.text, "tenant b holds 1 KiB"));
        assert_non_null(strstr(f->d.text, "other tenants hold 3 KiB"));
        assert_null(strstr(f->d.text, "tenant a"));
        assert_int_equal(f->a->account.charged_bytes, 3 * SET_BYTES);
        attach_close(a);
        assert_int_equal(lease_pages(b, SET_PAGES, 1, pages, &f->d), 0);
        fixture_check(f);
        /* Two sets each: b is not less over its share than a, so a keeps the rest. */
        assert_int_equal(lease_pages(b, 1, 1, pages, &f->d), KVL_STATUS_FULL);
        assert_int_equal(f->a->account.charged_bytes, 2 * SET_BYTES);
}

/* A chain over all sets is evicted from its end, a set at a time, never from its beginning. */
CORE_SCENE(test_chain_goes_from_its_end, 4, 4, 4)
{
        uint32_t pages[4 * SET_PAGES], lease[SET_PAGES];
        struct attach *a = enter(f->a, "x");
        struct attach *b;

        publish_chain(a, 0, 4 * SET_PAGES, pages);
        assert_int_equal(release_pages(a, pages, 4 * SET_PAGES, 1, NULL), 0);
        b = enter(f->b, "x");
        assert_int_equal(lease_pages(b, 1, 1, lease, &f->d), 0);
        assert_int_equal(count_hits(a, 0, 4 * SET_PAGES), 3 * SET_PAGES);
        assert_int_equal(f->a->counters.evictions, SET_PAGES);
        fixture_check(f);
        assert_int_equal(lease_pages(b, SET_PAGES, 1, lease, &f->d), 0);
        assert_int_equal(count_hits(a, 0, 4 * SET_PAGES), 2 * SET_PAGES);
}

/* A set with nothing in it but a root is dearer than the full one that continues it. */
CORE_SCENE(test_cost_is_what_is_dropped, 2, 2, 2)
{
        uint32_t pages[1 + SET_PAGES], sealed[1 + SET_PAGES], n, page;
        uint8_t keys[(1 + SET_PAGES) * KEY_BYTES];
        struct publish p = {
                .pages = pages, .keys = keys, .n = 1 + SET_PAGES, .last_tokens = PAGE_TOKENS};
        struct attach *a = enter(f->a, "x");
        struct attach *b;

        assert_int_equal(lease_pages(a, SET_PAGES, 1, pages + 1, NULL), 0);
        assert_int_equal(lease_pages(a, 1, 1, pages, NULL), 0);
        assert_int_not_equal(pages[0] / SET_PAGES, pages[1] / SET_PAGES);
        make_keys(keys, 0, 1 + SET_PAGES);
        assert_int_equal(publish_pages(a, &p, 1, sealed, &n, NULL), 0);
        assert_int_equal(release_pages(a, pages, 1 + SET_PAGES, 1, NULL), 0);
        b = enter(f->b, "x");
        assert_int_equal(lease_pages(b, 1, 1, &page, &f->d), 0);
        assert_int_equal(count_hits(a, 0, 1 + SET_PAGES), 1);
}

CORE_SCENE(test_of_equals_the_last, 2, 2, 2)
{
        struct member *mb;
        struct attach *a = enter(f->a, "x");
        uint32_t page;

        fill(a, 2);
        mb = join(f->b);
        assert_int_equal(lease_pages(open_ns(mb, "x"), 1, 1, &page, &f->d), 0);
        assert_int_equal(count_hits(a, 0, SET_PAGES), SET_PAGES);
        assert_int_equal(count_hits(a, 100, SET_PAGES), 0);
}

/* A set is left alone where something below a page of it is pinned, in whichever set that is. */
CORE_SCENE(test_pinned_descendant_elsewhere, 2, 2, 2)
{
        uint32_t pages[2 * SET_PAGES], lease[SET_PAGES], n;
        struct attach *a = enter(f->a, "x");
        struct attach *b;
        struct extent_handle handle;

        publish_chain(a, 0, 2 * SET_PAGES, pages);
        /* Only the deepest page stays pinned; its set is mapped, the other one isn't. */
        n = pages[2 * SET_PAGES - 1] / SET_PAGES;
        assert_int_equal(attach_map_set(a, n, 0, 1, &handle, NULL), 1);
        assert_int_equal(release_pages(a, pages, 2 * SET_PAGES - 1, 1, NULL), 0);
        b = enter(f->b, "x");
        assert_int_equal(lease_pages(b, 1, 1, lease, &f->d), KVL_STATUS_FULL);
        assert_int_equal(count_hits(a, 0, 2 * SET_PAGES), 2 * SET_PAGES);
        fixture_check(f);
        assert_int_equal(release_pages(a, pages + 2 * SET_PAGES - 1, 1, 1, NULL), 0);
        assert_int_equal(lease_pages(b, 1, 1, lease, &f->d), 0);
        /* Everything below the set's pages went with it, also out of the mapped set. */
        assert_int_equal(count_hits(a, 0, 2 * SET_PAGES), 0);
}

CORE_SCENE(test_lower_limit_evicts, 8, 4, 4)
{
        struct tenant_attrs attrs;
        struct attach *a = enter(f->a, "x");

        fill(a, 4);
        attrs = f->a->attrs;
        attrs.limit_bytes = 2 * SET_BYTES;
        assert_int_equal(tenant_set_attrs(f->a, &attrs, &f->d), 0);
        assert_int_equal(f->a->account.charged_bytes, 2 * SET_BYTES);
        map_all(a);
        attrs.limit_bytes = 0;
        assert_int_equal(tenant_set_attrs(f->a, &attrs, &f->d), 0);
        assert_true(f->a->account.charged_bytes > 0); /* mapped: kept */
}

/* Sets over a lowered limit are freed when the member that maps them leaves. */
CORE_SCENE(test_lowered_limit_is_met_later, 8, 4, 4)
{
        struct tenant_attrs attrs;
        struct member *m;
        struct attach *a;

        m = join(f->a);
        a = open_ns(m, "x");
        fill(a, 4);
        map_all(a);
        attrs = f->a->attrs;
        attrs.limit_bytes = 2 * SET_BYTES;
        assert_int_equal(tenant_set_attrs(f->a, &attrs, &f->d), 0);
        assert_int_equal(f->a->account.charged_bytes, 4 * SET_BYTES);
        member_free(m);
        assert_int_equal(f->a->account.charged_bytes, 2 * SET_BYTES);
        fixture_check(f);
        a = enter(f->a, "x");
        map_all(a);
        attrs.limit_bytes = SET_BYTES;
        assert_int_equal(tenant_set_attrs(f->a, &attrs, &f->d), 0);
        assert_int_equal(f->a->account.charged_bytes, 2 * SET_BYTES);
        attach_close(a);
        assert_int_equal(f->a->account.charged_bytes, SET_BYTES);
}

CORE_SCENE(test_stale_pages_are_swept_for_a_lease, 2, 1, 1)
{
        struct attach *a = enter(f->a, "x");
        uint32_t pages[SET_PAGES];
        uint64_t n;

        fill(a, 1);
        assert_int_equal(ns_invalidate(a->ns, CAUSE_NAMESPACE, &n), 0);
        assert_int_equal(n, SET_PAGES);
        assert_int_equal(f->n_stale, 1);
        assert_int_equal(lease_pages(a, SET_PAGES, 1, pages, &f->d), 0);
        assert_int_equal(f->a->counters.evictions, 0);
}

/* ---- clients that share memory --------------------------------------------------------------- */

/* Opens the namespace with a segment. */
static struct attach *open_shared(struct member *m, const char *name)
{
        struct attach *a = open_ns(m, name);

        assert_int_equal(attach_share(a, NULL), 0);
        return a;
}

/* A page that is pinned only in a segment keeps its set from any lease: of the namespace, of
 * another one of the tenant, and of another tenant. */
CORE_SCENE(test_pinned_in_a_segment_elsewhere, 3, 2, 3)
{
        uint32_t pages[2 * SET_PAGES], lease[SET_PAGES];
        struct attach *a, *other, *b;
        struct member *ma;

        ma = join(f->a);
        a = open_shared(ma, "x");
        publish_chain(a, 0, 2 * SET_PAGES, pages);
        a->share.counters[pages[SET_PAGES - 1]]++;
        a->share.counters[pages[2 * SET_PAGES - 1]]++;
        assert_int_equal(release_pages(a, pages, 2 * SET_PAGES, 1, NULL), 0);
        /* By limit, by budget. */
        other = open_ns(ma, "y");
        assert_int_equal(lease_pages(other, 1, 1, lease, &f->d), KVL_STATUS_QUOTA);
        b = enter(f->b, "x");
        assert_int_equal(lease_pages(b, SET_PAGES, 1, lease, &f->d), 0);
        assert_int_equal(lease_pages(b, 1, 1, lease, &f->d), KVL_STATUS_FULL);
        assert_int_equal(count_hits(a, 0, 2 * SET_PAGES), 2 * SET_PAGES);
        fixture_check(f);
        /* Only the deeper set is evicted, though the daemon got no message of the unpin. */
        a->share.counters[pages[2 * SET_PAGES - 1]]--;
        assert_int_equal(lease_pages(other, 1, 1, lease, &f->d), 0);
        assert_int_equal(count_hits(a, 0, 2 * SET_PAGES), SET_PAGES);
}

/* Dropped from the cache under a reader that has gone since: free without being told. */
TEST(test_detached_is_looked_at_first)
{
        struct attach *a, *other;
        uint32_t pages[1], lease;
        uint8_t key[KEY_BYTES];
        struct fixture f;
        uint64_t n;

        fixture_start(&f, 2, 2, 2);
        other = enter(f.a, "y");
        fill(other, 1);
        a = open_shared(other->member, "x");
        publish_chain(a, 0, 1, pages);
        a->share.counters[pages[0]]++;
        assert_int_equal(release_pages(a, pages, 1, 1, NULL), 0);
        make_keys(key, 0, 1);
        assert_int_equal(invalidate_key(a, key, &n, NULL), 0);
        a->share.counters[pages[0]]--;
        assert_int_equal(ns_page(a->ns, pages[0])->state, PAGE_DETACHED);
        assert_int_equal(lease_pages(open_ns(other->member, "z"), 1, 1, &lease, &f.d), 0);
        assert_int_equal(a->ns->device.n_sets, 0);
        assert_int_equal(count_hits(other, 0, SET_PAGES), SET_PAGES);
        fixture_end(&f);
}

/* A stale page under a reader: its set can't go, so what is cached beside it is left alone. */
CORE_SCENE(test_stale_page_pinned_in_a_segment, 1, 1, 1)
{
        uint32_t pages[SET_PAGES / 2], lease;
        struct member *ma, *mb;
        struct attach *a;
        uint64_t n;

        ma = join(f->a);
        a = open_shared(ma, "x");
        publish_chain(a, 0, SET_PAGES / 2, pages);
        a->share.counters[pages[0]]++;
        assert_int_equal(release_pages(a, pages, SET_PAGES / 2, 1, NULL), 0);
        assert_int_equal(ns_invalidate(a->ns, CAUSE_NAMESPACE, &n), 0);
        cache_chain(a, 100, SET_PAGES / 2);
        assert_int_equal(a->ns->catalog.n_stale, SET_PAGES / 2);
        mb = join(f->b);
        assert_int_equal(lease_pages(open_ns(mb, "x"), 1, 1, &lease, &f->d), KVL_STATUS_FULL);
        assert_int_equal(count_hits(a, 100, SET_PAGES / 2), SET_PAGES / 2);
}

static void refill(struct attach *a, uint32_t n)
{
        uint64_t before = a->ns->clients.n_ready;

        assert_true(magazine_refill(a, n, 1));
        assert_int_equal(a->ns->clients.n_ready, before + n);
}

/* A set that holds nothing but what lies in a magazine goes back, and the cached one beside it
 * needn't go. */
CORE_SCENE(test_magazine_is_enough, 8, 2, 2)
{
        struct attach *a, *other;
        struct member *m;

        m = join(f->a);
        a = open_shared(m, "x");
        other = open_ns(m, "y");
        fill(other, 1);
        refill(a, 2);
        assert_int_equal(f->a->account.charged_bytes, 2 * SET_BYTES);
        assert_true(reclaim_sets_of_tenant(f->a, TIER_DEVICE, NULL, SET_BYTES));
        assert_int_equal(a->ns->clients.n_ready, 0);
        assert_int_equal(a->ns->device.n_sets, 0);
        assert_int_equal(count_hits(other, 0, SET_PAGES), SET_PAGES);
        assert_int_equal(f->a->counters.evictions, 0);
        fixture_check(f);
        /* The client finds nothing to claim. */
        for (uint32_t i = 0; i < SHM_MAGAZINE_SLOTS; i++)
                assert_int_equal(a->share.magazine[i], 0);
}

/* Magazines give pages back to another tenant, too, by a device's budget. */
CORE_SCENE(test_magazine_is_enough_for_others, 3, 3, 3)
{
        struct member *ma, *mb;
        struct pool_share *b;
        struct attach *a;

        ma = join(f->a);
        a = open_shared(ma, "x");
        cache_chain(a, 0, 2 * SET_PAGES);
        refill(a, 3);
        mb = join(f->b);
        assert_int_equal(f->a->account.charged_bytes, 3 * SET_BYTES);
        b = open_ns(mb, "x")->ns->device.share;
        region_note_want(b, SET_BYTES, SET_BYTES, 1);
        assert_true(region_make_room(b, NULL, SET_BYTES, NULL));
        assert_int_equal(a->ns->clients.n_ready, 0);
        assert_int_equal(f->a->account.charged_bytes, 2 * SET_BYTES);
        assert_int_equal(count_hits(a, 0, 2 * SET_PAGES), 2 * SET_PAGES);
        assert_int_equal(f->a->counters.evictions, 0);
}

static uint32_t claim(struct attach *a)
{
        uint32_t slot = 0;

        while (a->share.magazine[slot] == 0)
                slot++;
        return atomic_exchange(&a->share.magazine[slot], 0) - 1;
}

/* A chain over two sets, the second with two pages in a magazine; one set has to go. Returns the
 * pages of the chain that are left. */
static uint32_t reclaim_beside_magazine(bool claims)
{
        struct fixture f;
        struct attach *a;
        struct member *m;
        uint32_t page, n;

        fixture_start(&f, 2, 2, 2);
        m = join(f.a);
        a = open_shared(m, "x");
        cache_chain(a, 0, 2 * SET_PAGES - 2);
        refill(a, 2);
        assert_int_equal(a->ns->device.n_sets, 2);
        page = claims ? claim(a) : PAGE_NONE;
        assert_true(reclaim_sets_of_tenant(f.a, TIER_DEVICE, NULL, SET_BYTES));
        assert_int_equal(a->ns->clients.n_ready, 0);
        assert_int_equal(a->ns->device.n_sets, 1);
        if (claims)
                assert_int_equal(ns_page(a->ns, page)->state, PAGE_GRANTED);
        n = count_hits(a, 0, 2 * SET_PAGES - 2);
        fixture_check(&f);
        member_free(m);
        fixture_end(&f);
        return n;
}

TEST(test_magazine_in_a_cached_set)
{
        /* Unclaimed pages keep no set: the end of the chain is evicted. */
        assert_int_equal(reclaim_beside_magazine(false), SET_PAGES);
        /* Claimed pages do, without a message: the dearer set is evicted, with all pages below it.
         */
        assert_int_equal(reclaim_beside_magazine(true), 0);
}

/* Four extents, and no more. */
static int admit_four(const struct ns *ns, enum tier_kind kind, struct detail *d, void *data)
{
        return ns->store->memory.n_extents < 4 ? 0 : detail_set(d, -EMFILE, "no descriptors");
}

/* Where descriptors are in the way, not memory, sets of the tenant's other namespaces give way all
 * the same; what is mapped doesn't. */
CORE_SCENE(test_descriptors_of_own_sets, 8, 8, 8)
{
        uint32_t pages[2 * SET_PAGES];
        struct attach *a, *b;

        f->store.owner.admit_extents = admit_four;
        a = enter(f->a, "x");
        b = open_ns(a->member, "y");
        fill(a, 4);
        assert_int_equal(lease_pages(b, SET_PAGES, 5, pages, &f->d), 0);
        assert_int_equal(f->store.memory.n_extents, 4);
        assert_int_equal(a->ns->device.n_sets, 3);
        map_all(a);
        assert_int_equal(lease_pages(b, SET_PAGES, 6, pages, &f->d), -EMFILE);
        assert_string_equal(f->d.text, "no descriptors");
        assert_int_equal(a->ns->device.n_sets, 3);
}

/* ---- tenants with more pages than are looked at in one turn ---- */

#define MANY_SETS 20 /* have more than 128 slices of a page */
#define SO_MANY   (WEIGHED_BELOW / SET_PAGES + 4)

/* Pages below a set that reclaim.c follows, besides the set's own. */
#define WEIGHED_BELOW 1024

/* Fills n sets. With one client 32 looks are enough for two sets of these each time. */
static struct attach *start_many(struct fixture *f, unsigned n, struct member **ret_m)
{
        fixture_start(f, n, n, n);
        f->store.drop_slice_pages = 1;
        *ret_m = join(f->a);
        return open_shared(*ret_m, "x");
}

/* The first sets are held: the search doesn't stay at them. */
TEST(test_others_are_looked_at_next)
{
        uint32_t pages[SET_PAGES], lease;
        struct member *ma;
        struct attach *a, *b;
        struct fixture f;

        a = start_many(&f, MANY_SETS, &ma);
        fill(a, MANY_SETS - 4);
        for (unsigned i = MANY_SETS - 4; i < MANY_SETS; i++) {
                publish_chain(a, i * 100, SET_PAGES, pages);
                if (i % 2)
                        continue;
                a->share.counters[pages[SET_PAGES - 1]]++;
                assert_int_equal(release_pages(a, pages, SET_PAGES, 1, NULL), 0);
        }
        b = enter(f.b, "x");
        assert_int_equal(lease_pages(b, 1, 1, &lease, &f.d), KVL_STATUS_FULL);
        assert_int_equal(f.a->counters.evictions, 0);
        assert_int_equal(lease_pages(b, 1, NSEC_PER_MSEC, &lease, &f.d), 0);
        assert_int_equal(count_hits(a, (MANY_SETS - 5) * 100, SET_PAGES), 0);
        assert_int_equal(f.a->counters.evictions, SET_PAGES);
        fixture_end(&f);
}

/* The set that isn't mapped has the text's beginning; its end is pinned elsewhere, in a segment. */
TEST(test_what_is_below_is_looked_at)
{
        struct member *ma;
        struct attach *a, *b;
        struct extent_handle handle;
        struct fixture f;
        uint32_t pages[2 * SET_PAGES], lease, first;

        a = start_many(&f, MANY_SETS, &ma);
        publish_chain(a, 5000, 2 * SET_PAGES, pages);
        a->share.counters[pages[2 * SET_PAGES - 1]]++;
        assert_int_equal(release_pages(a, pages, 2 * SET_PAGES, 1, NULL), 0);
        fill(a, MANY_SETS - 2);
        first = pages[0] / SET_PAGES;
        for (uint32_t i = 0; i < MANY_SETS; i++)
                assert_true(i == first || attach_map_set(a, i, 0, 1, &handle, NULL) == 1);
        b = enter(f.b, "x");
        assert_int_equal(lease_pages(b, 1, 1, &lease, &f.d), KVL_STATUS_FULL);
        assert_int_equal(count_hits(a, 5000, 2 * SET_PAGES), 2 * SET_PAGES);
        a->share.counters[pages[2 * SET_PAGES - 1]]--;
        assert_int_equal(lease_pages(b, 1, NSEC_PER_MSEC, &lease, &f.d), 0);
        assert_int_equal(count_hits(a, 5000, 2 * SET_PAGES), 0);
        assert_int_equal(f.a->counters.evictions, 2 * SET_PAGES);
        fixture_end(&f);
}

/* Very much is built upon one set: it isn't looked at, and stays. */
TEST(test_much_is_built_upon_it)
{
        struct publish p = {.n = SET_PAGES, .last_tokens = PAGE_TOKENS};
        uint32_t pages[SET_PAGES], sealed[SET_PAGES], n, lease;
        uint64_t n_pages;
        uint8_t keys[(SET_PAGES + 1) * KEY_BYTES];
        struct extent_handle handle;
        struct member *ma;
        struct attach *a, *b;
        struct fixture f;

        a = start_many(&f, SO_MANY, &ma);
        cache_chain(a, 0, SET_PAGES);
        p.pages = pages;
        p.keys = keys + KEY_BYTES;
        p.parent_key = keys;
        for (unsigned i = 1; i < SO_MANY; i++) {
                make_keys(keys, i * SET_PAGES - 1, SET_PAGES + 1);
                assert_int_equal(lease_pages(a, SET_PAGES, 1, pages, NULL), 0);
                assert_int_equal(publish_pages(a, &p, 1, sealed, &n, NULL), 0);
                assert_int_equal(release_pages(a, pages, SET_PAGES, 1, NULL), 0);
        }
        for (uint32_t i = 1; i < SO_MANY; i++)
                assert_int_equal(attach_map_set(a, i, 0, 1, &handle, NULL), 1);
        b = enter(f.b, "x");
        assert_int_equal(lease_pages(b, 1, 1, &lease, &f.d), KVL_STATUS_FULL);
        assert_int_equal(f.a->counters.evictions, 0);
        /* With less of it than that all of it goes. */
        make_keys(keys, (SO_MANY - 5) * SET_PAGES, 1);
        assert_int_equal(invalidate_key(a, keys, &n_pages, NULL), 0);
        assert_int_equal(n_pages, 5 * SET_PAGES);
        assert_int_equal(lease_pages(b, 1, NSEC_PER_SEC, &lease, &f.d), 0);
        assert_int_equal(count_hits(a, 0, SET_PAGES), 0);
        fixture_end(&f);
}

/* Weights of sets that are out of date refuse no lease, if other sets are lighter since. */
TEST(test_lighter_since_weighed)
{
        uint32_t lease[SET_PAGES];
        struct member *ma;
        struct attach *a, *b;
        struct fixture f;

        a = start_many(&f, MANY_SETS, &ma);
        fill(a, MANY_SETS);
        map_all(a);
        attach_forget_mapped(a, MANY_SETS - 1);
        /* One that is weighed in vain. */
        a->share.counters[5 * SET_PAGES]++;
        attach_forget_mapped(a, 5);
        b = enter(f.b, "x");
        assert_int_equal(lease_pages(b, SET_PAGES, 1, lease, &f.d), 0);
        assert_int_equal(lease_pages(b, SET_PAGES, 1, lease, &f.d), KVL_STATUS_FULL);
        /* The member that mapped all sets unmaps one, and then leaves. */
        attach_forget_mapped(a, 3);
        assert_int_equal(lease_pages(b, SET_PAGES, 1, lease, &f.d), 0);
        assert_int_equal(count_hits(a, 300, SET_PAGES), 0);
        assert_int_equal(lease_pages(b, 1, 1, lease, &f.d), KVL_STATUS_FULL);
        member_free(ma);
        while (tasks_work(&f.store))
                ;
        /* The fair number of sets. */
        for (unsigned i = 2; i < MANY_SETS / 2; i++)
                assert_int_equal(lease_pages(b, SET_PAGES, 1, lease, &f.d), 0);
        assert_int_equal(f.a->counters.evictions, MANY_SETS / 2 * SET_PAGES);
        fixture_end(&f);
}
