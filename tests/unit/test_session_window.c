/* Sessions that were truncated: a head in the tree, and a window that they hold by themselves. What
 * is cut, what can be published to them, how windows go, and ranges of the text that are kept. */
#include <errno.h>

#include "daemon/core/clients/attach.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/state/shared.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/session-fixture.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/core.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/reclaim/recall.h"
#include "tests/unit/compact-fixture.h"
#include "daemon/core/memory/tasks.h"
#include "tests/unit/recall-fixture.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/moves/renumber.h"

struct bench {
        struct fixture f;
        struct member *m;
        struct attach *a;
        struct ns *ns;
};

static void begin(struct bench *w, unsigned budget, unsigned limit_a, unsigned limit_b)
{
        fixture_start(&w->f, budget, limit_a, limit_b);
        w->m = join(w->f.a);
        w->a = open_ns(w->m, "x");
        w->ns = w->a->ns;
}

static void end(struct bench *w)
{
        fixture_check(&w->f);
        member_free(w->m);
        fixture_end(&w->f);
}

/* A session whose text is `first`.. of n pages, of which the first and the last `keep` are left. */
static uint32_t truncated(
        struct bench *w, const char *id, unsigned first, unsigned n, unsigned keep)
{
        uint32_t s = open_session(w->a, id);

        append(w->a, s, ROOT, first, n);
        truncate_pages(w->a, s, keep, keep, n - 2 * keep);
        fixture_check(&w->f);
        return s;
}

#define SESSION_WINDOW_SCENE(fn, ...) TEST_ON(fn, struct bench, w, begin, end, ##__VA_ARGS__)

SESSION_WINDOW_SCENE(test_ranges, 8, 4, 4)
{
        struct detail d;
        uint64_t n;
        uint32_t s;

        s = open_session(w->a, "s");
        truncate_pages(w->a, s, 1, 1, 0); /* it has none */
        append(w->a, s, ROOT, 0, 6);
        assert_int_equal(session_truncate(session_of(w->a, s, NULL), 0, 0, &n, &d), -EINVAL);
        assert_non_null(strstr(d.text, "drop the session"));
        /* Nothing lies between. */
        truncate_pages(w->a, s, 3, 3, 0);
        truncate_pages(w->a, s, 100, 0, 0);
        truncate_pages(w->a, s, 0, 100, 0);
        assert_false(info_of(w->a, s).is_truncated);
        assert_int_equal(count_hits(w->a, 0, 6), 6);
        /* Whole pages: those with the first 17 and with the last token. */
        assert_int_equal(
                session_truncate(session_of(w->a, s, NULL), PAGE_TOKENS + 1, 1, &n, NULL), 0);
        assert_int_equal(n, 3);
        expect_pages(w->a, s, "0@0 1@1 5@5");
        assert_int_equal(
                session_truncate(session_of(w->a, s, NULL), 5 * PAGE_TOKENS + 1, 1, &n, &d),
                -EINVAL);
        assert_non_null(strstr(d.text, "the gap"));
        /* A larger gap, at its beginning and at its end. */
        append(w->a, s, 5, 6, 3);
        expect_pages(w->a, s, "0@0 1@1 5@5 6@6 7@7 8@8");
        truncate_pages(w->a, s, 1, 2, 3);
        expect_pages(w->a, s, "0@0 7@7 8@8");
        expect_tokens(w->a, s, 9, 0);
        fixture_check(&w->f);
        truncate_pages(w->a, s, 0, 1, 2);
        expect_pages(w->a, s, "8@8");
        assert_false(is_cached(w->a, 0));
        /* Without an end it is what it was before the gap. */
        truncate_pages(w->a, s, 1, 0, 1);
        expect_pages(w->a, s, "");
        expect_tokens(w->a, s, 0, 0);
        assert_false(info_of(w->a, s).is_truncated);
        append(w->a, s, ROOT, 20, 4);
        truncate_pages(w->a, s, 3, 0, 1);
        expect_pages(w->a, s, "20@0 21@1 22@2");
        expect_tokens(w->a, s, 3, 0);
        assert_false(info_of(w->a, s).is_truncated || is_cached(w->a, 23));
}

