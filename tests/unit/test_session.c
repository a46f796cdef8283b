/* Sessions whose text is whole in the tree: names, ends, and attachments that have them open. */
#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/moves/renumber.h"
#include "daemon/core/reclaim/recall.h"
#include "daemon/core/state/shared.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/session-fixture.h"
#include "daemon/core/memory/tasks.h"
#include "daemon/core/reclaim/reclaim.h"

/* Expects some pages of the text with keys from 0, from page `from` on. */
static void expect_some_pages(struct attach *a, uint32_t handle, uint32_t from)
{
        struct session_page pages[5];
        uint8_t key[KEY_BYTES];
        uint32_t n, n_pages = info_of(a, handle).n_pages;

        assert_int_equal(
                session_pages(a, session_of(a, handle, NULL),
                        (struct session_range){from, ARRAY_SIZE(pages)}, 1, pages, &n, NULL),
                0);
        assert_int_equal(n, MIN(ARRAY_SIZE(pages), n_pages - from));
        for (uint32_t i = 0; i < n; i++) {
                make_keys(key, from + i, 1);
                assert_memory_equal(ns_page(a->ns, pages[i].page)->key, key, KEY_BYTES);
                assert_int_equal(pages[i].first_token, (from + i) * PAGE_TOKENS);
                assert_int_equal(release_pages(a, &pages[i].page, 1, 1, NULL), 0);
        }
}

/* A page of the text moves to another place, as in compaction. */
static void move_page(struct attach *a, uint32_t handle, uint32_t index)
{
        struct session_page from;
        uint32_t to, n;

        assert_int_equal(session_pages(a, session_of(a, handle, NULL),
                                 (struct session_range){index, 1}, 1, &from, &n, NULL),
                0);
        assert_int_equal(release_pages(a, &from.page, 1, 1, NULL), 0);
        assert_int_equal(lease_pages(a, 1, 1, &to, NULL), 0);
        grants_remove(a->grants, to);
        renumber_page(a->ns, from.page, to, 0);
        idle_sets_drain(a->ns->store);
        ns_page(a->ns, to)->owner = 0;
}

/* Marks of ancestors (policy/ancestors.h) come, move, go and come again with the pages that have
 * them. */
CORE_SCENE(test_long_text, 128, 128, 0)
{
        const uint32_t n = 3 * ANCESTORS_STEP + 16, step = 16;
        uint64_t n_gone;
        struct attach *a = enter(f->a, "x");
        uint32_t s;

        for (unsigned round = 0; round < 2; round++) {
                s = open_session(a, "s");
                for (uint32_t i = 0; i < n; i += step)
                        append(a, s, i == 0 ? ROOT : i - 1, i, step);
                move_page(a, s, 2 * ANCESTORS_STEP - 1);
                for (uint32_t from = 0; from < n; from += 7)
                        expect_some_pages(a, s, from);
                fixture_check(f);
                assert_int_equal(session_truncate(session_of(a, s, NULL),
                                         (ANCESTORS_STEP + 3) * PAGE_TOKENS, 0, &n_gone, NULL),
                        0);
                assert_int_equal(info_of(a, s).n_pages, ANCESTORS_STEP + 3);
                for (uint32_t from = 0; from < ANCESTORS_STEP + 3; from += 5)
                        expect_some_pages(a, s, from);
                fixture_check(f);
                assert_int_equal(ns_invalidate(a->ns, CAUSE_NAMESPACE, &n_gone), 0);
                assert_null(session_of(a, s, NULL));
                fixture_check(f);
        }
}

/* Pages that can't be found, of another text than that of the session: it doesn't end in its old
 * one. */
CORE_SCENE(test_lost_pages_of_another_text, 8, 4, 4)
{
        uint8_t keys[4 * KEY_BYTES];
        struct attach *a = enter(f->a, "x");
        uint32_t s, pages[4], lost[2];
        struct publish_one o = {.parent = PAGE_NONE, .tokens = PAGE_TOKENS};

        assert_int_equal(attach_share(a, NULL), 0);
        s = open_session(a, "s");
        append(a, s, ROOT, 0, 3);
        assert_int_equal(lease_pages(a, 4, 1, pages, NULL), 0);
        make_keys(keys, 10, 4);
        list_for_each (set, &a->ns->device.sets_bound, struct extent_set, link)
                recall_set(set, RECALL_FORCED);
        for (unsigned i = 0; i < 2; i++) {
                o.page = pages[i];
                o.key = keys + (size_t)i * KEY_BYTES;
                o.session = i == 0 ? 0 : s;
                pins_add(&a->share, pages[i]);
                assert_int_equal(publish_shared(a, &o, 1, &lost[i], NULL), 0);
                o.parent = lost[i];
        }
        expect_tokens(a, s, 2, 2);
        expect_pages(a, s, "");
}

