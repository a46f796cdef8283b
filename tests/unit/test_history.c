/* The fate of keys (daemon/core/cache/history.h). */
#include "base/clock.h"
#include "daemon/core/cache/history.h"
#include "daemon/core/clients/announce.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/core.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/shared.h"
#include "tests/unit/core-fixture.h"

#define SEC NSEC_PER_SEC

static struct explanation explain(struct attach *a, unsigned key, uint64_t now_sec)
{
        struct explanation e;
        uint8_t bytes[KEY_BYTES];

        make_keys(bytes, key, 1);
        history_explain(a->ns, bytes, now_sec * SEC, &e);
        return e;
}

static uint64_t invalidate(struct attach *a, unsigned key)
{
        uint8_t bytes[KEY_BYTES];
        uint64_t n = 0;

        make_keys(bytes, key, 1);
        assert_int_equal(invalidate_key(a, bytes, &n, NULL), 0);
        return n;
}

TEST(test_cached)
{
        struct fixture f;
        struct attach *a;
        struct explanation e;

        fixture_start(&f, 4, 4, 4);
        a = enter(f.a, "n");
        store_set_now(&f.store, 100 * SEC);
        cache_chain(a, 0, 2);
        e = explain(a, 7, 100);
        assert_int_equal(e.state, HISTORY_NEVER_SEEN);
        assert_int_equal(e.page, PAGE_NONE);

        e = explain(a, 1, 130);
        assert_int_equal(e.state, HISTORY_CACHED);
        assert_int_equal(e.age_sec, 30);
        assert_int_equal(e.unused_sec, 30);
        assert_int_equal(e.client_id, a->member->id);
        assert_int_equal(count_hits(a, 0, 2), 2); /* at 130 */
        e = explain(a, 1, 140);
        assert_int_equal(e.age_sec, 40);
        assert_int_equal(e.unused_sec, 10);
        fixture_end(&f);
}

/* Evicted for the tenant's own lease, then for another tenant's. */
TEST(test_evicted)
{
        struct fixture f;
        struct member *mb;
        struct attach *a, *b;
        struct explanation e;
        uint32_t pages[64];

        fixture_start(&f, 2, 2, 2);
        mb = join(f.b);
        a = enter(f.a, "n");
        store_set_now(&f.store, 10 * SEC);
        cache_chain(a, 0, 16);
        store_set_now(&f.store, 20 * SEC);
        assert_int_equal(lease_pages(a, 1, 20 * SEC, pages, NULL), 0);
        e = explain(a, 15, 25);
        assert_int_equal(e.state, HISTORY_EVICTED);
        assert_ptr_equal(e.by, f.a);
        assert_int_equal(e.age_sec, 5);
        assert_int_equal(e.client_id, a->member->id);
        assert_int_equal(explain(a, 14, 25).state, HISTORY_CACHED);

        assert_int_equal(free_pages(a, pages, 1, NULL), 0);
        b = open_ns(mb, "n");
        assert_int_equal(lease_pages(b, 8, 30 * SEC, pages, NULL), 0);
        e = explain(a, 14, 30);
        assert_int_equal(e.state, HISTORY_EVICTED);
        assert_ptr_equal(e.by, f.b);
        member_free(mb);
        /* The tenant goes, its name with it. */
        assert_int_equal(tenant_remove(f.b, true, NULL), 0);
        e = explain(a, 14, 30);
        assert_int_equal(e.state, HISTORY_EVICTED);
        assert_null(e.by);
        fixture_end(&f);
}

/* By a key, with what is below it; published again it is cached. */
TEST(test_invalidated)
{
        struct fixture f;
        struct attach *a;
        struct explanation e;

        fixture_start(&f, 4, 4, 4);
        a = enter(f.a, "n");
        cache_chain(a, 0, 4);
        assert_int_equal(invalidate(a, 2), 2);
        for (unsigned key = 2; key < 4; key++) {
                e = explain(a, key, 3);
                assert_int_equal(e.state, HISTORY_INVALIDATED);
                assert_string_equal(e.what, "key");
                assert_null(e.by);
        }
        assert_int_equal(explain(a, 1, 3).state, HISTORY_CACHED);
        cache_chain(a, 2, 1);
        assert_int_equal(explain(a, 2, 3).state, HISTORY_CACHED);
        fixture_end(&f);
}