static int publish_one_shared(
        struct attach *a, uint32_t session, unsigned key, uint32_t parent, uint32_t *ret_page)
{
        uint8_t bytes[KEY_BYTES];
        struct publish_one o = {
                .key = bytes, .parent = parent, .tokens = PAGE_TOKENS, .session = session};
        int r;

        make_keys(bytes, key, 1);
        assert_int_equal(lease_pages(a, 1, 1, &o.page, NULL), 0);
        pins_add(&a->share, o.page);
        r = publish_shared(a, &o, 1, ret_page, NULL);
        atomic_fetch_sub(&a->share.counters[o.page], 1);
        if (r != 0)
                assert_int_equal(free_pages(a, &o.page, 1, NULL), 0);
        return r;
}

/* A page that would end beyond the last token that a text can have isn't published; what is there
 * stays as it is, and can be continued further back. */
SESSION_WINDOW_SCENE(test_longest_text, 8, 4, 4)
{
        const uint64_t most = (UINT64_C(1) << 32) - 6 * PAGE_TOKENS; /* then page 5 ends at 2^32 */
        uint32_t s, page, next, pages[2];
        uint8_t key[KEY_BYTES];

        s = truncated(w, "s", 0, 6, 1);
        push_window(w->a, s, most - 2 * PAGE_TOKENS);
        append(w->a, s, 5, 6, 1);
        assert_int_equal(publish_tail(w->a, s, 6, 7, 1, PAGE_TOKENS, &page), -EINVAL);
        assert_int_equal(publish_tail(w->a, s, 6, 7, 1, PAGE_TOKENS - 1, &page), 0);
        assert_int_equal(release_pages(w->a, &page, 1, 1, NULL), 0);
        assert_int_equal(info_of(w->a, s).n_tokens, TEXT_TOKENS_MAX);
        fixture_check(&w->f);
        assert_int_equal(publish_tail(w->a, s, 7, 8, 1, 1, &page), -EINVAL);
        /* In the middle of what one message publishes. */
        assert_int_equal(publish_tail(w->a, s, 5, 9, 2, PAGE_TOKENS, pages), -EINVAL);
        assert_int_equal(info_of(w->a, s).n_tokens, TEXT_TOKENS_MAX + 1 - PAGE_TOKENS);
        assert_int_equal(attach_share(w->a, NULL), 0);
        make_keys(key, 9, 1);
        page = session_find_parent(w->a, s, key);
        assert_int_equal(publish_one_shared(w->a, s, 10, page, &next), -EINVAL);
        truncate_pages(w->a, s, 1, 1, 1);
        truncate_pages(w->a, s, 1, 0, 1);
        expect_pages(w->a, s, "0@0");
}

/* A text without a gap. */
SESSION_WINDOW_SCENE(test_longest_text_of_a_tree, 8, 4, 4)
{
        uint8_t key[KEY_BYTES];
        uint32_t page;

        append(w->a, 0, ROOT, 0, 1);
        make_keys(key, 0, 1);
        page = ns_find_page(w->ns, key);
        ns_page(w->ns, page)->end_token = TEXT_TOKENS_MAX - PAGE_TOKENS + 1;
        records_reparent(w->ns, page, ns_note(w->ns, page)->place.parent);
        assert_int_equal(publish_tail(w->a, 0, 0, 1, 1, PAGE_TOKENS, &page), -EINVAL);
        assert_int_equal(publish_tail(w->a, 0, 0, 1, 1, PAGE_TOKENS - 1, &page), 0);
        assert_int_equal(ns_page(w->ns, page)->end_token, TEXT_TOKENS_MAX);
        assert_int_equal(release_pages(w->a, &page, 1, 1, NULL), 0);
}

