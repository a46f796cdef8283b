/* Windows of sessions take little time in a turn of the loop. Long ones are freed in slices, for
 * any reason, and a recall of a set looks at few of them. */
#include "daemon/core/core.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/memory/settle.h"
#include "daemon/core/memory/chores.h"
#include "daemon/core/reclaim/recall-work.h"
#include "tests/unit/recall-fixture.h"
#include "tests/unit/session-window-fixture.h"

/* Windows elsewhere, of more pages than is looked at in a turn, don't hold a recall up. */
SESSION_WINDOW_SCENE(test_recall_beside_windows, 8, 4, 4)
{
        uint32_t t;

        (void)truncated(w, "s", 0, 7, 3); /* all in the first set */
        t = open_session(w->a, "t");
        append(w->a, t, ROOT, 20, 3);
        assert_int_equal(w->ns->device.n_sets, 2);
        recall_set(w->ns->sets.at[1], RECALL_FORCED);
        for (unsigned i = 0; i < 100; i++)
                if (recall_work(&w->f.store, 1, TIMEOUT, 2) != RECALL_MORE)
                        break;
        fixture_check(&w->f);
        assert_null(w->ns->sets.at[1]);
        assert_int_equal(w->ns->device.n_pages[PAGE_DETACHED], 3);
}

/* Leaving a set looks at windows only while one may have pages there. */
SESSION_WINDOW_SCENE(test_leave_set_looks_at_few, 8, 8, 8)
{
        uint32_t s, t, u;

        s = truncated(w, "s", 0, 7, 3); /* all in the first set */
        t = truncated(w, "t", 20, 8, 2);
        append(w->a, t, 27, 28, 4);
        u = open_session(w->a, "u");
        append(w->a, u, ROOT, 40, 8);
        assert_true(w->ns->device.n_sets > 2);
        assert_int_equal(sessions_leave_set(w->ns->sets.at[w->ns->device.n_sets - 1]), 0);
        settle_all(&w->f.store);
        assert_int_equal(info_of(w->a, s).n_pages, 6);
        /* The other one's window comes behind it. */
        assert_int_equal(sessions_leave_set(w->ns->sets.at[0]), 3);
        settle_all(&w->f.store);
        fixture_check(&w->f);
        expect_tokens(w->a, s, 7, 3);
        assert_int_equal(info_of(w->a, t).n_pages, 8);
        assert_int_equal(sessions_leave_set(w->ns->sets.at[0]), 0);
        settle_all(&w->f.store);
        assert_int_equal(sessions_leave_set(w->ns->sets.at[1]), 6);
        settle_all(&w->f.store);
        fixture_check(&w->f);
        assert_int_equal(info_of(w->a, t).n_pages, 2);
}

/* The pages of a long window that a session leaves go a slice at a time; it is gone at once, and
 * its room is others'. */
SESSION_WINDOW_SCENE(test_long_window_goes_in_slices, 16, 16, 16)
{
        uint64_t n_kept;
        unsigned n = 0;
        uint32_t s;

        w->f.store.drop_slice_pages = 4;
        s = open_session(w->a, "s");
        append(w->a, s, ROOT, 0, 60);
        truncate_pages(w->a, s, 1, 50, 9);
        while (chores_work(&w->f.store)) /* the windows' pages leave the tree */
                ;
        n_kept = ns_n_pages(w->ns, PAGE_DETACHED);
        assert_int_equal(n_kept, 50);
        assert_int_equal(session_close(w->a, s, true, 1, NULL), 0);
        fixture_check(&w->f);
        assert_int_equal(sessions_count(w->ns), 0);
        assert_int_equal(w->ns->sessions->n_room, 0);
        s = open_session(w->a, "s"); /* another one */
        assert_int_equal(info_of(w->a, s).n_pages, 0);
        for (bool more = true; more; n++) {
                uint64_t before = ns_n_pages(w->ns, PAGE_DETACHED);

                more = store_work(&w->f.store, 4);
                assert_true(before - ns_n_pages(w->ns, PAGE_DETACHED) <= 4);
                fixture_check(&w->f);
        }
        assert_true(n >= n_kept / 4);
        assert_int_equal(ns_n_pages(w->ns, PAGE_DETACHED), 0);
        assert_int_equal(sessions_count(w->ns), 1);
}

#define LONG_WINDOW 50

/* A session whose window has LONG_WINDOW pages, which no other session uses; slices have 4 of them.
 */
static uint32_t long_window(struct bench *w)
{
        uint32_t s;

        begin(w, 16, 16, 16);
        w->f.store.drop_slice_pages = 4;
        s = open_session(w->a, "s");
        append(w->a, s, ROOT, 0, 60);
        truncate_pages(w->a, s, 1, LONG_WINDOW, 9);
        while (chores_work(&w->f.store))
                ;
        assert_int_equal(ns_n_pages(w->ns, PAGE_DETACHED), LONG_WINDOW);
        return s;
}

