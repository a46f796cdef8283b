/* Expiry of unused pages (daemon/core/cache/expire.h), and pages that are freed ahead of leases
 * (daemon/core/reclaim/prealloc.h, free_ahead). */
#include "base/clock.h"
#include "daemon/core/cache/expire.h"
#include "daemon/core/cache/history.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/request.h"
#include "daemon/core/core.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/reclaim/prealloc.h"
#include "daemon/core/state/shared.h"
#include "tests/unit/core-fixture.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/requests/expected.h"
#include "daemon/core/requests/submit.h"
#include "policy/expect.h"
#include "daemon/core/life/idle.h"
#include "daemon/core/state/group.h"
#include "daemon/core/sessions/session.h"

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
        assert_int_equal(lookup_pages(w->a, &(struct lookup_request){keys, n, now_sec * SEC}, pages,
                                 &found, &tokens, NULL),
                0);
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

/* ---- free_ahead ----------------------------------------------------------------------------- */

#define MSEC NSEC_PER_MSEC

static void lease_some(struct world *w, unsigned n, uint64_t now_msec, uint32_t *pages)
{
        assert_int_equal(lease_pages(w->a, n, now_msec * MSEC, pages, NULL), 0);
        prealloc_leased(w->a->ns, n, now_msec * MSEC);
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
        prealloc_leased(ns, 1, 1000 * MSEC);
        /* There is memory to be had: nothing is evicted. */
        assert_int_equal(ns_n_room(ns), 0);
        assert_true(prealloc_work(&w.f.store, 1005 * MSEC));
        assert_int_equal(ns->counters.evictions, 0);
        lease_some(&w, 2, 1010, pages);
        while (prealloc_work(&w.f.store, 1010 * MSEC) && ns->device.n_sets < 4)
                cache_chain(w.a, 100 * ns->device.n_sets, 8);
        cache_chain(w.a, 1000, (unsigned)ns_n_room(ns));
        assert_int_equal(ns->device.n_sets, 4);
        assert_int_equal(ns->counters.evictions, 0);
        assert_int_equal(ns_n_room(ns), 0);

        /* All pages are held. While a client leases, a quarter of the 32 pages is freed. */
        assert_true(prealloc_work(&w.f.store, 1100 * MSEC));
        assert_int_equal(ns_n_room(ns), 8);
        assert_int_equal(ns->counters.evictions, 8);
        fixture_check(&w.f);
        lease_some(&w, 3, 1200, pages + 2); /* 5 are left: more than half */
        assert_true(prealloc_work(&w.f.store, 1210 * MSEC));
        assert_int_equal(ns->counters.evictions, 8);
        lease_some(&w, 2, 1300, pages + 5); /* 3 are left */
        assert_true(prealloc_work(&w.f.store, 1310 * MSEC));
        assert_int_equal(ns_n_room(ns), 8);
        assert_int_equal(ns->counters.evictions, 13);

        /* No leases for a while: no page is freed. */
        lease_some(&w, 6, 1400, pages + 7);
        assert_false(prealloc_work(&w.f.store, 5000 * MSEC));
        assert_int_equal(ns->counters.evictions, 13);
        assert_int_equal(ns->reclaim.prealloc.n_to_free, 0);
        end(&w);
}

/* Texts that clients expect to use soon (daemon/core/requests/expected.h), and the pages that are
 * evicted for them or in spite of them. */

#define N_TEXTS 4 /* of a set of pages each: one is the share of what is cached */

struct world_expected {
        struct fixture f;
        struct member *member;
        struct attach *attach;
};

/* Texts 0, 100, 200, 300, which fill what the tenant may have. */
static void world_start(struct world_expected *w)
{
        fixture_start(&w->f, N_TEXTS, N_TEXTS, N_TEXTS);
        w->member = join(w->f.a);
        w->attach = open_ns(w->member, "x");
        for (unsigned i = 0; i < N_TEXTS; i++)
                cache_chain(w->attach, 100 * i, SET_PAGES);
}

static void world_end(struct world_expected *w)
{
        fixture_check(&w->f);
        member_free(w->member);
        fixture_end(&w->f);
}

