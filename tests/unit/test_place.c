#include "policy/place.h"
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"

#define SET       64
#define N_MAX     5
#define NO_DEVICE SIZE_MAX

static size_t choose(const struct place_device *d, size_t n, enum place_policy policy)
{
        return place_choose(d, n, policy, false, SET);
}

TEST(test_choose_pack)
{
        struct place_device d[] = {{1000, 500}, {1000, 500, 100, 1}, {1000, 500, 200, 1}};

        assert_true(choose(NULL, 0, PLACE_PACK) == NO_DEVICE);
        assert_int_equal(choose(d, 1, PLACE_PACK), 0);
        assert_int_equal(choose(d, 3, PLACE_PACK), 2);
        /* While it has room. */
        d[2].free_bytes = SET;
        assert_int_equal(choose(d, 3, PLACE_PACK), 2);
        d[2].free_bytes = SET - 1;
        assert_int_equal(choose(d, 3, PLACE_PACK), 1);
        d[1].free_bytes = 0;
        assert_int_equal(choose(d, 3, PLACE_PACK), 0);
        d[0].free_bytes = 0;
        assert_int_equal(choose(d, 3, PLACE_PACK), 2);
        d[2].budget_bytes = SET - 1;
        assert_int_equal(choose(d, 3, PLACE_PACK), 1);
}

TEST(test_choose_spread)
{
        struct place_device d[] = {{1000, 500, 200, 1}, {1000, 500, 100, 2}, {1000, 500, 100, 1}};

        assert_int_equal(choose(d, 3, PLACE_SPREAD), 2);
        d[2].n_own = 2;
        assert_int_equal(choose(d, 3, PLACE_SPREAD), 1);
        d[1].free_bytes = d[2].free_bytes = SET - 1;
        assert_int_equal(choose(d, 3, PLACE_SPREAD), 0);
        d[0].free_bytes = SET - 1;
        assert_int_equal(choose(d, 3, PLACE_SPREAD), 1);
}

/* ---- reservations -----------------------------------------------------------------------------*/

static const uint64_t tens[] = {10, 10, 10, 10, 10};

static void check_reserve(const struct place_device *d, size_t n, enum place_policy policy,
        uint64_t bytes, const uint64_t *expected)
{
        uint64_t got[N_MAX], missing = 1;

        assert_true(
                place_reserve(&(struct place_request){d, tens, n, policy}, bytes, got, &missing));
        assert_int_equal(missing, 0);
        for (size_t i = 0; i < n; i++)
                assert_int_equal(got[i], expected[i]);
}

static void check_missing(const struct place_device *d, size_t n, enum place_policy policy,
        bool exclusive, uint64_t bytes, uint64_t expected)
{
        uint64_t got[N_MAX] = {1, 1, 1, 1, 1}, missing = 0;

        assert_false(place_reserve(
                &(struct place_request){d, tens, n, policy, exclusive}, bytes, got, &missing));
        assert_int_equal(missing, expected);
        for (size_t i = 0; i < n; i++)
                assert_int_equal(got[i], 0);
}

TEST(test_reserve_pack)
{
        struct place_device d[] = {{100, 50}, {100, 99}, {100, 100}, {100, 30, 10}};

        check_reserve(d, 4, PLACE_PACK, 0, (uint64_t[]){0, 0, 0, 0});
        check_reserve(d, 4, PLACE_PACK, 21, (uint64_t[]){0, 0, 0, 30});
        check_reserve(d, 4, PLACE_PACK, 31, (uint64_t[]){40, 0, 0, 0});
        check_reserve(d, 4, PLACE_PACK, 90, (uint64_t[]){0, 90, 0, 0});
        check_reserve(d, 4, PLACE_PACK, 91, (uint64_t[]){0, 0, 100, 0});
        /* On two: where it has something, and the one beside which that is enough. */
        check_reserve(d, 4, PLACE_PACK, 105, (uint64_t[]){0, 80, 0, 30});
        check_reserve(d, 4, PLACE_PACK, 125, (uint64_t[]){0, 0, 100, 30});
        check_reserve(d, 4, PLACE_PACK, 190, (uint64_t[]){0, 90, 100, 0});
        check_reserve(d, 4, PLACE_PACK, 270, (uint64_t[]){50, 90, 100, 30});
        check_missing(d, 4, PLACE_PACK, false, 271, 1);
        check_missing(d, 4, PLACE_PACK, false, UINT64_MAX, UINT64_MAX - 270);
}

