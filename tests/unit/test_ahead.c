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
