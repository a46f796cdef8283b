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

TEST(test_goes_by_cost)
{
        assert_true(evict_pgi.goes_by_cost);
        assert_false(evict_lru.goes_by_cost);
}

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

/* Counts how many of the first SHORT victims belong to this text. */
static uint32_t count_victims(struct cache *c, uint32_t last, uint32_t n)
{
        uint32_t n_of_it = 0;

        for (uint32_t i = 0; i < SHORT; i++) {
                uint32_t node = ops->victim(c->pgi, 0, EVICT_DROP, c->now);

                n_of_it += c->id_of[node] > last - n && c->id_of[node] <= last;
                evict(c, node);
                assert_null(ops->check(c->pgi));
        }
        return n_of_it;
}

/* The shorter text goes first, whichever of both was asked for first: also where it is a little
 * nearer to its next use, by which it would stay if both cost the same. */
SCENE(test_victims, CROSSOVER)
{
        uint32_t shorter;

        ask_new(c, LONG);
        shorter = ask_new(c, SHORT);
        assert_int_equal(count_victims(c, shorter, SHORT), SHORT);
        evict_all(c);
        shorter = ask_new(c, SHORT);
        c->now += 4 * SECOND;
        ask_new(c, LONG);
        assert_int_equal(count_victims(c, shorter, SHORT), SHORT);
        evict_all(c);
}

/* Another number, the same cost. */
SCENE(test_moved_pages_keep_their_cost, CROSSOVER)
{
        uint32_t longer, node, to;
        double worth;

        longer = ask_new(c, LONG);
        node = node_of(c, longer);
        worth = ops->value(c->pgi, node, c->now);
        to = c->free[--c->n_free];
        tree_move(&c->tree, node, to);
        ops->move(c->pgi, node, to);
        c->node_1[longer] = to + 1;
        c->id_of[to] = longer;
        c->free[c->n_free++] = node;
        assert_null(ops->check(c->pgi));
        assert_true(ops->value(c->pgi, to, c->now) == worth);
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

TEST(test_out_of_memory)
{
        struct tree tree;
        struct evict_params params = {
                .tree = &tree, .page_tokens = PAGE_TOKENS, .crossover_tokens = CROSSOVER};

        tree_init(&tree);
        assert_int_equal(tree_reserve(&tree, 64), 0);
        alloc_fail_each(n)
        {
                void *pgi = NULL;
                int r = ops->new (&params, &pgi);

                if (r == 0)
                        r = ops->reserve(pgi, 64);
                assert_int_equal(r, alloc_fail_happened() ? -ENOMEM : 0);
                if (pgi)
                        assert_null(ops->check(pgi));
                ops->free(pgi);
        }
        tree_deinit(&tree);
}
