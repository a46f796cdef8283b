/* Texts that clients expect to use soon (daemon/core/requests/expected.h), and the pages that are
 * evicted for them or in spite of them. */
#include "daemon/core/cache/pages.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/requests/expected.h"
#include "daemon/core/requests/submit.h"
#include "policy/expect.h"
#include "tests/unit/core-fixture.h"

#define SECOND  UINT64_C(1000000000)
#define N_TEXTS 4 /* of a set of pages each: one is the share of what is cached */

struct world {
        struct fixture f;
        struct member *member;
        struct attach *attach;
};

/* Texts 0, 100, 200, 300, which fill what the tenant may have. */
static void world_start(struct world *w)
{
        fixture_start(&w->f, N_TEXTS, N_TEXTS, N_TEXTS);
        w->member = join(w->f.a);
        w->attach = open_ns(w->member, "x");
        for (unsigned i = 0; i < N_TEXTS; i++)
                cache_chain(w->attach, 100 * i, SET_PAGES);
}

static void world_end(struct world *w)
{
        fixture_check(&w->f);
        member_free(w->member);
        fixture_end(&w->f);
}

#define SCENE(fn, ...) TEST_ON(fn, struct world, w, world_start, world_end, ##__VA_ARGS__)

/* More keys are asked for than were published. */
static void expect_text(struct world *w, unsigned first, uint32_t ttl_msec, uint64_t now_nsec)
{
        uint8_t keys[2 * SET_PAGES * KEY_BYTES];

        make_keys(keys, first, 2 * SET_PAGES);
        assert_int_equal(
                expected_by_keys(w->attach, keys, 2 * SET_PAGES, ttl_msec, now_nsec, NULL), 0);
        fixture_check(&w->f);
}

static uint32_t n_expected(const struct world *w)
{
        return expect_count_pages(w->attach->ns->expect);
}

static const struct expect_counters *counters(const struct world *w)
{
        return &w->f.store.counters.expected;
}

static unsigned n_cached(struct world *w, unsigned text)
{
        unsigned n = 0;

        for (unsigned key = 100 * text; key < 100 * text + SET_PAGES; key++) {
                uint8_t bytes[KEY_BYTES];

                make_keys(bytes, key, 1);
                n += ns_find_page(w->attach->ns, bytes) != PAGE_NONE;
        }
        return n;
}

/* Leases n pages, and gives them back. */
static void lease_and_free(struct world *w, uint32_t n, uint64_t now_nsec)
{
        uint32_t pages[N_TEXTS * SET_PAGES];

        assert_int_equal(lease_pages(w->attach, n, now_nsec, pages, &w->f.d), 0);
        fixture_check(&w->f);
        assert_int_equal(free_pages(w->attach, pages, n, NULL), 0);
}

SCENE(test_others_go_before_it)
{
        expect_text(w, 0, 0, 2);
        assert_int_equal(n_expected(w), SET_PAGES);
        lease_and_free(w, (N_TEXTS - 1) * SET_PAGES, 3);
        assert_int_equal(n_cached(w, 0), SET_PAGES);
        assert_int_equal(count_hits(w->attach, 0, SET_PAGES), SET_PAGES);
        assert_int_equal(counters(w)->received, 1);
        assert_int_equal(counters(w)->fulfilled, 1);
        assert_int_equal(n_expected(w), 0);
}

/* Without it the oldest text is the first to go. */
SCENE(test_it_makes_the_difference)
{
        lease_and_free(w, (N_TEXTS - 1) * SET_PAGES, 3);
        assert_int_equal(n_cached(w, 0), 0);
}

/* No lease fails for it: where nothing else can go, it does, from its end. */
SCENE(test_leases_get_it)
{
        expect_text(w, 0, 0, 2);
        lease_and_free(w, N_TEXTS * SET_PAGES - 3, 3);
        assert_int_equal(n_cached(w, 0), 3);
        assert_int_equal(n_expected(w), 3);
        lease_and_free(w, N_TEXTS * SET_PAGES, 3);
        assert_int_equal(n_cached(w, 0), 0);
        assert_int_equal(counters(w)->dropped, 1);
}

