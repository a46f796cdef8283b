#include "base/clock.h"
#include "base/macros.h"
#include "policy/ahead.h"
#include "tests/unit/test-support.h"

#define START (77 * NSEC_PER_SEC)

/* `rate` pages a second, `n` at a time, for so long; returns the time after. */
static uint64_t lease(struct ahead *a, uint32_t rate, uint32_t n, double sec, uint64_t now)
{
        uint64_t end = now + (uint64_t)(sec * (double)NSEC_PER_SEC);
        uint64_t every = NSEC_PER_SEC * n / rate;

        for (; now < end; now += every)
                ahead_leased(a, n, now);
        return now;
}

TEST(test_nobody_leases)
{
        struct ahead a = {0};

        assert_int_equal(ahead_pages(&a, 100, START), 0);
        ahead_made(&a, 50 * NSEC_PER_MSEC);
        assert_int_equal(ahead_pages(&a, 100, START), 0);
}

TEST(test_nothing_made_yet)
{
        struct ahead a = {0};
        uint64_t now = lease(&a, 1000, 1, 1, START);

        assert_int_equal(ahead_pages(&a, 100, now), 0);
}

/* Twice what is leased meanwhile, however the leases are cut. */
TEST(test_steady)
{
        for (uint32_t n = 1; n <= 64; n *= 4) {
                struct ahead a = {0};
                uint64_t now;
                uint32_t pages;

                ahead_made(&a, 100 * NSEC_PER_MSEC);
                now = lease(&a, 1000, n, 20, START);
                pages = ahead_pages(&a, 10000, now);
                assert_in_range(pages, 194, 208);
                assert_int_equal(ahead_pages(&a, 37, now), 37);
        }
}

TEST(test_follows_the_rate)
{
        struct ahead a = {0};
        uint64_t now;

        ahead_made(&a, 100 * NSEC_PER_MSEC);
        now = lease(&a, 1000, 1, 20, START);
        /* Half of it is left after two seconds. */
        assert_in_range(ahead_pages(&a, 10000, now + 2 * NSEC_PER_SEC), 98, 103);
        assert_in_range(ahead_pages(&a, 10000, now + 3 * NSEC_PER_SEC), 69, 73);
        assert_in_range(ahead_pages(&a, 10000, now + 8 * NSEC_PER_SEC), 12, 14);
        now = lease(&a, 4000, 1, 20, now);
        assert_in_range(ahead_pages(&a, 10000, now), 780, 820);
        now = lease(&a, 10, 1, 20, now);
        assert_in_range(ahead_pages(&a, 10000, now), 2, 5);
        /* Soon nothing, and never wrong. */
        assert_int_equal(ahead_pages(&a, 10000, now + 30 * NSEC_PER_SEC), 0);
        assert_int_equal(ahead_pages(&a, 10000, UINT64_MAX), 0);
}

TEST(test_making)
{
        struct ahead a = {0}, first;
        uint64_t now;

        ahead_made(&a, 100 * NSEC_PER_MSEC);
        now = lease(&a, 1000, 1, 20, START);
        first = a;
        for (unsigned i = 0; i < 20; i++)
                ahead_made(&a, 10 * NSEC_PER_MSEC);
        assert_in_range(ahead_pages(&a, 10000, now), 19, 23);
        /* One that was slow counts a quarter. */
        ahead_made(&first, 200 * NSEC_PER_MSEC);
        assert_in_range(ahead_pages(&first, 10000, now), 240, 260);
}