#define SCENE_EXPECTED(fn, ...) \
        TEST_ON(fn, struct world_expected, w, world_start, world_end, ##__VA_ARGS__)

/* More keys are asked for than were published. */
static void expect_text(
        struct world_expected *w, unsigned first, uint32_t ttl_msec, uint64_t now_nsec)
{
        uint8_t keys[2 * SET_PAGES * KEY_BYTES];

        make_keys(keys, first, 2 * SET_PAGES);
        assert_int_equal(
                expected_by_keys(w->attach, keys, 2 * SET_PAGES, ttl_msec, now_nsec, NULL), 0);
        fixture_check(&w->f);
}

static uint32_t n_expected(const struct world_expected *w)
{
        return expect_count_pages(w->attach->ns->expect);
}

static const struct expect_counters *counters(const struct world_expected *w)
{
        return &w->f.store.counters.expected;
}

static unsigned n_cached_expected(struct world_expected *w, unsigned text)
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
static void lease_and_free(struct world_expected *w, uint32_t n, uint64_t now_nsec)
{
        uint32_t pages[N_TEXTS * SET_PAGES];

        assert_int_equal(lease_pages(w->attach, n, now_nsec, pages, &w->f.d), 0);
        fixture_check(&w->f);
        assert_int_equal(free_pages(w->attach, pages, n, NULL), 0);
}

/* No lease fails for it: where nothing else can go, it does, from its end. */
SCENE_EXPECTED(test_leases_get_it)
{
        expect_text(w, 0, 0, 2);
        lease_and_free(w, N_TEXTS * SET_PAGES - 3, 3);
        assert_int_equal(n_cached_expected(w, 0), 3);
        assert_int_equal(n_expected(w), 3);
        lease_and_free(w, N_TEXTS * SET_PAGES, 3);
        assert_int_equal(n_cached_expected(w, 0), 0);
        assert_int_equal(counters(w)->dropped, 1);
}

/* A quarter of what is cached: the second text is one too many. */
SCENE_EXPECTED(test_share)
{
        expect_text(w, 100, 0, 2);
        expect_text(w, 0, 0, 2);
        assert_int_equal(n_expected(w), SET_PAGES);
        lease_and_free(w, (N_TEXTS - 1) * SET_PAGES, 3);
        assert_int_equal(n_cached_expected(w, 0), 0);
        assert_int_equal(n_cached_expected(w, 1), SET_PAGES);
}

/* Another tenant's claims take sets of it as they take any other: each set has something that is
 * expected. */
SCENE_EXPECTED(test_other_tenants_get_it)
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

/* All of it is invalidated at once, and the namespace goes with expectations. */
SCENE_EXPECTED(test_invalidated)
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
SCENE_EXPECTED(test_by_page)
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

/* Namespaces that hold nothing go (daemon/core/life/idle.h). */

#define START_SEC 1000

/* Does the daemon's work. */
static void pass_idle(struct fixture *f, uint64_t now_nsec)
{
        (void)idle_look(&f->store, now_nsec);
        while (store_work(&f->store, 1000))
                ;
        fixture_check(f);
}

static void leave(struct attach *a)
{
        attach_close(a);
}

CORE_SCENE(test_goes_after_a_while, 8, 8, 8)
{
        struct member *m;

        m = join(f->a);
        leave(open_ns(m, "n"));
        assert_int_equal(f->a->n_namespaces, 1);
        assert_int_equal(idle_look(&f->store, START_SEC * SEC), START_SEC * SEC + NS_IDLE_NSEC);
        pass_idle(f, START_SEC * SEC + NS_IDLE_NSEC - 1);
        assert_non_null(ns_find(f->a, "n"));
        pass_idle(f, START_SEC * SEC + NS_IDLE_NSEC);
        assert_null(ns_find(f->a, "n"));
        assert_int_equal(f->a->n_namespaces, 0);
        assert_int_equal(idle_look(&f->store, START_SEC * SEC + NS_IDLE_NSEC), UINT64_MAX);
}

/* A page that is cached, a session: it stays. */
CORE_SCENE(test_what_stays, 8, 8, 8)
{
        struct attach *pages = enter(f->a, "pages");
        struct attach *sessions;
        uint32_t handle;
        bool created;
        uint64_t n;

        sessions = open_ns(pages->member, "sessions");
        cache_chain(pages, 0, 4);
        assert_int_equal(session_open(sessions,
                                 &(struct session_request){(const uint8_t *)"s", 1, false, 0, SEC},
                                 &handle, &created, NULL),
                0);
        leave(pages);
        leave(sessions);
        pass_idle(f, START_SEC * SEC);
        assert_int_equal(idle_drop(f->a, 10), 0);
        pass_idle(f, START_SEC * SEC + 2 * NS_IDLE_NSEC);
        assert_int_equal(f->a->n_namespaces, 2);
        /* And goes when these have gone. */
        assert_int_equal(ns_invalidate(ns_find(f->a, "pages"), CAUSE_NAMESPACE, &n), 0);
        assert_int_equal(ns_invalidate(ns_find(f->a, "sessions"), CAUSE_NAMESPACE, &n), 0);
        pass_idle(f, START_SEC * SEC + 2 * NS_IDLE_NSEC);
        pass_idle(f, START_SEC * SEC + 3 * NS_IDLE_NSEC);
        pass_idle(f, START_SEC * SEC + 4 * NS_IDLE_NSEC);
        assert_int_equal(f->a->n_namespaces, 0);
}

/* All of them, some in each call. */
CORE_SCENE(test_many, 8, 8, 8)
{
        struct member *m;
        char name[16];
        unsigned n_calls = 1;

        m = join(f->a);
        for (unsigned i = 0; i < 100; i++) {
                snprintf(name, sizeof(name), "n%u", i);
                leave(open_ns(m, name));
        }
        (void)idle_look(&f->store, START_SEC * SEC);
        store_set_now(&f->store, START_SEC * SEC + NS_IDLE_NSEC);
        while (idle_work(&f->store))
                n_calls++;
        assert_in_range(n_calls, 2, 100);
        assert_int_equal(f->a->n_namespaces, 0);
}

/* At the limit of a tenant's namespaces an idle one makes place, of its own and no other's. */
CORE_SCENE(test_makes_place, 8, 8, 8)
{
        struct ns_layout l = test_layout();
        struct member *m, *other;
        struct attach *a;
        char name[16];

        m = join(f->a);
        other = join(f->b);
        leave(open_ns(other, "n"));
        for (unsigned i = 0; i < NS_MAX_PER_TENANT; i++) {
                snprintf(name, sizeof(name), "n%u", i);
                a = open_ns(m, name);
        }
        assert_int_equal(attach_open(m, "more", &l, "", false, &a, &f->d), -EMFILE);
        assert_non_null(strstr(f->d.text, "has 1024 namespaces, the most"));
        leave(attach_find(m, 7));
        open_ns(m, "more");
        assert_int_equal(f->a->n_namespaces, NS_MAX_PER_TENANT);
        assert_int_equal(f->b->n_namespaces, 1);
}
