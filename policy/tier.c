#include "policy/tier.h"

#include <assert.h>

#include "base/macros.h"

#define WEIGHT_UNIT 1000

static uint32_t low_mark(const struct tier_level *l)
{
        uint32_t low = MAX(l->capacity / TIER_LOW_SHARE, l->n_ahead);
        uint32_t most = l->capacity / TIER_MOST_SHARE;

        return MIN(low + (low == 0), most);
}

uint32_t tier_n_down(struct tier_fill *f, const struct tier_level *l)
{
        uint64_t coming = (uint64_t)l->n_free + l->n_leaving, low = low_mark(l), high = 2 * low;

        if (coming < low)
                f->is_demoting = true;
        else if (coming >= high)
                f->is_demoting = false;
        if (!f->is_demoting || l->n_leaving >= l->n_most)
                return 0;
        return (uint32_t)MIN(high - coming, (uint64_t)l->n_most - l->n_leaving);
}

uint32_t tier_n_kept(const struct tier_fill *f, const struct tier_level *l)
{
        return low_mark(l) * (f->is_demoting ? 2 : 1);
}

bool tier_takes(double value, uint64_t bytes, double other_value, uint64_t other_bytes)
{
        return value * (double)other_bytes >= other_value * (double)bytes;
}

bool tier_admits(const struct tier_filter *filter, uint32_t uses, uint64_t text_tokens)
{
        return uses >= filter->min_uses ||
               (filter->long_tokens > 0 && text_tokens >= filter->long_tokens);
}

uint64_t tier_turn(const struct tier_queue *q, const struct tier_claim *c)
{
        return MAX(q->turn, c->next);
}

void tier_take_turn(struct tier_queue *q, struct tier_claim *c, uint64_t bytes, uint32_t weight)
{
        assert(weight > 0 && weight <= WEIGHT_UNIT);

        q->turn = tier_turn(q, c);
        c->next = q->turn + bytes * WEIGHT_UNIT / weight;
}

uint32_t tier_unit_pages(enum tier_kind kind, uint64_t page_bytes)
{
        uint64_t pages;

        assert(kind == TIER_HOST || kind == TIER_DISK);

        pages = (kind == TIER_HOST ? TIER_HOST_BYTES : TIER_DISK_BYTES) / page_bytes;

        return pages == 0 ? 1 : (uint32_t)MIN(pages, (uint64_t)TIER_UNIT_PAGES);
}
