/* Expiry of unused pages (daemon/core/cache/expire.h), and pages that are freed ahead of leases
 * (daemon/core/reclaim/stock.h, free_ahead). */
#include "base/clock.h"
#include "daemon/core/cache/expire.h"
#include "daemon/core/cache/history.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/found.h"
#include "daemon/core/core.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/reclaim/stock.h"
#include "daemon/core/state/shared.h"
#include "daemon/core/requests/invalidate.h"
#include "tests/unit/core-fixture.h"

#define SEC NSEC_PER_SEC

struct world {
        struct fixture f;
        struct member *m;
        struct attach *a;
};

static void start(struct world *w, uint64_t expire_sec, uint64_t unused_sec)
{
        fixture_start(&w->f, 8, 8, 8);
        w->f.a->attrs.expire_nsec = expire_sec * SEC;
        w->f.a->attrs.expire_unused_nsec = unused_sec * SEC;
        w->m = join(w->f.a);
        w->a = open_ns(w->m, "n");
}

static void end(struct world *w)
{
        member_free(w->m);
        fixture_end(&w->f);
}

#define SCENE(fn, ...) TEST_ON(fn, struct world, w, start, end, ##__VA_ARGS__)

/* Like the daemon: runs a round if one is due, in small steps. */
static void pass(struct world *w, uint64_t now_sec)
{
        (void)expire_begin(&w->f.store, now_sec * SEC);
        while (store_work(&w->f.store, 3))
                ;
        fixture_check(&w->f);
}

/* The first page; pinned where `keep`. */
static uint32_t look_up(struct world *w, unsigned first, unsigned n, uint64_t now_sec, bool keep)
{
        uint8_t keys[64 * KEY_BYTES];
        uint32_t pages[64], found;
        uint64_t tokens;

        make_keys(keys, first, n);
        assert_int_equal(
                lookup_pages(w->a, keys, n, 0, now_sec * SEC, pages, &found, &tokens, NULL), 0);
        assert_int_equal(found, n);
        if (!keep)
                assert_int_equal(release_pages(w->a, pages, n, now_sec * SEC, NULL), 0);
        return pages[0];
}

/* A hit in shared memory, told afterwards: of its deepest page alone. */
static uint32_t touch(struct world *w, unsigned key, uint64_t now_sec)
{
        uint8_t bytes[KEY_BYTES];
        uint32_t page;

        make_keys(bytes, key, 1);
        page = ns_find_page(w->a->ns, bytes);
        touch_page(w->a, page, (uint32_t)ns_page(w->a->ns, page)->generation, 0, now_sec * SEC);
        return page;
}

static uint64_t n_cached(struct world *w)
{
        return ns_count_findable(w->a->ns);
}

SCENE(test_never, 0, 0)
{
        cache_chain(w->a, 0, 4);
        assert_int_equal(expire_deadline(&w->f.store), UINT64_MAX);
        assert_false(expire_begin(&w->f.store, 1000000 * SEC));
        pass(w, 1000000);
        assert_int_equal(n_cached(w), 4);
}

/* Not before its time, and at most a tenth of it later; a whole text, leaves first. */
SCENE(test_idle, 100, 0)
{
        store_set_now(&w->f.store, 1000 * SEC);
        cache_chain(w->a, 0, 20);
        for (uint64_t now = 1000; now < 1100; now++) {
                pass(w, now);
                assert_int_equal(n_cached(w), 20);
        }
        for (uint64_t now = 1100; now <= 1110; now++)
                pass(w, now);
        assert_int_equal(n_cached(w), 0);
        assert_int_equal(w->a->ns->counters.expired, 20);
        assert_int_equal(w->f.store.counters.pages_expired, 20);
        assert_int_equal(w->f.store.counters.evictions, 0);
        assert_int_equal(w->f.a->account.charged_bytes, 0); /* sets went with them */
}

/* A lookup keeps the whole text, though it notes only the deepest page. Pages beyond that expire.
 */
SCENE(test_used, 100, 0)
{
        store_set_now(&w->f.store, 1000 * SEC);
        cache_chain(w->a, 0, 8);
        touch(w, 4, 1060);
        for (uint64_t now = 1100; now < 1160; now++)
                pass(w, now);
        assert_int_equal(n_cached(w), 5);
        look_up(w, 0, 5, 1159, false);
        for (uint64_t now = 1160; now < 1259; now++)
                pass(w, now);
        assert_int_equal(n_cached(w), 5);
        for (uint64_t now = 1259; now <= 1270; now++)
                pass(w, now);
        assert_int_equal(n_cached(w), 0);
}

/* A leaf that goes speaks for its parent: this was used as lately as the leaf. */
SCENE(test_parent_as_fresh, 100, 0)
{
        uint8_t key[KEY_BYTES];
        uint64_t n;

        store_set_now(&w->f.store, 1000 * SEC);
        cache_chain(w->a, 0, 3);
        touch(w, 2, 1090);
        make_keys(key, 2, 1);
        assert_int_equal(invalidate_key(w->a, key, &n, NULL), 0);
        for (uint64_t now = 1100; now < 1190; now++)
                pass(w, now);
        assert_int_equal(n_cached(w), 2);
        for (uint64_t now = 1190; now <= 1200; now++)
                pass(w, now);
        assert_int_equal(n_cached(w), 0);
}

