#include "client/events/told.h"

#include "base/macros.h"

/* A tier's part of a value. Three parts have 63 bits. */
#define PART_BITS 21
#define MARK      (UINT64_C(1) << (PART_BITS - 1))
#define PAGES_MAX (MARK - 1)
#define N_TIERS   3

void told_init(struct told *t)
{
        map_init(&t->blocks);
}

void told_deinit(struct told *t)
{
        map_deinit(&t->blocks);
}

int told_reserve(struct told *t, uint64_t n_blocks)
{
        return map_reserve(&t->blocks, minus_u64(n_blocks, t->blocks.n_used));
}

static uint64_t n_pages(uint64_t value, unsigned tier)
{
        return value >> tier * PART_BITS & PAGES_MAX;
}

bool told_add(struct told *t, uint64_t hash, unsigned tier)
{
        const uint64_t *found = map_find(&t->blocks, hash);
        uint64_t value = found ? *found : 0, n = n_pages(value, tier);

        if (n < PAGES_MAX) {
                int r = map_put(&t->blocks, hash, value + (UINT64_C(1) << tier * PART_BITS));

                assert(r == 0); /* told_reserve() */
        }
        return n == 0;
}

bool told_drop(struct told *t, uint64_t hash, unsigned tier)
{
        uint64_t *value = map_find(&t->blocks, hash);
        uint64_t n = n_pages(*value, tier);

        if (n == PAGES_MAX)
                return false;
        *value -= UINT64_C(1) << tier * PART_BITS;
        if (*value == 0)
                map_remove(&t->blocks, hash);
        return n == 1;
}

bool told_has(const struct told *t, uint64_t hash, unsigned tier)
{
        const uint64_t *value = map_find(&t->blocks, hash);

        return value && n_pages(*value, tier) > 0;
}

bool told_mark(struct told *t, uint64_t hash, unsigned tier)
{
        uint64_t *value = map_find(&t->blocks, hash), mark = MARK << tier * PART_BITS;
        bool is_new = !(*value & mark);

        *value |= mark;
        return is_new;
}

void told_unmark_all(struct told *t)
{
        struct map_slot slot;

        for (size_t i = 0; map_next(&t->blocks, &i, &slot);)
                for (unsigned tier = 0; tier < N_TIERS; tier++)
                        *map_find(&t->blocks, slot.key) &= ~(MARK << tier * PART_BITS);
}
