/* Sessions that go: dropped, invalidated, expired or purged, in slices where they are many; and how
 * many there may be. */
#include "daemon/core/life/leave.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/memory/chores.h"
#include "daemon/core/reclaim/sweep.h"
#include "daemon/core/requests/invalidate.h"
#include "tests/unit/session-fixture.h"

CORE_SCENE(test_drop, 8, 4, 4)
{
        struct attach *a = enter(f->a, "x");
        struct attach *b = enter(f->a, "x");
        uint32_t s, t, other, pages[1];

        s = open_session(a, "s");
        t = open_session(b, "s");
        other = open_session(a, "other");
        append(a, other, ROOT, 0, 2);
        append(a, s, ROOT, 0, 2);
        append(a, s, 1, 2, 3);
        assert_int_equal(session_close(a, s, true, 1, NULL), 0);
        fixture_check(f);
        assert_null(session_of(b, t, &f->d));
        assert_non_null(strstr(f->d.text, "was dropped"));
        assert_int_equal(publish_tail(b, t, 1, 20, 1, PAGE_TOKENS, pages), -ENOENT);
        /* Where another session ends, pages stay. */
        assert_int_equal(count_hits(a, 0, 5), 2);
        expect_pages(a, other, "0@0 1@1");
        assert_int_equal(session_close(b, t, true, 1, NULL), -ENOENT);
        assert_int_equal(b->member->n_sessions, 0);
        /* So do those below which there is another text, and those that are pinned. */
        append(a, 0, 0, 30, 1);
        assert_int_equal(session_close(a, other, true, 1, NULL), 0);
        assert_true(is_cached(a, 0) && !is_cached(a, 1) && is_cached(a, 30));
        s = open_session(a, "s");
        assert_int_equal(publish_tail(a, s, 30, 31, 1, PAGE_TOKENS, pages), 0);
        assert_int_equal(session_close(a, s, true, 1, NULL), 0);
        assert_true(is_cached(a, 31));
        assert_int_equal(sessions_count(a->ns), 0);
}

CORE_SCENE(test_invalidation, 8, 4, 4)
{
        struct ns_layout layout = test_layout();
        struct member *m;
        struct attach *a;
        uint8_t key[KEY_BYTES];
        uint32_t s, other;
        uint64_t n;
        bool created;

        m = join(f->a);
        a = open_ns(m, "x");
        s = open_session(a, "s");
        other = open_session(a, "other");
        append(a, s, ROOT, 0, 4);
        append(a, other, ROOT, 0, 2);
        make_keys(key, 1, 1);
        assert_int_equal(invalidate_key(a, key, &n, NULL), 0);
        assert_int_equal(n, 3);
        expect_tokens(a, s, 4, 3);
        expect_tokens(a, other, 2, 1);
        fixture_check(f);
        append(a, s, 0, 11, 3);
        assert_int_equal(ns_invalidate(a->ns, CAUSE_NAMESPACE, &n), 0);
        fixture_check(f);
        assert_int_equal(sessions_count(a->ns), 0);
        assert_null(session_of(a, s, NULL));
        assert_int_equal(try_open(a, "s", 1, true, &other, &created), -ENOENT);
        /* The id can be used again before the old one is swept. */
        s = open_session(a, "s");
        append(a, s, ROOT, 0, 2);
        fixture_check(f);
        while (ns_sweep(a->ns, 1))
                fixture_check(f);
        fixture_check(f);
        expect_pages(a, s, "0@0 1@1");
        /* Another version of the weights. */
        assert_int_equal(session_close(a, s, false, 1, NULL), 0);
        strcpy(layout.version, "v2");
        attach_close(a);
        assert_int_equal(attach_open(m, "x", &layout, "", false, &a, NULL), 0);
        assert_int_equal(sessions_count(a->ns), 0);
        while (ns_sweep(a->ns, 100))
                ;
        assert_int_equal(a->ns->device.n_pages[PAGE_SEALED], 0);
        member_free(m); /* unbinds idle sets, too */
}