/* Sessions may end in the same text: what their windows take is bounded all the same. */
SESSION_WINDOW_SCENE(test_windows_are_bounded, 8, 4, 4)
{
        uint32_t most, s = 0, n = 0;
        uint64_t left;
        int r = 0;

        append(w->a, open_session(w->a, "all"), ROOT, 0, 8);
        most = SESSION_WINDOWS_SHARE * w->ns->geometry.capacity_pages;
        for (; n <= most / 6 && r == 0; n++) {
                char id[16];

                snprintf(id, sizeof(id), "%u", n);
                s = open_session(w->a, id);
                append(w->a, s, ROOT, 0, 8);
                r = session_truncate(
                        session_of(w->a, s, NULL), PAGE_TOKENS, 6 * PAGE_TOKENS, &left, NULL);
        }
        fixture_check(&w->f);
        assert_int_equal(r, -ENOMEM);
        assert_int_equal(n, most / 6 + 1);
        assert_int_equal(info_of(w->a, s).n_pages, 8);
        /* A closed session is removed for it. */
        assert_int_equal(session_close(w->a, 2, false, 1, NULL), 0);
        truncate_pages(w->a, s, 1, 6, 1);
        fixture_check(&w->f);
        assert_int_equal(info_of(w->a, open_session(w->a, "0")).n_pages, 1);
}

/* How windows of sessions that were truncated go: they give way to leases, leave sets that are
 * taken back, and end with what invalidates or expires them; and sets with windows are not
 * compacted. */

static void compact(struct bench *w)
{
        for (uint64_t i = 1; i < 40; i++) {
                (void)compact_turn(&w->f.store, LATER + i * SECOND / 10);
                (void)recall_work(&w->f.store, LATER + i * SECOND / 10, TIMEOUT, PLENTY);
                fixture_check(&w->f);
        }
}

/* Sets with windows aren't compacted; an end in the tree moves with its page. */
SESSION_WINDOW_SCENE(test_compaction, 8, 8, 4)
{
        uint8_t key[KEY_BYTES];
        uint32_t s, t, before, pages[SET_PAGES];

        s = truncated(w, "s", 0, 4, 1);
        assert_int_equal(lease_pages(w->a, SET_PAGES - 2, 1, pages, NULL), 0);
        t = open_session(w->a, "t");
        append(w->a, t, ROOT, 10, 2);
        assert_int_equal(free_pages(w->a, pages, SET_PAGES - 2, NULL), 0);
        make_keys(key, 11, 1);
        before = ns_find_page(w->ns, key);
        compact(w);
        assert_int_not_equal(ns_find_page(w->ns, key), before);
        assert_int_equal(w->ns->device.n_sets, 1);
        expect_pages(w->a, s, "0@0 3@3");
        expect_pages(w->a, t, "10@0 11@1");
}

/* Windows of sessions take little time in a turn of the loop. Long ones are freed in slices, for
 * any reason, and a recall of a set looks at few of them. */

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
        idle_sets_drain(&w->f.store);
        assert_int_equal(info_of(w->a, s).n_pages, 6);
        /* The other one's window comes behind it. */
        assert_int_equal(sessions_leave_set(w->ns->sets.at[0]), 3);
        idle_sets_drain(&w->f.store);
        fixture_check(&w->f);
        expect_tokens(w->a, s, 7, 3);
        assert_int_equal(info_of(w->a, t).n_pages, 8);
        assert_int_equal(sessions_leave_set(w->ns->sets.at[0]), 0);
        idle_sets_drain(&w->f.store);
        assert_int_equal(sessions_leave_set(w->ns->sets.at[1]), 6);
        idle_sets_drain(&w->f.store);
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
        while (tasks_work(&w->f.store)) /* the windows' pages leave the tree */
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
        while (tasks_work(&w->f.store))
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
        while (tasks_work(&w.f.store))
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
        idle_sets_drain(&w.f.store);
        expect_pages(w.a, s, "0@0");
        assert_int_equal(w.ns->sessions->n_room, 0);
        for (unsigned n = LONG_WINDOW - 4; n > 0; n -= MIN(n, 4u)) {
                assert_int_equal(ns_n_pages(w.ns, PAGE_DETACHED), n);
                fixture_check(&w.f);
                assert_true(sessions_give_way(w.ns, true));
                idle_sets_drain(&w.f.store);
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
        idle_sets_drain(&w.f.store);
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
                        idle_sets_drain(&w.f.store);
                        fixture_check(&w.f);
                }
                if (how < 3)
                        expect_slices(&w, 0);
                end(&w); /* or it is there when its namespace goes */
        }
}

