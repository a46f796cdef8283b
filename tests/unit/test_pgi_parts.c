#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "policy/pgi-class.h"
#include "policy/pgi-ghost.h"
#include "policy/pgi-list.h"
#include "policy/pgi-lru.h"
#include "policy/pgi-run.h"
#include "policy/pgi-table.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"

static struct pgi_table new_table(void)
{
        struct pgi_table t;

        assert_int_equal(pgi_table_init(&t), 0);
        return t;
}

/* Worth of a page of class A, divided by that of class B. 1,000 * n_times pages of A were used at
 * 100 s, and as many of B never. Requests use request_pages each. */
static float times_worth(uint32_t n_times, double request_pages)
{
        const uint32_t a = PGI_BODY + 3, b = PGI_BODY + 7;
        struct pgi_table t = new_table();
        float worth;

        for (uint32_t i = 0; i < 1000 * n_times; i++) {
                pgi_table_used(&t, a, 1500);
                pgi_table_lost(&t, b, 100000);
        }
        pgi_table_rebuild(&t, request_pages);
        worth = pgi_table_index(&t, a, 1) / pgi_table_index(&t, b, 1);
        pgi_table_deinit(&t);
        return worth;
}

/* Spells of few requests say little: where a request has 200 pages, 1,000 spells are of five. */
TEST(test_long_requests_teach_slowly)
{
        assert_true(times_worth(1, 0) > 10);
        assert_true(times_worth(1, 50) > 10);
        assert_true(times_worth(1, 200) < 2);
        assert_true(times_worth(1000, 200) > 10);
}

/* Old traffic counts half each time there is more than 4 M uses: the newer decides. */
TEST(test_old_traffic_fades)
{
        struct pgi_table t = new_table();

        for (uint32_t i = 0; i < 6000000; i++)
                pgi_table_used(&t, PGI_SHARED, 0);
        pgi_table_rebuild(&t, 0);
        assert_int_equal(t.n_events, 3000000);
        assert_int_equal(t.events[pgi_cell(PGI_SHARED, 0)], 3000000);
        pgi_table_deinit(&t);
}

static void some_traffic(struct pgi_table *t)
{
        for (uint32_t i = 0; i < 20000; i++) {
                pgi_table_used(t, random_below(PGI_CLASSES), random_below(100000));
                pgi_table_lost(t, random_below(PGI_CLASSES), random_below(100000));
                pgi_table_count(t, random_below(PGI_CLASSES), random_below(100000));
        }
        pgi_table_rebuild(t, 0);
}

static void expect_same_index(const struct pgi_table *a, const struct pgi_table *b)
{
        assert_memory_equal(a->index, b->index, PGI_CLASSES * PGI_BINS * sizeof(float));
}

TEST(test_saved_and_loaded)
{
        struct pgi_table t = new_table(), u = new_table();
        size_t size = pgi_table_save(&t, NULL, 0);
        uint8_t *buf = malloc(size), *again = malloc(size);

        random_start(__func__);
        assert_non_null(buf);
        assert_non_null(again);
        some_traffic(&t);
        assert_int_equal(pgi_table_save(&t, buf, size - 1), size);
        assert_int_equal(pgi_table_save(&t, buf, size), size);
        assert_int_equal(buf[0], 'K'); /* the same on every machine */
        assert_int_equal(pgi_table_load(&u, buf, size), 0);
        assert_true(u.ready);
        assert_int_equal(u.n_events, t.n_events);
        expect_same_index(&t, &u);
        assert_int_equal(pgi_table_save(&u, again, size), size);
        assert_memory_equal(buf, again, size);
        free(buf);
        free(again);
        pgi_table_deinit(&t);
        pgi_table_deinit(&u);
}

/* The sum of a forged form is right: its counts are checked themselves. */
static void seal(uint8_t *buf, size_t size)
{
        uint64_t h = UINT64_C(0xcbf29ce484222325);

        for (size_t i = 0; i < size - 8; i++)
                h = (h ^ buf[i]) * UINT64_C(0x100000001b3);
        for (int i = 0; i < 8; i++)
                buf[size - 8 + i] = (uint8_t)(h >> (8 * i));
}

