/* Drops in slices: what one slice may take, what is found between two, and what may come between.
 */
#include "daemon/core/clients/grants.h"
#include "daemon/core/core.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/moves/renumber.h"
#include "daemon/core/memory/tasks.h"
#include "daemon/core/reclaim/reclaim.h"
#include "daemon/core/requests/invalidate.h"
#include "tests/unit/session-fixture.h"

struct waiting {
        struct drop drop;
        unsigned n_done;
};

struct bench {
        struct fixture f;
        struct member *m;
        struct attach *a;
        struct ns *ns;
};

static void on_done(struct drop *d)
{
        assert_true(drop_is_over(d));
        container_of(d, struct waiting, drop)->n_done++;
}

/* A slice is so many looks. */
static void begin(struct bench *w, unsigned slice)
{
        fixture_start(&w->f, 32, 16, 16);
        w->f.store.drop_slice_pages = slice;
        w->m = join(w->f.a);
        w->a = open_ns(w->m, "x");
        w->ns = w->a->ns;
}

static void end(struct bench *w)
{
        assert_false(tasks_are_left(&w->f.store));
        fixture_check(&w->f);
        member_free(w->m);
        fixture_end(&w->f);
}

#define SCENE(fn, ...) TEST_ON(fn, struct bench, w, begin, end, ##__VA_ARGS__)

static uint64_t n_cached(const struct bench *w)
{
        return ns_count_findable(w->ns);
}

static uint32_t find(const struct bench *w, unsigned key)
{
        uint8_t bytes[KEY_BYTES];

        make_keys(bytes, key, 1);
        return ns_find_page(w->ns, bytes);
}

/* n texts of one page below the page with key `parent`. */
static void cache_below(struct bench *w, unsigned parent, unsigned first, unsigned n)
{
        for (unsigned i = 0; i < n; i++)
                append(w->a, 0, parent, first + i, 1);
}

/* Begins to drop the subtree below a key, which takes more than one slice. */
static void drop_from(struct bench *w, unsigned key, struct waiting *d)
{
        uint8_t bytes[KEY_BYTES];

        make_keys(bytes, key, 1);
        d->n_done = 0;
        assert_int_equal(drop_key(&d->drop, w->a, bytes, NULL), 0);
        assert_false(drop_is_over(&d->drop));
        drop_queue(&d->drop, on_done);
        fixture_check(&w->f);
}

/* One slice, whose it is. Drops no more than it may. */
static struct tenant *slice(struct bench *w)
{
        uint64_t before = n_cached(w);
        struct tenant *t = tasks_work(&w->f.store);

        assert_true(before - n_cached(w) <= w->f.store.drop_slice_pages);
        fixture_check(&w->f);
        return t;
}

static unsigned run(struct bench *w)
{
        unsigned n = 0;

        while (slice(w))
                n++;
        return n;
}

/* A text of 60 pages, and 20 that continue its middle. Every visited page counts, also on the way
 * down. None of its pages is found afterwards, under any key; other texts are. */
SCENE(test_slices, 4)
{
        struct waiting d;
        unsigned n;

        cache_chain(w->a, 0, 60);
        cache_below(w, 29, 100, 20);
        cache_below(w, 9, 200, 3);
        drop_from(w, 10, &d);
        assert_int_equal(n_cached(w), 83); /* the first slice went down */
        n = run(w);
        /* Down to the deepest leaf and up again, at four a slice: neither less nor much more. */
        assert_in_range(n, 2 * 70 / 4 - 20, 2 * 70 / 4 + 4);
        assert_int_equal(d.n_done, 1);
        assert_int_equal(d.drop.n_pages, 70);
        assert_int_equal(n_cached(w), 13);
        for (unsigned i = 10; i < 60; i++)
                assert_int_equal(find(w, i), PAGE_NONE);
        for (unsigned i = 100; i < 120; i++)
                assert_int_equal(find(w, i), PAGE_NONE);
        assert_int_equal(count_hits(w->a, 0, 60), 10);
}