/* A client with the old version open can't use what was its. */
CORE_SCENE(test_old_version, 8, 4, 4)
{
        struct ns_layout layout = test_layout();
        struct member *n;
        struct attach *a, *b;
        uint32_t handle;
        bool created;

        n = join(f->a);
        a = enter(f->a, "x");
        (void)open_session(a, "s");
        strcpy(layout.version, "v2");
        assert_int_equal(attach_open(n, "x", &layout, "", false, &b, NULL), 0);
        assert_int_equal(try_open(a, "s", 1, false, &handle, &created), KVL_STATUS_STALE);
}

CORE_SCENE(test_expire, 8, 4, 4)
{
        struct attach *a = enter(f->a, "x");
        uint32_t s, t;
        bool created;

        assert_int_equal(
                session_open(a, (const uint8_t *)"s", 1, false, 5 * SEC, 1, &s, &created, NULL), 0);
        t = open_session(a, "t");
        append(a, s, ROOT, 0, 2);
        assert_int_equal(session_close(a, t, false, 10 * SEC, NULL), 0);
        /* A session without its own or the tenant's time never expires, nor does an open one. */
        assert_int_equal(sessions_expire(a->ns, 1000 * SEC, UINT32_MAX), UINT64_MAX);
        assert_int_equal(sessions_count(a->ns), 2);
        assert_int_equal(session_close(a, s, false, 20 * SEC, NULL), 0);
        assert_int_equal(sessions_expire(a->ns, 25 * SEC - 1, UINT32_MAX), 25 * SEC);
        assert_int_equal(sessions_count(a->ns), 2);
        assert_int_equal(sessions_expire(a->ns, 25 * SEC, UINT32_MAX), UINT64_MAX);
        assert_int_equal(sessions_count(a->ns), 1);
        /* Its pages are as any others. */
        assert_int_equal(count_hits(a, 0, 2), 2);
        /* The tenant's time holds at once; a budget is kept. */
        f->a->attrs.session_expire_nsec = 30 * SEC;
        assert_int_equal(sessions_expire(a->ns, 40 * SEC - 1, UINT32_MAX), 40 * SEC);
        assert_int_equal(sessions_count(a->ns), 1);
        assert_int_equal(sessions_expire(a->ns, 40 * SEC, 1), 40 * SEC);
        while (sessions_expire(a->ns, 40 * SEC, 1) == 40 * SEC)
                ;
        assert_int_equal(sessions_count(a->ns), 0);
        assert_int_equal(f->store.counters.sessions_expired, 2);
}

/* Returns the time of the first session to expire, also if a round takes several calls and a
 * session that it has passed changes. */
CORE_SCENE(test_expire_next, 8, 4, 4)
{
        struct attach *a = enter(f->a, "x");
        uint32_t s, t;

        assert_int_equal(sessions_expire(a->ns, 1, 1), UINT64_MAX);
        f->a->attrs.session_expire_nsec = 30 * SEC;
        s = open_session(a, "s");
        t = open_session(a, "t");
        assert_int_equal(session_close(a, t, false, 10 * SEC, NULL), 0);
        /* Closed behind the round. */
        assert_int_equal(sessions_expire(a->ns, 11 * SEC, 1), 11 * SEC);
        assert_int_equal(session_close(a, s, false, 5 * SEC, NULL), 0);
        assert_int_equal(sessions_expire(a->ns, 12 * SEC, UINT32_MAX), 35 * SEC);
        assert_int_equal(sessions_expire(a->ns, 12 * SEC, UINT32_MAX), 35 * SEC);
        /* Less time for all, in the middle of a round. */
        assert_int_equal(sessions_expire(a->ns, 13 * SEC, 1), 13 * SEC);
        f->a->attrs.session_expire_nsec = 9 * SEC;
        assert_int_equal(sessions_expire(a->ns, 13 * SEC, UINT32_MAX), 14 * SEC);
        assert_int_equal(sessions_expire(a->ns, 14 * SEC, UINT32_MAX), 19 * SEC);
        assert_int_equal(sessions_count(a->ns), 1);
        /* Open again: nothing to wait for. */
        t = open_session(a, "t");
        assert_int_equal(sessions_expire(a->ns, 15 * SEC, UINT32_MAX), UINT64_MAX);
}