/* A growing reservation stays with the namespaces, though another device could hold all of it. */
TEST(test_reserve_stays)
{
        struct place_device d[] = {{100, 40, 30, 1}, {100, 100}, {100, 30, 10, 1}};

        check_reserve(d, 3, PLACE_PACK, 40, (uint64_t[]){40, 0, 0});
        check_reserve(d, 3, PLACE_PACK, 45, (uint64_t[]){40, 0, 10});
        check_reserve(d, 3, PLACE_PACK, 90, (uint64_t[]){40, 20, 30});
        check_reserve(d, 3, PLACE_SPREAD, 90, (uint64_t[]){30, 30, 30});
}

TEST(test_reserve_named)
{
        struct place_device d[] = {{100, 100}, {100, 45, .is_named = true}};

        check_reserve(d, 2, PLACE_DEVICE, 31, (uint64_t[]){0, 40});
        check_missing(d, 2, PLACE_DEVICE, false, 42, 2);
}

struct random_case {
        struct place_device d[N_MAX];
        uint64_t steps[N_MAX], has[N_MAX]; /* what each could hold */
        size_t n;
        enum place_policy policy;
        bool exclusive;
        uint64_t bytes, sum;
};

static struct random_case random_case(void)
{
        struct random_case c = {.n = random_below(N_MAX + 1),
                .policy = random_below(3),
                .exclusive = random_below(2),
                .bytes = random_below(random_below(2) ? 40 : 400)};

        for (size_t i = 0; i < c.n; i++) {
                struct place_device *d = &c.d[i];

                *d = (struct place_device){.free_bytes = random_below(120),
                        .own_bytes = random_below(3) * 10,
                        .n_others = random_below(2),
                        .is_exclusive = random_below(6) == 0,
                        .is_named = random_below(2),
                        .is_broken = random_below(6) == 0};
                c.steps[i] = 1 + random_below(20);
                if (!d->is_exclusive && !d->is_broken && !(c.exclusive && d->n_others) &&
                        !(c.policy == PLACE_DEVICE && !d->is_named))
                        c.has[i] = d->free_bytes / c.steps[i] * c.steps[i];
                c.sum += c.has[i];
        }
        return c;
}

/* By trying all subsets of devices. */
static unsigned fewest(const struct random_case *c)
{
        unsigned best = N_MAX + 1;

        for (unsigned mask = 0; mask < 1u << c->n; mask++) {
                uint64_t sum = 0;

                for (size_t i = 0; i < c->n; i++)
                        sum += mask & (1u << i) ? c->has[i] : 0;
                if (sum >= c->bytes)
                        best = MIN(best, (unsigned)__builtin_popcount(mask));
        }
        return best;
}

static void check_split(const struct random_case *c, const uint64_t *got)
{
        uint64_t sum = 0, largest_step = 1;
        unsigned used = 0;

        for (size_t i = 0; i < c->n; i++) {
                assert_true(got[i] <= c->has[i] && got[i] % c->steps[i] == 0);
                sum += got[i];
                used += got[i] > 0;
                largest_step = MAX(largest_step, c->steps[i]);
        }
        assert_true(sum >= c->bytes && sum < c->bytes + largest_step);
        if (c->policy != PLACE_SPREAD) {
                assert_int_equal(used, fewest(c));
                return;
        }
        /* A device with room left has as much as any other, except for steps. */
        for (size_t i = 0; i < c->n; i++)
                for (size_t k = 0; got[i] < c->has[i] && k < c->n; k++)
                        assert_true(got[k] <= got[i] + largest_step * c->n);
}

TEST(test_reserve_random)
{
        random_start(__func__);
        for (int round = 0; round < 100000; round++) {
                struct random_case c = random_case();
                uint64_t got[N_MAX], missing;
                bool fits = place_reserve(
                        &(struct place_request){c.d, c.steps, c.n, c.policy, c.exclusive}, c.bytes,
                        got, &missing);

                assert_true(fits == (c.sum >= c.bytes));
                assert_int_equal(missing, fits ? 0 : c.bytes - c.sum);
                if (fits)
                        check_split(&c, got);
        }
}