/* The namespace as a whole, its version, and an administrator: known once the sweep has come by. */
TEST(test_all)
{
        struct ns_layout l = test_layout();
        struct fixture f;
        struct member *other;
        struct attach *a;
        struct explanation e;
        uint64_t n, kept;

        fixture_start(&f, 4, 4, 4);
        a = enter(f.a, "n");
        cache_chain(a, 0, 2);
        assert_int_equal(ns_invalidate(a->ns, CAUSE_NAMESPACE, &n), 0);
        assert_int_equal(explain(a, 0, 3).state, HISTORY_NEVER_SEEN);
        while (store_work(&f.store, 1))
                ;
        e = explain(a, 0, 3);
        assert_int_equal(e.state, HISTORY_INVALIDATED);
        assert_string_equal(e.what, "namespace");

        cache_chain(a, 2, 2);
        assert_int_equal(store_purge(&f.store, f.a, NULL, false, &n, &kept), 0);
        while (store_work(&f.store, 1))
                ;
        e = explain(a, 2, 3);
        assert_int_equal(e.state, HISTORY_INVALIDATED);
        assert_string_equal(e.what, "purge");

        cache_chain(a, 4, 2);
        strcpy(l.version, "v2");
        other = join(f.a);
        assert_int_equal(attach_open(other, "n", &l, "", false, &a, NULL), 0);
        while (store_work(&f.store, 1))
                ;
        assert_int_equal(explain(a, 4, 3).state, HISTORY_OTHER_VERSION);
        fixture_end(&f);
}

/* Announced: by whom it is computed, and on which page. */
TEST(test_pending)
{
        uint8_t key[KEY_BYTES];
        struct explanation e;
        uint32_t page, n, other;
        struct fixture f;
        struct attach *a;

        fixture_start(&f, 4, 4, 4);
        a = enter(f.a, "n");
        make_keys(key, 3, 1);
        assert_int_equal(lease_pages(a, 1, SEC, &page, NULL), 0);
        assert_int_equal(announce_pages(a, &page, key, 1, &n, &other, NULL), 0);
        e = explain(a, 3, 1);
        assert_int_equal(e.state, HISTORY_PENDING);
        assert_int_equal(e.page, page);
        assert_int_equal(e.client_id, a->member->id);
        assert_int_equal(free_pages(a, &page, 1, NULL), 0);
        assert_int_equal(explain(a, 3, 1).state, HISTORY_NEVER_SEEN);
        fixture_end(&f);
}

/* More than it holds: the oldest are forgotten, the latest aren't. */
TEST(test_bounded)
{
        struct fixture f;
        struct attach *a;
        unsigned n = HISTORY_KEYS * 2, known = 0;

        fixture_start(&f, 4, 4, 4);
        a = enter(f.a, "n");
        for (unsigned key = 0; key < n; key++) {
                store_set_now(&f.store, key * SEC);
                cache_chain(a, key, 1);
                assert_int_equal(invalidate(a, key), 1);
        }
        for (unsigned key = 0; key < n; key++)
                known += explain(a, key, n).state != HISTORY_NEVER_SEEN;
        assert_true(known <= HISTORY_KEYS && known > HISTORY_KEYS * 9 / 10);
        for (unsigned key = n - 1000; key < n; key++)
                assert_int_equal(explain(a, key, n).age_sec, n - key);
        fixture_end(&f);
}

/* The next number from `from` on whose key has this bucket by the seed that clients can read. */
static unsigned next_colliding(const struct attach *a, unsigned from, uint64_t bucket)
{
        uint8_t bytes[KEY_BYTES];

        for (;; from++) {
                make_keys(bytes, from, 1);
                if (shared_hash(&a->ns->shared, bytes) % (HISTORY_KEYS / 4) == bucket)
                        return from;
        }
}

/* A client that makes keys of one bucket by the index's seed doesn't overwrite them here. */
TEST(test_collisions)
{
        enum { N = 16 }; /* a bucket has 4 entries */
        unsigned numbers[N];
        struct fixture f;
        struct attach *a;

        fixture_start(&f, 4, 4, 4);
        a = enter(f.a, "n");
        for (unsigned i = 0; i < N; i++) {
                numbers[i] = next_colliding(a, i > 0 ? numbers[i - 1] + 1 : 0, 7);
                cache_chain(a, numbers[i], 1);
                assert_int_equal(invalidate(a, numbers[i]), 1);
        }
        for (unsigned i = 0; i < N; i++)
                assert_int_equal(explain(a, numbers[i], 1).state, HISTORY_INVALIDATED);
        fixture_end(&f);
}