static struct {
        enum evict_hint hint;
        uint32_t node;
        uint64_t after_nsec;
        unsigned n;
} told;

static void tell(
        void *policy, uint32_t node, enum evict_hint hint, uint64_t after_nsec, uint64_t now_nsec)
{
        told.hint = hint;
        told.node = node;
        told.after_nsec = after_nsec;
        told.n++;
}

CORE_SCENE(test_hints, 8, 4, 4)
{
        struct evict_ops ops = evict_lru;
        uint8_t keys[3 * KEY_BYTES];
        struct session *session;
        struct attach *a = enter(f->a, "x");
        uint32_t s;

        s = open_session(a, "s");
        session = session_of(a, s, NULL);
        make_keys(keys, 0, 3);
        session_hint(session, EVICT_HINT_DONE, 0, 1); /* lru has no use for it */
        ops.hint = tell;
        a->ns->evict = &ops;
        session_hint(session, EVICT_HINT_UNKNOWN, 0, 1);
        append(a, s, ROOT, 0, 1);
        assert_int_equal(told.n, 0); /* nothing to say */
        session_hint(session, EVICT_HINT_RETURNS, 5 * SEC, 1);
        assert_int_equal(told.n, 1);
        assert_int_equal(told.hint, EVICT_HINT_RETURNS);
        assert_int_equal(told.after_nsec, 5 * SEC);
        assert_int_equal(told.node, ns_find_page(a->ns, keys));
        assert_int_equal(info_of(a, s).hint, EVICT_HINT_RETURNS);
        /* The hint moves with the end. */
        store_set_now(&f->store, 2 * SEC);
        append(a, s, 0, 1, 1);
        assert_int_equal(told.n, 2);
        assert_int_equal(told.node, ns_find_page(a->ns, keys + KEY_BYTES));
        assert_int_equal(told.after_nsec, 3 * SEC + 1);
        session_hint(session, EVICT_HINT_CONTINUES, 7, 1);
        assert_int_equal(told.after_nsec, 0);
        assert_string_equal(session_hint_name(told.hint), "continues");
        a->ns->evict = &evict_lru;
}

CORE_SCENE(test_no_memory, 8, 4, 4)
{
        struct attach *a = enter(f->a, "x");
        uint32_t handle;
        bool created;
        int r = -1;

        for (uint32_t id = 0; id < 20; id++, r = -1)
                for (unsigned n = 1; r != 0; n++) {
                        alloc_fail_at(n);
                        r = try_open(a, &id, sizeof(id), false, &handle, &created);
                        assert_int_equal(r, alloc_fail_end() ? -ENOMEM : 0);
                        assert_int_equal(a->member->n_sessions, id + (r == 0));
                        assert_int_equal(sessions_count(a->ns), id + (r == 0));
                        fixture_check(f);
                }
}

/* Sessions that go: dropped, invalidated, expired or purged, in slices where they are many; and how
 * many there may be. */

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
        member_free(m);
}

CORE_SCENE(test_expire, 8, 4, 4)
{
        struct attach *a = enter(f->a, "x");
        uint32_t s, t;
        bool created;

        assert_int_equal(
                session_open(a,
                        &(struct session_request){(const uint8_t *)"s", 1, false, 5 * SEC, 1}, &s,
                        &created, NULL),
                0);
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

                assert_ptr_equal(tasks_work(&f->store), f->a);
                assert_true(p.n_sessions - before <= SLICE);
                fixture_check(f);
        }
        assert_true(n >= 2 * MANY / SLICE - 1);
        assert_int_equal(p.n_sessions, 2 * MANY - 1);
        assert_int_equal(sessions_count(a->ns), 0);
        assert_int_equal(sessions_count(b->ns), 1);
        assert_null(tasks_work(&f->store));
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
                session_open(y, &(struct session_request){(const uint8_t *)"x", 1, false, 0, 1},
                        &handle, &created, &d),
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
        assert_int_equal(
                session_open(y,
                        &(struct session_request){(const uint8_t *)&id, sizeof(id), false, 0, 1},
                        &handle, &created, &f->d),
                -EMFILE);
        assert_non_null(strstr(f->d.text, "4096"));
        assert_int_equal(session_close(a, handle, false, 1, NULL), 0);
        for (id--; id < SESSIONS_MAX; id++) {
                assert_int_equal(try_open(a, &id, sizeof(id), false, &handle, &created), 0);
                assert_int_equal(session_close(a, handle, false, 1, NULL), 0);
        }
        assert_int_equal(sessions_count(a->ns), SESSIONS_MAX);
        assert_int_equal(
                session_open(a,
                        &(struct session_request){(const uint8_t *)&id, sizeof(id), false, 0, 1},
                        &handle, &created, &f->d),
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