CORE_SCENE(test_purge, 8, 4, 4)
{
        struct session_purge p;
        struct attach *a = enter(f->a, "x");
        uint32_t one;

        one = open_session(a, "one");
        append(a, one, ROOT, 0, 2);
        (void)open_session(a, "two");
        (void)open_session(a, "three");
        session_purge_init(&p, f->a, 9 * SEC, 9 * SEC);
        assert_false(session_purge_begin(&p));
        assert_int_equal(p.n_sessions, 0);
        session_purge_init(&p, f->a, SEC, 9 * SEC);
        session_purge_id(&p, a->ns, (const uint8_t *)"nobody", 6);
        assert_int_equal(p.n_sessions, 0);
        session_purge_id(&p, a->ns, (const uint8_t *)"one", 3);
        assert_int_equal(p.n_sessions, 1);
        assert_null(session_of(a, one, NULL));
        assert_int_equal(count_hits(a, 0, 2), 0);
        fixture_check(f);
        session_purge_init(&p, f->a, 0, 9 * SEC);
        assert_false(session_purge_begin(&p));
        assert_int_equal(p.n_sessions, 2);
        assert_int_equal(sessions_count(a->ns), 0);
}

#define MANY  40
#define SLICE 4

/* MANY closed sessions, used at 1 ns. */
static void open_many(struct attach *a)
{
        for (unsigned i = 0; i < MANY; i++) {
                char id[16];

                snprintf(id, sizeof(id), "many-%u", i);
                assert_int_equal(session_close(a, open_session(a, id), false, 1, NULL), 0);
        }
}

static unsigned n_done;

static void note_done(struct session_purge *p)
{
        n_done++;
}

/* Sessions of all namespaces are removed, a slice a turn. One that is used meanwhile stays. */
CORE_SCENE(test_purge_in_slices, 8, 4, 4)
{
        struct session_purge p;
        struct attach *a, *b;
        unsigned n = 0;

        f->store.drop_slice_pages = SLICE;
        a = enter(f->a, "x");
        b = open_ns(a->member, "y");
        open_many(a);
        open_many(b);
        n_done = 0;
        session_purge_init(&p, f->a, 0, 1);
        assert_true(session_purge_begin(&p));
        assert_in_range(p.n_sessions, 1, SLICE);
        session_purge_queue(&p, note_done);
        session_use(session_find(b->ns, (const uint8_t *)"many-7", 6), 2);
        for (; n_done == 0; n++) {
                uint64_t before = p.n_sessions;

                assert_ptr_equal(chores_work(&f->store), f->a);
                assert_true(p.n_sessions - before <= SLICE);
                fixture_check(f);
        }
        assert_true(n >= 2 * MANY / SLICE - 1);
        assert_int_equal(p.n_sessions, 2 * MANY - 1);
        assert_int_equal(sessions_count(a->ns), 0);
        assert_int_equal(sessions_count(b->ns), 1);
        assert_null(chores_work(&f->store));
}

/* Sessions of one namespace. A text costs by its length, and the tenant may end first. */
CORE_SCENE(test_purge_ends_early, 8, 4, 4)
{
        struct session_purge p;
        struct attach *a, *b;

        f->store.drop_slice_pages = SLICE;
        a = enter(f->a, "x");
        b = open_ns(a->member, "y");
        append(a, open_session(a, "long"), ROOT, 0, 10);
        open_many(a);
        open_many(b);
        n_done = 0;
        session_purge_init(&p, f->a, 0, 9);
        p.only_ns_id = a->ns->id;
        assert_true(session_purge_begin(&p));
        assert_int_equal(p.n_sessions, 1);
        session_purge_queue(&p, note_done);
        session_purges_end(f->a);
        assert_int_equal(n_done, 1);
        assert_int_equal(sessions_count(a->ns), MANY);
        session_purge_init(&p, f->a, 0, 9);
        p.only_ns_id = a->ns->id;
        for (bool more = session_purge_begin(&p); more; more = session_purge_begin(&p))
                ;
        assert_int_equal(p.n_sessions, MANY);
        assert_int_equal(sessions_count(b->ns), MANY);
}

