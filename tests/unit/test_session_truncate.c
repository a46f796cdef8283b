/* Truncations of long texts, a slice at a time: what can happen to text, session and namespace
 * between two of them. */
#include <errno.h>

#include "daemon/core/core.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/memory/tasks.h"
#include "tests/unit/session-fixture.h"

#define SLICE   4
#define N_PAGES 60
#define N_HEAD  10
#define N_END   30 /* pages that stay after the gap */

struct bench {
        struct fixture f;
        struct member *m;
        struct attach *a;
        struct ns *ns;
        uint32_t s;
        struct session_truncation t;
        bool is_done;
};

static void on_done(struct session_truncation *t)
{
        container_of(t, struct bench, t)->is_done = true;
}

/* Begins to truncate a session, and runs the first slice. */
static void truncate_soon(struct bench *w, uint32_t session)
{
        struct session_truncation t;

        assert_int_equal(truncation_begin_ends(&t, session_of(w->a, session, NULL),
                                 N_HEAD * PAGE_TOKENS, N_END * PAGE_TOKENS, NULL),
                0);
        assert_false(truncation_is_over(&t));
        truncation_queue(&t, &w->t, on_done);
        w->is_done = false;
        fixture_check(&w->f);
}

/* A session whose truncation has begun. */
static void begin(struct bench *w)
{
        fixture_start(&w->f, 16, 16, 16);
        w->f.store.drop_slice_pages = SLICE;
        w->m = join(w->f.a);
        w->a = open_ns(w->m, "x");
        w->ns = w->a->ns;
        w->s = open_session(w->a, "s");
        append(w->a, w->s, ROOT, 0, N_PAGES);
        truncate_soon(w, w->s);
}

/* n more slices. */
static void work(struct bench *w, unsigned n)
{
        for (; n > 0; n--) {
                assert_non_null(tasks_work(&w->f.store));
                fixture_check(&w->f);
        }
}

static void finish(struct bench *w, int result)
{
        while (!w->is_done)
                work(w, 1);
        assert_int_equal(w->t.result, result);
        assert_int_equal(w->t.why.text[0] != 0, result != 0);
}

static void end(struct bench *w)
{
        while (tasks_work(&w->f.store))
                fixture_check(&w->f);
        member_free(w->m);
        fixture_end(&w->f);
}

#define SCENE(fn, ...) TEST_ON(fn, struct bench, w, begin, end, ##__VA_ARGS__)

static void expect_truncated(struct bench *w, unsigned n_window)
{
        struct session_info info = info_of(w->a, w->s);

        assert_true(info.is_truncated);
        assert_int_equal(info.n_pages, N_HEAD + n_window);
        assert_int_equal(info.n_tokens, N_PAGES * PAGE_TOKENS);
        assert_int_equal(info.lost_tokens, (N_END - n_window) * PAGE_TOKENS);
        assert_int_equal(w->t.n_left, N_PAGES - N_HEAD - N_END);
        assert_int_equal(w->ns->sessions->n_room, n_window);
}

/* Nothing of it is held. */
static void expect_untouched(struct bench *w)
{
        assert_int_equal(w->ns->sessions->n_room, 0);
        for (uint32_t i = 0; i < w->ns->geometry.capacity_pages; i++)
                if (ns_page(w->ns, i))
                        assert_int_equal(ns_extra(w->ns, i)->n_windows, 0);
}

/* For everybody it is as before until it is done, and then all that it is to be. */
TEST(test_slices)
{
        unsigned n = 0, before = 0;
        struct bench w;

        for (begin(&w); !w.is_done; n++) {
                struct session_info info = info_of(w.a, w.s);

                assert_false(info.is_truncated);
                assert_int_equal(info.n_pages, N_PAGES);
                assert_int_equal(count_hits(w.a, 0, N_PAGES), N_PAGES);
                assert_true(w.ns->sessions->n_room - before <= SLICE);
                before = (unsigned)w.ns->sessions->n_room;
                work(&w, 1);
        }
        assert_true(n >= (N_PAGES - N_HEAD) / SLICE);
        finish(&w, 0);
        expect_truncated(&w, N_END);
        append(w.a, w.s, N_PAGES - 1, N_PAGES, 1);
        assert_int_equal(info_of(w.a, w.s).n_pages, N_HEAD + N_END + 1);
        end(&w);
}

/* Pages that are evicted meanwhile, from the end of the text on, stay in the text: those of the
 * window and of the gap. Pages of the head are lost. */