SCENE(test_expires)
{
        expect_text(w, 0, 1000, SECOND);
        lease_and_free(w, SET_PAGES, 2 * SECOND - 1);
        assert_int_equal(n_cached(w, 0), SET_PAGES);
        cache_chain(w->attach, 400, SET_PAGES);
        lease_and_free(w, SET_PAGES, 2 * SECOND);
        assert_int_equal(n_cached(w, 0), 0);
        assert_int_equal(counters(w)->expired, 1);
}

/* The ring's bound is the socket's. */
SCENE(test_longest_time)
{
        uint64_t most = EXPECT_TTL_MOST_MSEC / 1000 * SECOND;

        expect_text(w, 0, UINT32_MAX, SECOND);
        lease_and_free(w, SET_PAGES, most + SECOND - 1);
        assert_int_equal(n_cached(w, 0), SET_PAGES);
        lease_and_free(w, 2 * SET_PAGES, most + SECOND);
        assert_int_equal(n_cached(w, 0), 0);
}

/* A quarter of what is cached: the second text is one too many. */
SCENE(test_share)
{
        expect_text(w, 100, 0, 2);
        expect_text(w, 0, 0, 2);
        assert_int_equal(n_expected(w), SET_PAGES);
        lease_and_free(w, (N_TEXTS - 1) * SET_PAGES, 3);
        assert_int_equal(n_cached(w, 0), 0);
        assert_int_equal(n_cached(w, 1), SET_PAGES);
}

/* Another tenant's claims take sets of it as they take any other: each set has something that is
 * expected. */
SCENE(test_other_tenants_get_it)
{
        uint32_t pages[2 * SET_PAGES];
        uint8_t keys[2 * KEY_BYTES];
        struct attach *a;

        for (unsigned i = 0; i < N_TEXTS; i++) {
                make_keys(keys, 100 * i, 2);
                assert_int_equal(expected_by_keys(w->attach, keys, 2, 0, 2, NULL), 0);
        }
        assert_int_equal(n_expected(w), 2 * N_TEXTS);
        a = enter(w->f.b, "x");
        assert_int_equal(lease_pages(a, 2 * SET_PAGES, 3, pages, &w->f.d), 0);
        assert_int_equal(n_expected(w), 2 * (N_TEXTS - 2));
        assert_int_equal(counters(w)->dropped, 2);
}

SCENE(test_nothing_is_cached)
{
        expect_text(w, 900, 0, 2);
        assert_int_equal(n_expected(w), 0);
        assert_int_equal(counters(w)->received, 0);
}

/* All of it is invalidated at once, and the namespace goes with expectations. */
SCENE(test_invalidated)
{
        uint64_t n;

        expect_text(w, 0, 0, 2);
        assert_int_equal(ns_invalidate(w->attach->ns, CAUSE_NAMESPACE, &n), 0);
        assert_int_equal(n_expected(w), 0);
        fixture_check(&w->f);
        cache_chain(w->attach, 0, SET_PAGES);
        expect_text(w, 0, 0, 2);
        assert_int_equal(n_expected(w), SET_PAGES / 4);
}

/* By a ring: the page that the client has found, if it is that still. */
SCENE(test_by_page)
{
        struct submit_result result;
        struct submit_chain chain = {0};
        struct shm_submission s = {.op = SHM_OP_EXPECT};
        uint8_t key[KEY_BYTES];

        make_keys(key, SET_PAGES - 1, 1);
        s.ns_id = w->attach->id;
        s.page = ns_find_page(w->attach->ns, key);
        s.aux = (uint32_t)ns_page(w->attach->ns, s.page)->generation + 1;
        assert_int_equal(expected_by_page(w->attach, s.page, s.aux, 0, 2), 0);
        assert_int_equal(expected_by_page(w->attach, UINT32_MAX, s.aux, 0, 2), 0);
        assert_int_equal(n_expected(w), 0);
        assert_int_equal(expected_by_page(w->attach, s.page, s.aux - 1, 0, 2), SET_PAGES);
        assert_int_equal(n_expected(w), SET_PAGES);
        /* A client that shares no memory must not use rings. */
        submit_one(w->member, &chain, &s, 2, &result);
        assert_null(result.violation);
        assert_false(result.completes);
        s.flags = 1;
        submit_one(w->member, &chain, &s, 2, &result);
        assert_string_equal(result.violation, "ring-flags");
        s.op = SHM_OP_LAST + 1;
        submit_one(w->member, &chain, &s, 2, &result);
        assert_string_equal(result.violation, "ring-op");
        assert_int_equal(counters(w)->received, 1);
}