/* The pages that left the window go 4 at a time, the first 4 of them did; `n` stay. */
static void expect_slices(struct bench *w, unsigned n)
{
        uint64_t now = ns_n_pages(w->ns, PAGE_DETACHED), before;

        fixture_check(&w->f);
        for (bool more = true; more;) {
                before = now;
                more = store_work(&w->f.store, 4);
                now = ns_n_pages(w->ns, PAGE_DETACHED);
                assert_true(before - now <= 4);
                fixture_check(&w->f);
        }
        assert_int_equal(now, n);
}

/* A page that is published to the session continues none of its window. The window is dropped, and
 * the session begins anew with the page. */
TEST(test_window_begins_anew_in_slices)
{
        struct bench w;
        uint32_t s = long_window(&w);

        append(w.a, s, 0, 100, 1);
        assert_int_equal(ns_n_pages(w.ns, PAGE_DETACHED), LONG_WINDOW - 4 + 1);
        expect_pages(w.a, s, "0@0 100@10");
        append(w.a, s, 100, 101, 2); /* while pages of the first window are held */
        expect_pages(w.a, s, "0@0 100@10 101@11 102@12");
        append(w.a, s, 0, 110, 1); /* and once more */
        append(w.a, s, 110, 111, 3);
        expect_pages(w.a, s, "0@0 110@10 111@11 112@12 113@13");
        expect_slices(&w, 4);
        expect_pages(w.a, s, "0@0 110@10 111@11 112@12 113@13");
        end(&w);
}

TEST(test_window_is_shortened_in_slices)
{
        struct bench w;
        uint32_t s = long_window(&w);

        truncate_pages(w.a, s, 1, 30, 20);
        assert_int_equal(ns_n_pages(w.ns, PAGE_DETACHED), LONG_WINDOW - 4);
        assert_int_equal(info_of(w.a, s).n_pages, 1 + 30);
        truncate_pages(w.a, s, 1, 3, 27);
        expect_pages(w.a, s, "0@0 57@57 58@58 59@59");
        append(w.a, s, 59, 60, 40); /* for which there is more room wanted */
        assert_int_equal(info_of(w.a, s).n_pages, 1 + 43);
        expect_slices(&w, 43);
        assert_int_equal(info_of(w.a, s).n_pages, 1 + 43);
        truncate_pages(w.a, s, 1, 0, 43); /* it is none that is truncated any more */
        expect_pages(w.a, s, "0@0");
        append(w.a, s, 0, 1, 9);
        truncate_pages(w.a, s, 1, 1, 8);
        expect_pages(w.a, s, "0@0 9@9");
        while (chores_work(&w.f.store))
                ;
        expect_slices(&w, 1);
        end(&w);
}

/* A window that is lost, too; and pages of it are the first that a lease takes after that, a slice
 * at a time. */
TEST(test_window_is_lost_in_slices)
{
        struct bench w;
        uint32_t s = long_window(&w);

        assert_true(sessions_give_way(w.ns, true));
        settle_all(&w.f.store);
        expect_pages(w.a, s, "0@0");
        assert_int_equal(w.ns->sessions->n_room, 0);
        for (unsigned n = LONG_WINDOW - 4; n > 0; n -= MIN(n, 4u)) {
                assert_int_equal(ns_n_pages(w.ns, PAGE_DETACHED), n);
                fixture_check(&w.f);
                assert_true(sessions_give_way(w.ns, true));
                settle_all(&w.f.store);
        }
        assert_int_equal(ns_n_pages(w.ns, PAGE_DETACHED), 0);
        assert_false(sessions_give_way(w.ns, true));
        end(&w);
}

/* One that is lost because of a set that is taken back: the set's pages go at once, those before
 * and behind them in slices. */
TEST(test_window_leaves_set_in_slices)
{
        struct bench w;
        uint32_t s = long_window(&w);
        struct extent_set *set = ns_set_of(w.ns, session_of(w.a, s, NULL)->window.pages[20]);

        assert_int_equal(sessions_leave_set(set), LONG_WINDOW);
        assert_true(set_is_idle(set));
        settle_all(&w.f.store);
        expect_pages(w.a, s, "0@0");
        assert_int_equal(ns_n_pages(w.ns, PAGE_DETACHED), LONG_WINDOW - 4 - SET_PAGES);
        expect_slices(&w, 0);
        end(&w);
}

/* The session ends, however it does, before all of them went. */
TEST(test_slices_of_a_session_that_ends)
{
        for (int how = 0; how < 4; how++) {
                struct bench w;
                uint32_t s = long_window(&w);
                uint64_t n;

                truncate_pages(w.a, s, 1, 20, LONG_WINDOW - 20);
                if (how == 0)
                        assert_int_equal(session_close(w.a, s, true, 1, NULL), 0);
                if (how == 1 || how == 2)
                        assert_int_equal(ns_invalidate(w.ns, CAUSE_NAMESPACE, &n), 0);
                while (how == 2 && sessions_give_way(w.ns, true)) {
                        settle_all(&w.f.store);
                        fixture_check(&w.f);
                }
                if (how < 3)
                        expect_slices(&w, 0);
                end(&w); /* or it is there when its namespace goes */
        }
}
