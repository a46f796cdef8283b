#include "base/clock.h"
#include "base/macros.h"
#include "policy/bucket.h"
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"

#define START (77 * NSEC_PER_SEC)

static bool take(struct bucket *b, struct bucket_limit limit, uint64_t now)
{
        if (bucket_wait_nsec(b, limit, now) > 0)
                return false;
        bucket_take(b, limit, 1, now);
        return true;
}

/* In any time t at most burst + rate * t tokens are taken. A client that always asks gets that
 * much, less a thousandth. */
static void try_order(bool always)
{
        struct bucket_limit limit = {1 + random_below(BUCKET_MAX_RATE), 1 + random_below(1000)};
        uint64_t span = NSEC_PER_SEC * 2000 / limit.rate, now = START, n = 0;
        struct bucket b = {0};

        while (now < START + span) {
                double fair = limit.burst + (double)(now - START) * limit.rate / 1e9;
                uint64_t wait;

                for (; take(&b, limit, now); n++)
                        ;
                wait = bucket_wait_nsec(&b, limit, now);
                assert_true(wait > 0);
                assert_false(take(&b, limit, now + wait - 1));
                assert_true((double)n <= fair * 1.001 + 1);
                if (always)
                        assert_true((double)n >= fair * 0.999 - 1);
                now += wait + (always ? 0 : random_below(10) * wait);
        }
}

TEST_BARE(test_any_order)
{
        random_start("bucket");
        for (unsigned run = 0; run < 200; run++)
                try_order(run % 2);
}
