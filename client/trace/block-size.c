#include "client/trace/block-size.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/macros.h"
#include "client/trace/trace.h"

void block_size_init(struct block_size *s)
{
        *s = (struct block_size){.partial = {1, UINT64_MAX}, .full = {1, UINT64_MAX}};
}

static void narrow_range(struct block_range *r, uint64_t least, uint64_t most)
{
        r->least = MAX(r->least, least);
        r->most = MIN(r->most, most);
}

void block_size_line(struct block_size *s, uint64_t tokens, uint32_t n_blocks)
{
        uint64_t n = n_blocks;

        if (tokens == 0 || n == 0)
                return;
        narrow_range(
                &s->partial, (tokens - 1) / n + 1, n > 1 ? (tokens - 1) / (n - 1) : UINT64_MAX);
        narrow_range(&s->full, tokens / (n + 1) + 1, tokens / n);
}

static uint32_t powers_in(const struct block_range *r)
{
        uint32_t bits = 0;

        for (unsigned i = 0; UINT64_C(1) << i <= TRACE_BLOCK_TOKENS_MAX; i++)
                if (UINT64_C(1) << i >= r->least && UINT64_C(1) << i <= r->most)
                        bits |= UINT32_C(1) << i;
        return bits;
}

uint32_t block_size_fits(const struct block_size *s)
{
        return powers_in(&s->partial) | powers_in(&s->full);
}

uint32_t block_size_choose(const struct block_size *s)
{
        uint32_t bits = powers_in(&s->partial);

        if (s->partial.least > TRACE_BLOCK_TOKENS_MAX && s->partial.least <= s->partial.most)
                return 0;
        if (bits == 0)
                bits = powers_in(&s->full);
        return bits & -bits; /* the lowest bit is that number of tokens */
}

void block_size_explain(const struct block_size *s, char *buf, size_t size)
{
        const struct block_range *fits =
                s->partial.least <= s->partial.most ? &s->partial : &s->full;

        if (fits->least > TRACE_BLOCK_TOKENS_MAX && fits->least <= fits->most)
                snprintf(buf, size,
                        "its blocks have %" PRIu64
                        " tokens or more, and no more than %d are found out: give the right number by --block-tokens",
                        fits->least, TRACE_BLOCK_TOKENS_MAX);
        else if (fits->least <= fits->most)
                snprintf(buf, size,
                        "its blocks have %" PRIu64 " to %" PRIu64
                        " tokens, and none of these is a power of two: give the right number by --block-tokens",
                        fits->least, fits->most);
        else
                snprintf(buf, size,
                        "its lines contradict each other: in one a block has %" PRIu64
                        " tokens or more, in another one %" PRIu64
                        " or fewer; give the right number by --block-tokens",
                        s->partial.least, s->partial.most);
}