TEST(test_hostile_forms_are_refused)
{
        struct pgi_table t = new_table(), u = new_table();
        size_t size = pgi_table_save(&t, NULL, 0);
        uint8_t *buf = calloc(1, size + 1), *cut;

        random_start(__func__);
        assert_non_null(buf);
        some_traffic(&t);
        some_traffic(&u);
        assert_int_equal(pgi_table_save(&t, buf, size), size);
        for (size_t n = 0; n < size; n += n < 64 ? 1 : 97) {
                cut = malloc(n ? n : 1); /* of its own, for the sanitizer */
                assert_non_null(cut);
                memcpy(cut, buf, n);
                assert_int_equal(pgi_table_load(&u, cut, n), -EINVAL);
                free(cut);
        }
        assert_int_equal(pgi_table_load(&u, buf, size + 1), -EINVAL);
        for (int i = 0; i < 300; i++) {
                size_t bit = i < 128 ? (size_t)i : random_u64() % (size * 8);

                buf[bit / 8] ^= (uint8_t)(1 << bit % 8);
                assert_int_equal(pgi_table_load(&u, buf, size), -EINVAL);
                buf[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        memcpy(&buf[16 + 40], "\1\0\0\x40", 4); /* one more than is taken */
        seal(buf, size);
        assert_int_equal(pgi_table_load(&u, buf, size), -EINVAL);
        memset(&buf[16], 0x3f, size - 24); /* as much as is taken, everywhere */
        seal(buf, size);
        assert_int_equal(pgi_table_load(&u, buf, size), 0);
        for (uint32_t i = 0; i < PGI_CLASSES * PGI_BINS; i++)
                assert_true(isfinite(u.index[i]) && u.index[i] >= 0);
        free(buf);
        pgi_table_deinit(&t);
        pgi_table_deinit(&u);
}

static void forget(void *data, const struct pgi_ghost *ghost)
{
        uint32_t *n_forgotten = data;

        assert_int_not_equal(ghost->tag, 0);
        ++*n_forgotten;
}

TEST(test_the_oldest_ghost_is_forgotten)
{
        struct pgi_ghosts g;
        struct pgi_ghost ghost, old;

        assert_int_equal(pgi_ghosts_init(&g, 3), 0);
        for (uint32_t i = 0; i < 3; i++)
                assert_false(pgi_ghosts_put(&g,
                        &(struct pgi_ghost){.tag = 10 + i, .touched = 50 - i, .class = 1}, &old));
        assert_true(pgi_ghosts_put(&g, &(struct pgi_ghost){.tag = 13, .touched = 60}, &old));
        assert_int_equal(old.touched, 48);
        assert_false(pgi_ghosts_take(&g, 12, &ghost));
        assert_true(pgi_ghosts_put(&g, &(struct pgi_ghost){.tag = 13, .touched = 70}, &old));
        assert_int_equal(old.touched, 60); /* the same tag */
        assert_true(pgi_ghosts_take(&g, 10, &ghost));
        assert_int_equal(ghost.class, 1);
        pgi_ghosts_deinit(&g);
}

TEST(test_ghosts_without_memory)
{
        struct pgi_ghosts g;
        struct pgi_ghost old;
        uint32_t n_forgotten = 0;

        alloc_fail_each(n)
        {
                int r = pgi_ghosts_init(&g, 10000);

                assert_int_equal(r, alloc_fail_happened() ? -ENOMEM : 0);
                if (r == 0)
                        pgi_ghosts_deinit(&g);
        }
        assert_int_equal(pgi_ghosts_init(&g, 10000), 0);
        for (uint32_t i = 0; i < 400; i++)
                n_forgotten +=
                        pgi_ghosts_put(&g, &(struct pgi_ghost){.tag = pgi_ghost_tag(i)}, &old);
        alloc_fail_at(1);
        assert_false(pgi_ghosts_grow(&g, 1, forget, &n_forgotten));
        assert_true(alloc_fail_end());
        assert_int_equal(pgi_ghosts_size(&g), 512);
        assert_int_equal(g.n + n_forgotten, 400);
        assert_true(pgi_ghosts_grow(&g, 1, forget, &n_forgotten));
        assert_null(pgi_ghosts_check(&g));
        assert_false(pgi_ghosts_grow(&g, UINT32_MAX, forget, &n_forgotten));
        assert_int_equal(pgi_ghosts_size(&g), 1024);
        assert_null(pgi_ghosts_check(&g));
        pgi_ghosts_deinit(&g);
}

/* A plain list of the last used, as many as fit. */
struct plain_lru {
        uint32_t order[256];
        uint32_t n, capacity;
};

static void judge_as(struct pgi_lru *l, int64_t difference, uint64_t hits)
{
        l->request = difference;
        l->hits += hits;
        pgi_lru_judge(l, 1000);
}

TEST(test_behind_when_it_surely_loses)
{
        struct pgi_lru l = {0};

        int i = 0;

        while (i++ < 1000)
                judge_as(&l, 30, 30);
        assert_false(l.behind);
        for (i = 0; i < 200 && !l.behind; i++)
                judge_as(&l, -30, 30);
        assert_true(l.behind); /* long before what was gained is lost again */
        for (i = 0; i < 3000 && l.behind; i++)
                judge_as(&l, 0, 30); /* as LRU does: after a while it tries again */
        assert_false(l.behind);
        assert_true(i > 16 * 1000 / 30); /* what was seen has to be halved twice */
}

/* A use that is noted late: LRU had the page when it was made, and has dropped it for others since.
 */
TEST(test_a_use_that_is_noted_late)
{
        struct pgi_lru l = {0};
        uint32_t stamp, other, base;

        pgi_lru_first(&l, &stamp, 4);
        base = l.base;
        for (int i = 0; i < 8; i++)
                pgi_lru_first(&l, &other, 4);
        assert_false(pgi_lru_has(&l, stamp));
        pgi_lru_used(&l, base, &stamp, true, 1, 4);
        assert_int_equal(l.hits, 1);
        assert_int_equal(l.request, 0); /* both had it */
        assert_true(pgi_lru_has(&l, stamp));
        assert_in_range(l.n, 4, 5);
        for (int i = 0; i < 8; i++)
                pgi_lru_first(&l, &other, 4);
        pgi_lru_used(&l, l.base, &stamp, true, 1, 4);
        assert_int_equal(l.request, 1); /* ours alone */
}

TEST(test_requests_that_never_end)
{
        static struct pgi_run runs[PGI_RUNS];
        uint32_t n = 0, n_dropped = 0;
        struct pgi_run dropped;

        for (uint32_t i = 1; i <= 100000; i++) {
                struct pgi_run *run = pgi_run_begin(runs, i, i, 7 * i, &dropped);

                assert_int_equal(run->turn, 1);
                run->turn = 3;
                n_dropped += dropped.request != 0;
                if (dropped.request)
                        assert_int_equal(dropped.turn, 3);
                assert_ptr_equal(pgi_run_find(runs, i), run);
                assert_int_equal(run->began, i);
                assert_int_equal(run->lru_base, 7 * i);
        }
        assert_null(pgi_run_find(runs, 0));
        assert_null(pgi_run_find(runs, 1));
        for (uint32_t i = 100000 - PGI_RUNS; i <= 100000; i++)
                n += pgi_run_find(runs, i) != NULL;
        assert_true(n > PGI_RUNS * 3 / 4); /* the newest are kept, but for uneven places */
        for (uint32_t i = 0, n_held = 0; i < PGI_RUNS; i++) {
                n_held += runs[i].request != 0;
                if (i + 1 == PGI_RUNS)
                        assert_int_equal(n_dropped + n_held, 100000);
        }
}

TEST(test_classes)
{
        bool seen[PGI_CLASSES] = {0};

        assert_true(PGI_CLASSES <= 256);
        for (uint32_t hint = PGI_HINT_NONE; hint <= PGI_HINT_DONE; hint++)
                for (uint32_t turn = 1; turn <= (hint ? PGI_TURNS_HINTED : PGI_TURNS); turn++)
                        for (uint32_t l = 0; l < PGI_LENGTHS; l++)
                                for (uint32_t f = 0; f < PGI_FRESHES; f++) {
                                        uint32_t c = pgi_body_class(hint, turn, l, f);

                                        assert_true(c >= PGI_BODY && c < PGI_RETURNS && !seen[c]);
                                        assert_int_equal(pgi_fresh_bin_of(c), f);
                                        seen[c] = true;
                                }
        assert_int_equal(pgi_body_class(0, 6, 1, 1), pgi_body_class(0, 60, 1, 1));
        assert_int_equal(pgi_shared_class(1), PGI_SHARED);
        assert_int_equal(pgi_shared_class(3), PGI_SHARED + 1);
        assert_int_equal(pgi_shared_class(4), PGI_SHARED + 2);
        assert_int_equal(pgi_shared_class(UINT16_MAX), PGI_BODY - 1);
        assert_int_equal(pgi_size_bin(2048, 4), 0);
        assert_int_equal(pgi_size_bin(2049, 4), 1);
        assert_int_equal(pgi_size_bin(8193, 4), 2);
        assert_int_equal(pgi_size_bin(UINT64_MAX, 4), 3);
        assert_int_equal(pgi_hint_code(EVICT_HINT_UNKNOWN, 9), PGI_HINT_NONE);
        assert_int_equal(pgi_hint_code(EVICT_HINT_RETURNS, 0), PGI_HINT_RETURNS);
        assert_int_equal(
                pgi_hint_code(EVICT_HINT_RETURNS, UINT64_C(5000000000)), PGI_HINT_RETURNS + 1);
        assert_int_equal(pgi_hint_code(EVICT_HINT_RETURNS, UINT64_MAX), PGI_HINT_RETURNS + 7);
        assert_int_equal(pgi_body_class(PGI_HINT_RETURNS + 7, 1, 0, 0), PGI_CLASSES - 1);
}

/* Pages are used at an age of 100 ticks with near certainty, not before, and not after. */
TEST(test_chance)
{
        struct pgi_table t;

        assert_int_equal(pgi_table_init(&t), 0);
        assert_true(pgi_table_chance(&t, PGI_BODY, 0, UINT32_MAX) == 0);
        for (int i = 0; i < 10000; i++)
                pgi_table_used(&t, PGI_BODY, 100);
        pgi_table_rebuild(&t, 0);
        assert_true(pgi_table_chance(&t, PGI_BODY, 0, 64) < 0.01);
        assert_true(pgi_table_chance(&t, PGI_BODY, 0, 200) > 0.95);
        assert_true(pgi_table_chance(&t, PGI_BODY, 200, UINT32_MAX) < 0.01);
        assert_true(pgi_table_chance(&t, PGI_BODY, 80, 100) > 0.95);
        assert_true(pgi_table_chance(&t, PGI_BODY, 0, 0) == 0);
        /* Half of the bin's time, half of its hazard: it begins at 90.5 and ends at 107.6. */
        assert_in_range(100 * pgi_table_chance(&t, PGI_BODY, 90, 9), 45, 55);
        pgi_table_deinit(&t);
}

/* Used later goes to the end; a parent that becomes a leaf is the first where it isn't younger. */
TEST(test_order_within_a_list)
{
        struct pgi_page pages[5] = {0};
        struct pgi_lists l;

        assert_int_equal(pgi_lists_init(&l, 1, 1), 0);
        pgi_lists_advance(&l, pages, 0);
        for (uint32_t i = 0; i < 4; i++)
                pages[i].touched = i;
        pgi_link_used(&l, pages, 1, 0);
        pgi_link_used(&l, pages, 3, 0);
        assert_int_equal(pgi_first(&l, 0, 0), 1);
        pgi_link_exposed(&l, pages, 0, 0);
        assert_int_equal(pgi_first(&l, 0, 0), 0);
        pgi_link_exposed(&l, pages, 2, 0);
        assert_int_equal(pgi_first(&l, 0, 0), 0);
        assert_null(pgi_lists_check(&l, pages, 5));
        pages[4] = pages[0];
        pgi_relink_as(&l, pages, 0, 4);
        pages[0] = (struct pgi_page){0};
        assert_null(pgi_lists_check(&l, pages, 5));
        for (uint32_t i = 1; i < 5; i++) { /* each is missed by a neighbour, or by its list */
                struct pgi_page was = pages[i];

                assert_true(pgi_lists_refer_to(&l, pages, 5, i));
                pages[i].prev_1 = pages[i].prev_1 ? 0 : 2;
                assert_false(pgi_lists_refer_to(&l, pages, 5, i));
                pages[i] = was;
                pages[i].next_1 = 99;
                assert_false(pgi_lists_refer_to(&l, pages, 5, i));
                pages[i] = was;
        }
        for (uint32_t i = 4; i >= 1; i--)
                pgi_unlink(&l, pages, i);
        assert_int_equal(l.used[0], 0);
        assert_null(pgi_lists_check(&l, pages, 5));
        pgi_lists_deinit(&l);
}