/* ---- ranges that are kept -------------------------------------------------------------------- */

#define END UINT64_MAX /* where the text ends, in pages here */

/* A range of whole pages. */
#define PAGES(from, to)                                                                \
        {                                                                              \
                (from) * PAGE_TOKENS, (to) == END ? TOKEN_RANGE_END : (to)*PAGE_TOKENS \
        }

#define KEEP(w, s, left, ...)                                                       \
        do {                                                                        \
                const struct token_range ranges_[] = {__VA_ARGS__};                 \
                uint64_t n_;                                                        \
                                                                                    \
                assert_int_equal(session_keep(session_of((w)->a, s, NULL), ranges_, \
                                         ARRAY_SIZE(ranges_), &n_, NULL),           \
                        0);                                                         \
                assert_int_equal(n_, left);                                         \
                fixture_check(&(w)->f);                                             \
        } while (0)

#define EXPECT_REFUSED(w, s, words, ...)                                   \
        do {                                                               \
                const struct token_range ranges_[] = {__VA_ARGS__};        \
                                                                           \
                expect_refused(w, s, ranges_, ARRAY_SIZE(ranges_), words); \
        } while (0)

static void expect_refused(struct bench *w, uint32_t s, const struct token_range *ranges,
        uint32_t n, const char *words)
{
        struct detail d;
        uint64_t left;

        assert_int_equal(session_keep(session_of(w->a, s, NULL), ranges, n, &left, &d), -EINVAL);
        if (!strstr(d.text, words))
                fail_msg("\"%s\" doesn't say \"%s\"", d.text, words);
        fixture_check(&w->f);
}

static uint32_t begin_text(struct bench *w, unsigned n)
{
        uint32_t s;

        begin(w, 16, 16, 16);
        s = open_session(w->a, "s");
        append(w->a, s, ROOT, 0, n);
        return s;
}

/* truncate_pages() of a session with several gaps: its last tokens go over them. */
TEST(test_truncated_after)
{
        struct bench w;
        uint32_t s = begin_text(&w, 12);

        KEEP(&w, s, 5, PAGES(0, 3), PAGES(5, 6), PAGES(8, 9), PAGES(10, END));
        truncate_pages(w.a, s, 2, 5, 2); /* from 7 on */
        expect_pages(w.a, s, "0@0 1@1 8@8 10@10 11@11");
        append(w.a, s, 11, 12, 1);
        truncate_pages(w.a, s, 2, 2, 2);
        expect_pages(w.a, s, "0@0 1@1 11@11 12@12");
        KEEP(&w, s, 2, PAGES(1, 2), PAGES(12, END));
        expect_pages(w.a, s, "1@1 12@12");
        truncate_pages(w.a, s, 1, 0, 2); /* it has no head any more */
        expect_pages(w.a, s, "");
        assert_false(info_of(w.a, s).is_truncated);
        end(&w);
}

