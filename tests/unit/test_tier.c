#include "policy/tier.h"
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"

#define CAPACITY 6400 /* low mark 100, high 200 */

static uint32_t n_down(struct tier_fill *f, uint32_t n_free, uint32_t n_leaving)
{
        struct tier_level l = {
                .capacity = CAPACITY, .n_free = n_free, .n_leaving = n_leaving, .n_most = 150};

        return tier_n_down(f, &l);
}

static uint32_t n_kept(const struct tier_fill *f)
{
        struct tier_level l = {.capacity = CAPACITY};

        return tier_n_kept(f, &l);
}

TEST(test_between_the_marks)
{
        struct tier_fill f = {0};

        assert_int_equal(n_down(&f, 150, 0), 0); /* coming from above */
        assert_int_equal(n_down(&f, 100, 0), 0);
        assert_int_equal(n_down(&f, 99, 0), 101);  /* below the low one: up to the high one */
        assert_int_equal(n_down(&f, 120, 40), 40); /* coming from below */
        assert_int_equal(n_down(&f, 99, 101), 0);
        assert_int_equal(n_down(&f, 150, 0), 0);
        assert_int_equal(n_down(&f, 200, 0), 0);
        assert_int_equal(n_kept(&f), 100);
        assert_int_equal(n_down(&f, 0, 0), 150); /* no more than may be under way */
        assert_int_equal(n_kept(&f), 200);
        assert_int_equal(n_down(&f, 0, 140), 10);
        assert_int_equal(n_down(&f, 0, 160), 0);
}

TEST(test_marks)
{
        struct tier_level l = {.capacity = CAPACITY, .n_ahead = 400, .n_most = UINT32_MAX};
        struct tier_fill f = {0};

        assert_int_equal(tier_n_down(&f, &l), 800);
        l.n_ahead = CAPACITY; /* no more than a quarter */
        assert_int_equal(tier_n_down(&f, &l), CAPACITY / 2);
        l = (struct tier_level){.capacity = 40, .n_most = 10};
        assert_int_equal(tier_n_down(&f, &l), 2); /* at least one is kept */
        l.capacity = 0;
        assert_int_equal(tier_n_down(&f, &l), 0);
        l = (struct tier_level){UINT32_MAX, UINT32_MAX - 5, UINT32_MAX, UINT32_MAX, UINT32_MAX};
        assert_int_equal(tier_n_down(&f, &l), 0);
}

/* For any leases from a tier its moves end, and it is never emptied for good. */
TEST(test_settles)
{
        struct tier_fill f = {0};
        uint32_t n_free = 0, n_leaving = 0;

        random_start(__func__);
        for (int i = 0; i < 20000; i++) {
                uint32_t done = random_below(n_leaving + 1);

                n_leaving -= done;
                n_free += done;
                n_leaving += n_down(&f, n_free, n_leaving);
                assert_in_range(n_leaving, 0, 150);
                assert_in_range(n_free + n_leaving, 0, 200);
                if (i < 10000)
                        n_free -= random_below(n_free + 1);
        }
        assert_in_range(n_free + n_leaving, 100, 200);
        assert_int_equal(n_down(&f, n_free + n_leaving, 0), 0);
}

TEST(test_worth_a_place)
{
        assert_true(tier_takes(2, 1, 1, 1));
        assert_true(tier_takes(1, 1, 1, 1));
        assert_false(tier_takes(1, 1, 2, 1));
        assert_true(tier_takes(1, 1, 2, 4)); /* a quarter of the bytes for half of the use */
        assert_false(tier_takes(1, 4, 1, 1));
        assert_true(tier_takes(0, 1, 0, 1));
}

TEST(test_admission_to_disk)
{
        struct tier_filter filter = {.min_uses = 2, .long_tokens = 1000};

        assert_false(tier_admits(&filter, 1, 999));
        assert_true(tier_admits(&filter, 2, 0));
        assert_true(tier_admits(&filter, 1, 1000));
        filter.long_tokens = 0;
        assert_false(tier_admits(&filter, 1, UINT64_MAX));
        filter.min_uses = 0;
        assert_true(tier_admits(&filter, 1, 0));
}

struct mover {
        struct tier_claim claim;
        uint32_t weight;
        uint64_t moved;
};

static struct mover *next_of(const struct tier_queue *q, struct mover *m, unsigned n)
{
        struct mover *next = m;

        for (unsigned i = 1; i < n; i++)
                if (tier_turn(q, &m[i].claim) < tier_turn(q, &next->claim))
                        next = &m[i];
        return next;
}

static void serve(struct tier_queue *q, struct mover *m, unsigned n, int times)
{
        for (int i = 0; i < times; i++) {
                struct mover *next = next_of(q, m, n);
                uint64_t bytes = 1 + random_below(1 << 20);

                tier_take_turn(q, &next->claim, bytes, next->weight);
                next->moved += bytes;
        }
}

/* Turns are by weight, for any sizes: no two are further apart than a transfer of each. */
TEST(test_turns_are_fair)
{
        struct mover m[] = {{.weight = 100}, {.weight = 300}, {.weight = 1000}};
        struct tier_queue q = {0};

        random_start(__func__);
        for (int i = 0; i < 1000; i++) {
                serve(&q, m, 3, 1);
                for (unsigned k = 1; k < 3; k++) {
                        double a = (double)m[0].moved / m[0].weight;
                        double b = (double)m[k].moved / m[k].weight;

                        assert_true(a - b <= (1 << 20) / 100.0 && b - a <= (1 << 20) / 100.0);
                }
        }
}

/* A queue that was idle gets no more than its share from then on. */
TEST(test_idle_saves_nothing_up)
{
        struct mover m[] = {{.weight = 100}, {.weight = 100}};
        struct tier_queue q = {0};

        random_start(__func__);
        serve(&q, m, 1, 1000);
        m[0].moved = 0;
        serve(&q, m, 2, 1000);
        assert_true(m[1].moved <= m[0].moved + (2 << 20));
        assert_true(m[0].moved <= m[1].moved + (2 << 20));
}

TEST(test_units)
{
        assert_int_equal(tier_unit_pages(TIER_HOST, 4096), 256);
        assert_int_equal(tier_unit_pages(TIER_HOST, 256 << 10), 4);
        assert_int_equal(tier_unit_pages(TIER_HOST, 2 << 20), 1);
        assert_int_equal(tier_unit_pages(TIER_HOST, UINT64_MAX), 1);
        assert_int_equal(tier_unit_pages(TIER_DISK, 1), TIER_UNIT_PAGES);
        assert_int_equal(tier_unit_pages(TIER_DISK, 256 << 10), 16);
}
