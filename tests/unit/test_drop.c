/* Drops in slices: what one slice may take, what is found between two, and what may come between.
 */
#include "daemon/core/cache/tag.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/core.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/moves/renumber.h"
#include "daemon/core/memory/tasks.h"
#include "daemon/core/reclaim/sweep.h"
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

/* Between two slices the text is found up to where it goes on, as after evictions. */
SCENE(test_found_between, 3)
{
        unsigned before = 40, now;
        struct waiting d;

        cache_chain(w->a, 0, 40);
        drop_from(w, 0, &d);
        while (slice(w)) {
                now = count_hits(w->a, 0, 40);
                assert_true(now <= before && now == n_cached(w));
                before = now;
                for (unsigned i = 0; i < 40; i++)
                        assert_int_equal(find(w, i) != PAGE_NONE, i < now);
        }
        assert_int_equal(before, 0);
}

/* A small drop is over at once. */
SCENE(test_at_once, 16)
{
        uint8_t key[KEY_BYTES];
        struct drop d;

        cache_chain(w->a, 0, 8);
        make_keys(key, 0, 1);
        assert_int_equal(drop_key(&d, w->a, key, NULL), 0);
        assert_true(drop_is_over(&d) && d.n_pages == 8);
        assert_int_equal(drop_key(&d, w->a, key, NULL), 0);
        assert_true(drop_is_over(&d) && d.n_pages == 0);
        assert_int_equal(drop_tag(&d, w->a, 5, NULL), 0);
        assert_true(drop_is_over(&d) && d.n_pages == 0);
}

/* Pages are evicted where the drop goes on, or all of them. */
TEST_BARE(test_evicted_meanwhile)
{
        struct waiting d;
        struct bench w;

        for (unsigned n_evicted = 1; n_evicted <= 20; n_evicted++) {
                begin(&w, 7);
                cache_chain(w.a, 0, 20);
                drop_from(&w, 0, &d);
                for (unsigned n = n_evicted < 10 ? 2 : 0; n > 0; n--)
                        (void)slice(&w); /* it goes up by now */
                for (unsigned n = 0; n < n_evicted && n_cached(&w) > 0; n++) {
                        uint32_t leaf = tree_leaf_below(&w.ns->tree, find(&w, 0));

                        assert_true(ns_evict_leaf(w.ns, leaf, NULL));
                        idle_sets_drain(&w.f.store);
                        fixture_check(&w.f);
                }
                (void)run(&w);
                assert_int_equal(d.n_done, 1);
                assert_int_equal(n_cached(&w), 0);
                end(&w);
        }
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

SCENE(test_published_meanwhile, 5)
{
        struct waiting d;

        cache_chain(w->a, 0, 40);
        drop_from(w, 4, &d);
        for (unsigned i = 0; i < 8; i++) {
                cache_below(w, 4 + i % 2, 100 + i, 1);
                cache_below(w, 3, 200 + i, 1);
                assert_non_null(slice(w));
        }
        (void)run(w);
        assert_int_equal(d.n_done, 1);
        assert_int_equal(d.drop.n_pages, 36 + 8);
        assert_int_equal(n_cached(w), 4 + 8);
        /* Over again: that is another text. */
        append(w->a, 0, 3, 4, 2);
        assert_false(tasks_are_left(&w->f.store));
        assert_int_equal(count_hits(w->a, 0, 6), 6);
}

/* Readers keep the page, but it can't be found. */
SCENE(test_pinned, 3)
{
        struct waiting d;
        uint32_t pages[16];

        publish_chain(w->a, 0, 16, pages);
        drop_from(w, 0, &d);
        assert_int_equal(release_pages(w->a, pages, 4, 1, NULL), 0);
        (void)run(w);
        assert_int_equal(n_cached(w), 0);
        assert_int_equal(w->ns->device.n_pages[PAGE_DETACHED], 12);
        assert_int_equal(release_pages(w->a, pages + 4, 12, 1, NULL), 0);
        assert_int_equal(w->ns->device.n_pages[PAGE_DETACHED], 0);
}

/* Two that meet: one in the other, one tag through both. */
SCENE(test_two, 2)
{
        struct waiting outer, inner, tag = {.n_done = 0};
        uint32_t page;

        cache_chain(w->a, 0, 24);
        cache_chain(w->a, 50, 6);
        assert_int_equal(tag_reserve(w->ns), 0);
        page = find(w, 20);
        tag_add(w->ns, page, 9);
        tag_add(w->ns, find(w, 51), 9);
        drop_from(w, 0, &outer);
        drop_from(w, 10, &inner);
        assert_int_equal(drop_tag(&tag.drop, w->a, 9, NULL), 0);
        drop_queue(&tag.drop, on_done);
        (void)run(w);
        assert_true(outer.n_done == 1 && inner.n_done == 1 && tag.n_done == 1);
        assert_int_equal(outer.drop.n_pages + inner.drop.n_pages + tag.drop.n_pages, 24 + 5);
        assert_int_equal(n_cached(w), 1);
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

/* The rest of a session: no client waits for it, and it ends where another session uses a page. */
SCENE(test_text, 4)
{
        uint32_t s, t;

        s = open_session(w->a, "s");
        append(w->a, s, ROOT, 0, 40);
        truncate_pages(w->a, s, 2, 0, 38);
        assert_int_equal(n_cached(w), 40 - 4);
        assert_int_equal(info_of(w->a, s).n_pages, 2);
        (void)run(w);
        assert_int_equal(n_cached(w), 2);
        assert_int_equal(count_hits(w->a, 0, 40), 2);

        append(w->a, s, 1, 2, 38);
        assert_int_equal(session_close(w->a, s, true, 1, NULL), 0);
        t = open_session(w->a, "t");
        append(w->a, t, 9, 100, 1);
        (void)run(w);
        assert_int_equal(count_hits(w->a, 0, 40), 10);
        expect_pages(w->a, t, "0@0 1@1 2@2 3@3 4@4 5@5 6@6 7@7 8@8 9@9 100@10");
}
