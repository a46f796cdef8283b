#include "daemon/core/clients/attach.h"
#include "daemon/core/memory/tasks.h"
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
