/* Sessions that keep ranges of their text, and give up what lies between, again and again. */
#include <errno.h>

#include "daemon/core/clients/grants.h"
#include "daemon/core/moves/renumber.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/session-window-fixture.h"

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

static void work(struct keeping *k, unsigned n)
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

        for (begin_keeping(&k); !k.is_done; work(&k, 1)) {
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
                work(&k, n_slices);
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

/* Published to, or without the window that it had: it is as before, and is asked again. */
TEST(test_called_off)
{
        for (int is_lost = 0; is_lost < 2; is_lost++) {
                struct keeping k;

                begin_keeping(&k);
                work(&k, 3);
                if (is_lost)
                        assert_true(sessions_give_way(k.w.ns, true));
                else
                        append(k.w.a, k.s, N_TEXT - 1, N_TEXT, 1);
                idle_sets_drain(&k.w.f.store);
                fixture_check(&k.w.f);
                assert_null(session_of(k.w.a, k.s, NULL)->truncation);
                work(&k, UINT32_MAX);
                assert_int_equal(k.t.result, -EAGAIN);
                assert_non_null(strstr(k.t.why.text, is_lost ? "lost" : "published"));
                while (sessions_are_left(k.w.ns)) {
                        uint32_t budget = 100;

                        (void)sessions_sweep(k.w.ns, &budget);
                }
                assert_int_equal(info_of(k.w.a, k.s).n_pages, is_lost ? 10 : N_BEFORE + 1);
                KEEP(&k.w, k.s, 8, PAGES(0, 1), PAGES(3, 4), PAGES(15, END));
                end_keeping(&k);
        }
}

/* Memory is needed: first the window goes, then what is held; the session ends up without one. */
SCENE(test_gives_way)
{
        while (k->t.n_seen < k->t.n_window)
                work(k, 1);
        while (sessions_give_way(k->w.ns, true)) {
                idle_sets_drain(&k->w.f.store);
                fixture_check(&k->w.f);
        }
        work(k, UINT32_MAX);
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
                work(&k, n_slices);
                if (ns_page(k.w.ns, page)) {
                        (void)sessions_leave_set(ns_set_of(k.w.ns, page));
                        idle_sets_drain(&k.w.f.store);
                        fixture_check(&k.w.f);
                }
                work(&k, UINT32_MAX);
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
                work(&k, n_slices);
                is_new = session_of(k.w.a, k.s, NULL)->truncation == NULL;
                assert_int_equal(session_close(k.w.a, k.s, true, 1, NULL), 0);
                fixture_check(&k.w.f);
                work(&k, UINT32_MAX);
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