/* Pinned pages stay, over the socket and in a segment; their time begins when they are released. */
SCENE(test_pinned, 100, 0)
{
        uint32_t page, other;
        uint8_t key[KEY_BYTES];

        assert_int_equal(attach_share(w->a, &w->f.d), 0);
        store_set_now(&w->f.store, 1000 * SEC);
        cache_chain(w->a, 0, 1);
        cache_chain(w->a, 1, 1);
        cache_chain(w->a, 2, 1);
        make_keys(key, 1, 1);
        other = ns_find_page(w->a->ns, key);
        page = look_up(w, 0, 1, 1000, true);
        pins_add(&w->a->share, other);
        for (uint64_t now = 1000; now <= 1300; now++)
                pass(w, now);
        assert_int_equal(n_cached(w), 2);
        assert_int_equal(release_pages(w->a, &page, 1, 1300 * SEC, NULL), 0);
        atomic_fetch_sub(&w->a->share.counters[other], 1);
        for (uint64_t now = 1301; now < 1390; now++) /* as it was seen in the last round */
                pass(w, now);
        assert_int_equal(n_cached(w), 2);
        for (uint64_t now = 1390; now <= 1410; now++)
                pass(w, now);
        assert_int_equal(n_cached(w), 0);
}

/* Pages that were never found since their publish expire sooner. */
TEST(test_unused)
{
        struct explanation e;
        struct world w;
        uint8_t key[KEY_BYTES];
        uint64_t n;

        start(&w, 0, 20);
        store_set_now(&w.f.store, 1000 * SEC);
        cache_chain(w.a, 0, 4);
        cache_chain(w.a, 10, 4);
        touch(&w, 2, 1005); /* the 4th is never found */
        for (uint64_t now = 1010; now < 1020; now++)
                pass(&w, now);
        assert_int_equal(n_cached(&w), 8);
        for (uint64_t now = 1020; now <= 1022; now++)
                pass(&w, now);
        assert_int_equal(n_cached(&w), 3);
        make_keys(key, 12, 1);
        history_explain(w.a->ns, key, 1030 * SEC, &e);
        assert_int_equal(e.state, HISTORY_EXPIRED);
        assert_true(e.age_sec >= 8 && e.age_sec <= 10);
        pass(&w, 5000);
        assert_int_equal(n_cached(&w), 3);
        /* A lookup that found the third page found the first two. */
        make_keys(key, 2, 1);
        assert_int_equal(invalidate_key(w.a, key, &n, NULL), 0);
        pass(&w, 6000);
        assert_int_equal(n_cached(&w), 2);
        end(&w);
}

/* The namespace's setting takes precedence over the tenant's. */
SCENE(test_of_namespace, 1000, 0)
{
        w->a->ns->catalog.expiry.after_nsec = 10 * SEC;
        store_set_now(&w->f.store, 1000 * SEC);
        cache_chain(w->a, 0, 4);
        assert_int_equal(expire_nsec(w->a->ns), 10 * SEC);
        for (uint64_t now = 1000; now <= 1011; now++)
                pass(w, now);
        assert_int_equal(n_cached(w), 0);
}

/* ---- free_ahead ----------------------------------------------------------------------------- */

#define MSEC NSEC_PER_MSEC

static void lease_some(struct world *w, unsigned n, uint64_t now_msec, uint32_t *pages)
{
        assert_int_equal(lease_pages(w->a, n, now_msec * MSEC, pages, NULL), 0);
        stock_leased(w->a->ns, n, now_msec * MSEC);
}

TEST(test_free_ahead)
{
        struct world w;
        struct ns *ns;
        uint32_t pages[64];

        fixture_start(&w.f, 4, 4, 4);
        w.f.a->attrs.free_ahead = 25;
        w.m = join(w.f.a);
        w.a = open_ns(w.m, "n");
        ns = w.a->ns;
        cache_chain(w.a, 0, 16);
        stock_leased(ns, 1, 1000 * MSEC);
        /* There is memory to be had: nothing is evicted. */
        assert_int_equal(ns_n_room(ns), 0);
        assert_true(stock_work(&w.f.store, 1005 * MSEC));
        assert_int_equal(ns->counters.evictions, 0);
        lease_some(&w, 2, 1010, pages);
        while (stock_work(&w.f.store, 1010 * MSEC) && ns->device.n_sets < 4)
                cache_chain(w.a, 100 * ns->device.n_sets, 8);
        cache_chain(w.a, 1000, (unsigned)ns_n_room(ns));
        assert_int_equal(ns->device.n_sets, 4);
        assert_int_equal(ns->counters.evictions, 0);
        assert_int_equal(ns_n_room(ns), 0);

        /* All pages are held. While a client leases, a quarter of the 32 pages is freed. */
        assert_true(stock_work(&w.f.store, 1100 * MSEC));
        assert_int_equal(ns_n_room(ns), 8);
        assert_int_equal(ns->counters.evictions, 8);
        fixture_check(&w.f);
        lease_some(&w, 3, 1200, pages + 2); /* 5 are left: more than half */
        assert_true(stock_work(&w.f.store, 1210 * MSEC));
        assert_int_equal(ns->counters.evictions, 8);
        lease_some(&w, 2, 1300, pages + 5); /* 3 are left */
        assert_true(stock_work(&w.f.store, 1310 * MSEC));
        assert_int_equal(ns_n_room(ns), 8);
        assert_int_equal(ns->counters.evictions, 13);

        /* No leases for a while: no page is freed. */
        lease_some(&w, 6, 1400, pages + 7);
        assert_false(stock_work(&w.f.store, 5000 * MSEC));
        assert_int_equal(ns->counters.evictions, 13);
        assert_int_equal(ns->reclaim.stock.n_to_free, 0);
        end(&w);
}