/* Moves the page of this key to another index, like compaction and tiers. */
static void move_page(struct bench *w, unsigned key)
{
        uint32_t to, from = find(w, key);

        assert_int_equal(lease_pages(w->a, 1, 1, &to, NULL), 0);
        grants_remove(w->a->grants, to);
        renumber_page(w->ns, from, to, 0);
        idle_sets_drain(&w->f.store);
        ns_page(w->ns, to)->owner = 0;
        assert_int_equal(find(w, key), to);
        fixture_check(&w->f);
}

SCENE(test_moved_meanwhile, 4)
{
        struct waiting d;

        cache_chain(w->a, 0, 20);
        drop_from(w, 5, &d);
        for (unsigned i = 5; i < 20; i++) /* wherever it is by now */
                move_page(w, i);
        while (slice(w))
                for (unsigned i = 5; i < 20; i++)
                        if (find(w, i) != PAGE_NONE)
                                move_page(w, i);
        assert_int_equal(d.n_done, 1);
        assert_int_equal(d.drop.n_pages, 15);
        assert_int_equal(n_cached(w), 5);
}

/* Everything becomes unfindable in the middle; the namespace goes. */
SCENE(test_namespace_meanwhile, 4)
{
        uint64_t n_pages, n_kept;
        struct waiting d, e;

        cache_chain(w->a, 0, 20);
        drop_from(w, 0, &d);
        assert_int_equal(ns_invalidate(w->ns, CAUSE_NAMESPACE, &n_pages), 0);
        fixture_check(&w->f);
        cache_chain(w->a, 0, 20); /* of no drop's concern */
        assert_int_equal(d.n_done, 0);
        assert_ptr_equal(slice(w), w->f.a);
        assert_int_equal(d.n_done, 1);
        assert_int_equal(n_cached(w), 20);
        while (ns_sweep(w->ns, 100))
                ;
        idle_sets_drain(&w->f.store);
        drop_from(w, 0, &d);
        drop_from(w, 0, &e);
        attach_close(w->a);
        assert_int_equal(store_purge(&w->f.store, w->f.a, w->ns, true, &n_pages, &n_kept), 0);
        assert_true(d.n_done == 1 && e.n_done == 1);
}

SCENE(test_limit, 1)
{
        struct waiting d[DROPS_MAX];
        uint8_t key[KEY_BYTES];
        struct detail detail;
        struct drop more;

        cache_chain(w->a, 0, 20);
        for (unsigned i = 0; i < DROPS_MAX; i++)
                drop_from(w, 0, &d[i]);
        make_keys(key, 0, 1);
        assert_int_equal(drop_key(&more, w->a, key, &detail), -EAGAIN);
        assert_non_null(strstr(detail.text, "ask again"));
        assert_int_equal(drop_tag(&more, w->a, 1, &detail), -EAGAIN);
        (void)run(w);
        for (unsigned i = 0; i < DROPS_MAX; i++)
                assert_int_equal(d[i].n_done, 1);
        assert_int_equal(drop_key(&more, w->a, key, &detail), 0);
}

/* Tenants take turns, for any number of drops; so do the drops of a tenant. */
TEST_BARE(test_turns)
{
        struct waiting d[3], other;
        struct bench w, b;
        struct attach *own;
        struct member *m;

        begin(&w, 2);
        m = join(w.f.b);
        b = (struct bench){.a = open_ns(m, "y")};
        for (unsigned i = 0; i < 3; i++)
                cache_chain(w.a, i * 100, 20);
        cache_chain(b.a, 0, 20);
        for (unsigned i = 0; i < 3; i++)
                drop_from(&w, i * 100, &d[i]);
        own = w.a;
        w.a = b.a; /* whose namespace is asked */
        drop_from(&w, 0, &other);
        w.a = own;
        for (unsigned i = 0; i < 10; i++) {
                assert_ptr_equal(tasks_work(&w.f.store), w.f.a);
                assert_ptr_equal(tasks_work(&w.f.store), w.f.b);
        }
        fixture_check(&w.f);
        while (tasks_work(&w.f.store))
                ;
        assert_true(d[0].n_done == 1 && d[1].n_done == 1 && d[2].n_done == 1);
        assert_int_equal(other.n_done, 1);
        member_free(m);
        end(&w);
}
