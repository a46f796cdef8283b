/* PGI where a miss costs more the longer the text is (evict_params.crossover_tokens). */
#include <errno.h>
#include <math.h>

#include "policy/pgi-table.h"
#include "policy/recompute.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/pgi-fixture.h"

/* In pages: texts of 36 and of 68 pages are more than twice as long, and so have one bin of
 * length; and their last pages lie in neighbouring bins of cost. */
#define CROSSOVER (16 * PAGE_TOKENS)
#define SHORT     36
#define LONG      68

static uint32_t last_id;

/* A text of nothing but new pages. Returns the id of the last one. */
static uint32_t ask_new(struct cache *c, uint32_t n)
{
        uint32_t ids[LONG];

        for (uint32_t i = 0; i < n; i++)
                ids[i] = ++last_id;
        ask(c, ids, n, PAGE_TOKENS);
        return last_id;
}

/* Texts of this length come again after 30 s. */
static void learn(struct cache *c, uint32_t n)
{
        uint32_t ids[LONG];

        for (uint32_t round = 0; round < 100; round++) {
                for (uint32_t i = 0; i < n; i++)
                        ids[i] = 100000 + round * LONG + i;
                ask(c, ids, n, PAGE_TOKENS);
                c->now += 30 * SECOND;
                ask(c, ids, n, PAGE_TOKENS);
                c->now += SECOND;
                evict_all(c);
        }
}

static void open_cache(struct cache *c, uint32_t crossover)
{
        last_id = 0;
        cache_init_with(c, 0, crossover);
        learn(c, SHORT);
        learn(c, LONG);
}

#define SCENE(fn, ...) TEST_ON(fn, struct cache, c, open_cache, cache_deinit, ##__VA_ARGS__)

/* Two texts of one class and age: a page of the longer one is worth more, by what it costs. */
SCENE(test_worth, CROSSOVER)
{
        uint32_t longer, shorter;
        double ratio;

        longer = ask_new(c, LONG);
        shorter = ask_new(c, SHORT);
        assert_true(look(c, longer).ready && !look(c, longer).behind);
        assert_int_equal(look(c, longer).class, look(c, shorter).class);
        ratio = ops->value(c->pgi, node_of(c, longer), c->now) /
                ops->value(c->pgi, node_of(c, shorter), c->now);
        assert_true(fabs(ratio - sqrt(2)) < 1e-6);
        evict_all(c);
}

/* Checks the memory with costs, and the reported crossover. */
TEST(test_memory)
{
        struct cache without, with;
        struct evict_usage u, v;

        cache_init_with(&without, 0, 0);
        cache_init_with(&with, 0, CROSSOVER);
        evict_usage(ops, without.pgi, &u);
        evict_usage(ops, with.pgi, &v);
        assert_int_equal(u.crossover_tokens, 0);
        assert_int_equal(v.crossover_tokens, CROSSOVER);
        assert_int_equal(v.page_bytes - u.page_bytes, N_NODES);
        assert_true(v.table_bytes > u.table_bytes);
        assert_true(v.table_bytes < 8 * u.table_bytes);
        cache_deinit(&without);
        cache_deinit(&with);
}