/* Where the last range ends before the text does, the text ends there. */
TEST(test_earlier_end)
{
        struct bench w;
        uint32_t s = begin_text(&w, 10);

        KEEP(&w, s, 7, PAGES(0, 2), PAGES(4, 5));
        expect_pages(w.a, s, "0@0 1@1 4@4");
        expect_tokens(w.a, s, 5, 0);
        append(w.a, s, 4, 20, 2);
        expect_pages(w.a, s, "0@0 1@1 4@4 20@5 21@6");
        KEEP(&w, s, 1, PAGES(0, 2), PAGES(4, 6));
        expect_tokens(w.a, s, 6, 0);
        assert_true(info_of(w.a, s).is_truncated);
        /* Without anything behind a gap it is what lies before that. */
        KEEP(&w, s, 2, PAGES(0, 2));
        expect_pages(w.a, s, "0@0 1@1");
        expect_tokens(w.a, s, 2, 0);
        assert_false(info_of(w.a, s).is_truncated);
        append(w.a, s, 1, 30, 2);
        assert_true(is_cached(w.a, 31));
        KEEP(&w, s, 2, PAGES(0, 2));
        assert_false(info_of(w.a, s).is_truncated || is_cached(w.a, 30));
        /* And nothing at all may be left of it, for it to go on where it ended. */
        KEEP(&w, s, 2, PAGES(2, END));
        expect_pages(w.a, s, "");
        expect_tokens(w.a, s, 2, 0);
        append(w.a, s, ROOT, 40, 1);
        expect_pages(w.a, s, "40@2");
        end(&w);
}

/* A page stays as a whole where a range has one of its tokens. Ranges that meet are one. */
TEST(test_whole_pages)
{
        uint32_t s, page;
        struct bench w;

        s = begin_text(&w, 8);
        assert_int_equal(publish_tail(w.a, s, 7, 8, 1, 5, &page), 0);
        assert_int_equal(release_pages(w.a, &page, 1, 1, NULL), 0);
        KEEP(&w, s, 0, {0, 1}, {PAGE_TOKENS, 3 * PAGE_TOKENS + 1}, {5 * PAGE_TOKENS - 1, END});
        assert_false(info_of(w.a, s).is_truncated);
        KEEP(&w, s, 4, {0, 3}, {3, PAGE_TOKENS + 1}, {5 * PAGE_TOKENS - 1, 5 * PAGE_TOKENS + 1},
                {8 * PAGE_TOKENS + 4, 8 * PAGE_TOKENS + 5});
        assert_int_equal(info_of(w.a, s).n_pages, 5);
        assert_int_equal(info_of(w.a, s).n_tokens, 8 * PAGE_TOKENS + 5);
        assert_int_equal(count_hits(w.a, 0, 9), 2);
        KEEP(&w, s, 1, PAGES(0, 1), PAGES(1, 2), {4 * PAGE_TOKENS + 7, 4 * PAGE_TOKENS + 8},
                {8 * PAGE_TOKENS + 1, END});
        assert_int_equal(info_of(w.a, s).n_pages, 4);
        end(&w);
}

TEST(test_refused)
{
        static struct token_range many[TRUNCATION_RANGES_MAX + 1];
        struct bench w;
        uint32_t s = begin_text(&w, 10);

        expect_refused(&w, s, many, 0, "drop the session");
        for (uint32_t i = 0; i < ARRAY_SIZE(many); i++)
                many[i] = (struct token_range){2 * i, 2 * i + 1};
        expect_refused(&w, s, many, ARRAY_SIZE(many), "1 to 1024");
        expect_refused(&w, s, many, TRUNCATION_RANGES_MAX, "the text has 160");
        EXPECT_REFUSED(&w, s, "no token", {16, 16});
        EXPECT_REFUSED(&w, s, "no token", PAGES(0, 1), {40, 39});
        EXPECT_REFUSED(&w, s, "ascend", PAGES(4, 5), PAGES(0, 1));
        EXPECT_REFUSED(&w, s, "ascend", PAGES(0, 2), {2 * PAGE_TOKENS - 1, END});
        EXPECT_REFUSED(&w, s, "ascend", PAGES(0, END), {END - 1, END});
        EXPECT_REFUSED(&w, s, "the text has 160", PAGES(0, 1), {32, 10 * PAGE_TOKENS + 1});
        EXPECT_REFUSED(&w, s, "the text has 160", {10 * PAGE_TOKENS + 1, END});
        EXPECT_REFUSED(&w, s, "the text has 160", {END - 2, END - 1});
        assert_int_equal(info_of(w.a, s).n_pages, 10);
        assert_int_equal(count_hits(w.a, 0, 10), 10);
        KEEP(&w, s, 5, PAGES(0, 2), PAGES(4, 5), PAGES(8, END));
        /* Ranges that were given up, in the first gap and in another one. */
        EXPECT_REFUSED(&w, s, "from 32 on, before 64, were given up", {0, 2 * PAGE_TOKENS + 1},
                PAGES(4, 5));
        EXPECT_REFUSED(&w, s, "from 32 on, before 64, were given up", {63, 65});
        EXPECT_REFUSED(&w, s, "from 80 on, before 128, were given up", PAGES(0, 2), PAGES(4, END));
        EXPECT_REFUSED(&w, s, "from 80 on, before 128, were given up", PAGES(6, 7));
        expect_pages(w.a, s, "0@0 1@1 4@4 8@8 9@9");
        end(&w);
}