/* Opens the tenant's maximum of sessions in other namespaces, so that `y` gets no more. */
static void fill_tenant(struct member *m, struct attach *y)
{
        uint32_t handle, per_ns = SESSIONS_MAX, n = SESSIONS_TENANT_MAX / SESSIONS_MAX;
        struct attach *last = y;
        struct detail d = {0};
        bool created;

        for (uint32_t i = 1; i < n; i++) {
                char name[8];

                snprintf(name, sizeof(name), "z%u", i);
                last = open_ns(m, name);
                for (uint32_t id = 0; id < per_ns; id++) {
                        assert_int_equal(
                                try_open(last, &id, sizeof(id), false, &handle, &created), 0);
                        assert_int_equal(session_close(last, handle, false, 1, NULL), 0);
                }
        }
        assert_int_equal(
                session_open(y, (const uint8_t *)"x", 1, false, 0, 1, &handle, &created, &d),
                -EMFILE);
        assert_non_null(strstr(d.text, "262144"));
}

CORE_SCENE(test_limits, 8, 4, 4)
{
        struct attach *a = enter(f->a, "x");
        struct attach *y;
        uint32_t handle, id;
        uint64_t n;
        bool created;

        y = open_ns(a->member, "y");
        for (id = 0; id < SESSION_HANDLES_MAX; id++)
                assert_int_equal(try_open(a, &id, sizeof(id), false, &handle, &created), 0);
        assert_int_equal(session_open(y, (const uint8_t *)&id, sizeof(id), false, 0, 1, &handle,
                                 &created, &f->d),
                -EMFILE);
        assert_non_null(strstr(f->d.text, "4096"));
        assert_int_equal(session_close(a, handle, false, 1, NULL), 0);
        for (id--; id < SESSIONS_MAX; id++) {
                assert_int_equal(try_open(a, &id, sizeof(id), false, &handle, &created), 0);
                assert_int_equal(session_close(a, handle, false, 1, NULL), 0);
        }
        assert_int_equal(sessions_count(a->ns), SESSIONS_MAX);
        assert_int_equal(session_open(a, (const uint8_t *)&id, sizeof(id), false, 0, 1, &handle,
                                 &created, &f->d),
                -EMFILE);
        assert_non_null(strstr(f->d.text, "65536"));
        id = 1;
        assert_int_equal(try_open(a, &id, sizeof(id), false, &handle, &created), 0);
        assert_false(created);
        fixture_check(f);
        assert_int_equal(session_close(a, handle, false, 1, NULL), 0);
        /* Sessions that an invalidation ended make room without the sweep. */
        assert_int_equal(ns_invalidate(a->ns, CAUSE_NAMESPACE, &n), 0);
        assert_int_equal(try_open(a, &id, sizeof(id), true, &handle, &created), -ENOENT);
        assert_int_equal(try_open(a, &id, sizeof(id), false, &handle, &created), 0);
        assert_int_equal(session_close(a, handle, true, 1, NULL), 0);
        /* Only as many as needed. */
        assert_in_range(a->ns->sessions->n_dead, SESSIONS_MAX - DROP_SLICE_PAGES, SESSIONS_MAX - 1);
        for (id = 0; id < SESSIONS_MAX; id++) {
                assert_int_equal(try_open(a, &id, sizeof(id), false, &handle, &created), 0);
                assert_int_equal(session_close(a, handle, false, 1, NULL), 0);
        }
        for (n = 0; session_next(a->ns, n, &n);)
                assert_true(n <= SESSIONS_MAX);
        fixture_check(f);
        fill_tenant(a->member, y);
}