TEST(test_evicted)
{
        for (unsigned n_slices = 0; n_slices < 12; n_slices += 3) {
                struct bench w;

                begin(&w);
                work(&w, n_slices);
                if (w.is_done)
                        fail();
                for (unsigned key = N_PAGES; key-- > N_HEAD - 2;) {
                        evict(w.a, key);
                        fixture_check(&w.f);
                }
                assert_int_equal(info_of(w.a, w.s).n_pages, N_HEAD - 2);
                finish(&w, 0);
                assert_int_equal(info_of(w.a, w.s).n_pages, N_HEAD - 2 + N_END);
                assert_int_equal(info_of(w.a, w.s).lost_tokens, 2 * PAGE_TOKENS);
                assert_int_equal(w.t.n_left, N_PAGES - N_HEAD - N_END);
                end(&w);
        }
}

/* The caller leaves, and the namespace is removed: the truncation's owner gets the result. */
SCENE(test_namespace_goes)
{
        uint64_t n_pages, n_kept;

        work(w, 3);
        attach_close(w->a);
        fixture_check(&w->f);
        assert_int_equal(store_purge(&w->f.store, w->f.a, w->ns, true, &n_pages, &n_kept), 0);
        assert_int_equal(n_kept, 0);
        assert_true(w->is_done);
        assert_int_equal(w->t.result, -ENOENT);
}

/* Memory is needed: what it holds gives way, last, and it ends up without a window. */
SCENE(test_gives_way)
{
        work(w, 5);
        assert_false(sessions_give_way(w->ns, false));
        assert_int_equal(w->ns->sessions->n_room, 6 * SLICE);
        for (unsigned n = 0; n < 6; n++) {
                assert_true(sessions_give_way(w->ns, true));
                idle_sets_drain(&w->f.store);
                fixture_check(&w->f);
        }
        expect_untouched(w);
        assert_false(sessions_give_way(w->ns, true));
        finish(w, 0);
        expect_truncated(w, 0);
}

/* So it does where the set of a page is recalled: one that it holds, or comes to. */
TEST(test_recalled)
{
        for (int is_held = 0; is_held < 2; is_held++) {
                struct bench w;
                uint8_t key[KEY_BYTES];
                struct extent_set *set;

                begin(&w);
                work(&w, 3);
                make_keys(key, is_held ? N_PAGES - 2 : N_PAGES - N_END, 1);
                set = ns_set_of(w.ns, ns_find_page(w.ns, key));
                assert_int_equal(sessions_leave_set(set), is_held ? 4 * SLICE : 0);
                idle_sets_drain(&w.f.store);
                fixture_check(&w.f);
                if (is_held) {
                        for (unsigned i = 0; i < SET_PAGES; i++)
                                assert_int_equal(
                                        ns_extra(w.ns, set->index * SET_PAGES + i)->n_windows, 0);
                        work(&w, 1);
                        assert_int_equal(w.ns->sessions->n_room, 0);
                } else {
                        set->recall.state = RECALL_ASKED; /* as far as windows are concerned */
                }
                while (!w.t.is_lost)
                        (void)tasks_work(&w.f.store);
                set->recall.state = RECALL_NONE;
                finish(&w, 0);
                expect_truncated(&w, 0);
                expect_untouched(&w);
                end(&w);
        }
}

/* One of a session at a time, and so many of all. */
SCENE(test_limit)
{
        struct session_truncation t[TRUNCATIONS_MAX];
        unsigned n_done = 0;
        struct detail d;
        uint32_t s;

        assert_int_equal(
                truncation_begin_ends(&t[0], session_of(w->a, w->s, NULL), 1, 1, &d), -EAGAIN);
        assert_non_null(strstr(d.text, "is being truncated"));
        for (unsigned i = 0; i < TRUNCATIONS_MAX; i++) {
                char id[8];

                snprintf(id, sizeof(id), "t%u", i);
                s = open_session(w->a, id);
                append(w->a, s, ROOT, 0, N_PAGES);
                if (truncation_begin_ends(&t[i], session_of(w->a, s, NULL), 1, 1, &d) == 0)
                        continue;
                assert_non_null(strstr(d.text, "64 sessions"));
                n_done = i;
                break;
        }
        assert_int_equal(n_done, TRUNCATIONS_MAX - 1);
        for (unsigned i = 0; i < n_done; i++) {
                truncation_cancel(&t[i]);
                assert_true(truncation_is_over(&t[i]));
                assert_int_equal(t[i].result, -ENOMEM);
        }
        finish(w, 0);
}