/* ---- in slices ------------------------------------------------------------------------------- */

#define SLICE  4
#define N_TEXT 60

struct keeping {
        struct bench w;
        uint32_t s;
        struct session_truncation t;
        bool is_done;
};

static void on_done(struct session_truncation *t)
{
        container_of(t, struct keeping, t)->is_done = true;
}

/* Every second page of 0..19, and 20..58 but for 30..39: of a session that had given up 10..14. */
static void begin_keeping(struct keeping *k)
{
        static const struct token_range first[] = {PAGES(0, 10), PAGES(15, END)};
        struct token_range ranges[11];
        struct session_truncation t;
        uint64_t left;
        unsigned n = 0;

        k->s = begin_text(&k->w, N_TEXT);
        assert_int_equal(session_keep(session_of(k->w.a, k->s, NULL), first, 2, &left, NULL), 0);
        k->w.f.store.drop_slice_pages = SLICE;
        for (unsigned i = 0; i < 20; i += 2)
                if (i < 10 || i > 14)
                        ranges[n++] = (struct token_range)PAGES(i, i + 1);
        ranges[n++] = (struct token_range)PAGES(20, 30);
        ranges[n++] = (struct token_range)PAGES(40, 59);
        assert_int_equal(truncation_begin(&t, session_of(k->w.a, k->s, NULL), ranges, n, NULL), 0);
        assert_false(truncation_is_over(&t));
        truncation_queue(&t, &k->t, on_done);
        k->is_done = false;
        fixture_check(&k->w.f);
}

#define N_BEFORE (N_TEXT - 5)
#define N_AFTER  (5 + 2 + 10 + 19)

static void give_up(struct keeping *k, unsigned n)
{
        for (; n > 0 && !k->is_done; n--) {
                assert_non_null(tasks_work(&k->w.f.store));
                fixture_check(&k->w.f);
        }
}

static void expect_kept(struct keeping *k)
{
        while (tasks_work(&k->w.f.store))
                fixture_check(&k->w.f);
        assert_true(k->is_done);
        assert_int_equal(k->t.result, 0);
        assert_int_equal(k->t.n_left, N_BEFORE - N_AFTER);
        assert_int_equal(info_of(k->w.a, k->s).n_pages, N_AFTER);
        expect_tokens(k->w.a, k->s, 59, 0);
        assert_int_equal(k->w.ns->sessions->n_room, N_AFTER - 1);
        /* Nothing is held that isn't the session's. */
        assert_int_equal(k->w.ns->device.n_pages[PAGE_DETACHED], N_AFTER - 1);
}

static void end_keeping(struct keeping *k)
{
        while (tasks_work(&k->w.f.store))
                fixture_check(&k->w.f);
        end(&k->w);
}

#define SCENE(fn, ...) TEST_ON(fn, struct keeping, k, begin_keeping, end_keeping, ##__VA_ARGS__)

