/* A full device, whose pages go down to memory of the host: on top of tier-fixture.h. */
#ifndef KVL_TESTS_TRANSFER_FIXTURE_H
#define KVL_TESTS_TRANSFER_FIXTURE_H

#include "tests/unit/tier-fixture.h"

#define N_DEVICE 64 /* pages of two sets */

/* So many texts of one page that pages go down, the ones used longest ago. */
static inline void fill_device(struct tiers *w)
{
        for (unsigned key = 0; key < N_DEVICE; key++)
                assert_true(tier_cache(w, key, 1));
        tiers_settle(w);
}

/* The key of a page that lies below. */
static inline unsigned any_below(struct tiers *w)
{
        for (unsigned key = 0;; key++)
                if (tier_of(w, key) == TIER_HOST)
                        return key;
}

/* How a transfer to or from a buffer ended. */
struct buffer_end {
        uint8_t *bytes;
        int result;
        unsigned n;
};

static inline void on_buffer_end(uint8_t *bytes, int result, void *data)
{
        struct buffer_end *e = data;

        *e = (struct buffer_end){bytes, result, e->n + 1};
}

#endif
