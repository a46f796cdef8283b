#include "policy/bucket.h"

#include <assert.h>

#include "base/clock.h"
#include "base/macros.h"

static uint64_t token_nsec(struct bucket_limit limit)
{
        assert(limit.rate <= BUCKET_MAX_RATE && limit.burst > 0);
        return NSEC_PER_SEC / limit.rate;
}

uint64_t bucket_wait_nsec(const struct bucket *b, struct bucket_limit limit, uint64_t now_nsec)
{
        uint64_t one_left_nsec;

        if (limit.rate == 0)
                return 0;
        /* From when on all tokens but this one may be missing. */
        one_left_nsec = now_nsec + (limit.burst - 1) * token_nsec(limit);
        return b->full_nsec - MIN(one_left_nsec, b->full_nsec);
}

void bucket_take(struct bucket *b, struct bucket_limit limit, uint32_t n, uint64_t now_nsec)
{
        if (limit.rate > 0)
                b->full_nsec = MAX(b->full_nsec, now_nsec) + n * token_nsec(limit);
}