/* For everybody it is as before until it is done. What leaves is let go of in slices, too. */
TEST(test_slices)
{
        unsigned n_before = 0, n_after = 0;
        struct keeping k;

        for (begin_keeping(&k); !k.is_done; give_up(&k, 1)) {
                bool is_new = session_of(k.w.a, k.s, NULL)->truncation == NULL;

                assert_int_equal(info_of(k.w.a, k.s).n_pages, is_new ? N_AFTER : N_BEFORE);
                n_before += !is_new;
                n_after += is_new;
        }
        assert_true(n_before >= 10 && n_after >= 10);
        expect_kept(&k);
        append(k.w.a, k.s, 58, 70, 1);
        expect_tokens(k.w.a, k.s, 60, 0);
        end_keeping(&k);
}

/* Pages that are evicted meanwhile stay in the text, in its order. */
TEST(test_evicted)
{
        for (unsigned n_slices = 0; n_slices < 13; n_slices += 3) {
                struct keeping k;

                begin_keeping(&k);
                give_up(&k, n_slices);
                for (unsigned key = 10; key-- > 1;) {
                        evict(k.w.a, key);
                        fixture_check(&k.w.f);
                }
                expect_kept(&k);
                end_keeping(&k);
        }
}

/* A page of the head moves to another place. */
SCENE(test_moved)
{
        uint32_t to;

        assert_int_equal(lease_pages(k->w.a, 1, 1, &to, NULL), 0);
        grants_remove(k->w.a->grants, to);
        renumber_page(k->w.ns, k->t.at, to, 0);
        idle_sets_drain(&k->w.f.store);
        ns_page(k->w.ns, to)->owner = 0;
        assert_int_equal(k->t.at, to);
        fixture_check(&k->w.f);
        expect_kept(k);
}

/* Memory is needed: first the window goes, then what is held; the session ends up without one. */
SCENE(test_gives_way)
{
        while (k->t.n_seen < k->t.n_window)
                give_up(k, 1);
        while (sessions_give_way(k->w.ns, true)) {
                idle_sets_drain(&k->w.f.store);
                fixture_check(&k->w.f);
        }
        give_up(k, UINT32_MAX);
        assert_int_equal(k->t.result, 0);
        assert_int_equal(info_of(k->w.a, k->s).n_pages, 1);
        expect_tokens(k->w.a, k->s, 59, 57);
        assert_int_equal(k->w.ns->sessions->n_room, 0);
        assert_int_equal(k->w.ns->device.n_pages[PAGE_DETACHED], 0);
}

/* A set of pages that it holds is recalled, while it walks or lets go of the old window. */
TEST(test_recalled)
{
        for (unsigned n_slices = 1; n_slices < 40; n_slices += 2) {
                struct keeping k;
                uint32_t page;

                begin_keeping(&k);
                page = session_of(k.w.a, k.s, NULL)->window.pages[20];
                give_up(&k, n_slices);
                if (ns_page(k.w.ns, page)) {
                        (void)sessions_leave_set(ns_set_of(k.w.ns, page));
                        idle_sets_drain(&k.w.f.store);
                        fixture_check(&k.w.f);
                }
                give_up(&k, UINT32_MAX);
                end_keeping(&k);
        }
}

/* The session goes in the middle, before it has changed and after that. */
TEST(test_gone)
{
        for (unsigned n_slices = 1; n_slices < 40; n_slices += 2) {
                struct keeping k;
                bool is_new;

                begin_keeping(&k);
                give_up(&k, n_slices);
                is_new = session_of(k.w.a, k.s, NULL)->truncation == NULL;
                assert_int_equal(session_close(k.w.a, k.s, true, 1, NULL), 0);
                fixture_check(&k.w.f);
                give_up(&k, UINT32_MAX);
                assert_int_equal(k.t.result, is_new ? 0 : -ENOENT);
                while (sessions_are_left(k.w.ns)) {
                        uint32_t budget = 100;

                        (void)sessions_sweep(k.w.ns, &budget);
                }
                idle_sets_drain(&k.w.f.store);
                assert_int_equal(k.w.ns->device.n_pages[PAGE_DETACHED], 0);
                end_keeping(&k);
        }
}
