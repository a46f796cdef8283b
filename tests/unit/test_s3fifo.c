#include <unistd.h>

#include "policy/sim/policies.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/fresh-tree.h"
#include "tests/unit/test-support.h"

static const struct evict_ops *const ops = &evict_s3fifo;

struct cache {
        struct tree tree;
        void *policy;
};

static void cache_init(struct cache *c, uint32_t n, uint32_t max_ghosts)
{
        struct evict_params params = {.tree = &c->tree, .max_ghosts = max_ghosts};

        tree_init(&c->tree);
        assert_int_equal(tree_reserve(&c->tree, n), 0);
        assert_int_equal(ops->new (&params, &c->policy), 0);
        assert_int_equal(ops->reserve(c->policy, n), 0);
}

static void cache_deinit(struct cache *c)
{
        ops->free(c->policy);
        tree_deinit(&c->tree);
}

#define SCENE(fn, ...) TEST_ON(fn, struct cache, c, cache_init, cache_deinit, ##__VA_ARGS__)

/* Ids are spread as those of keys are. */
static uint64_t id_of(uint32_t text)
{
        return (text + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

static void insert_text(struct cache *c, uint32_t node, uint32_t parent, uint32_t text)
{
        struct evict_insert what = {.id = id_of(text), .tokens = 16, .depth = 1};

        tree_insert(&c->tree, node, parent);
        ops->insert(c->policy, node, &what, 0);
}

static void insert(struct cache *c, uint32_t node, uint32_t parent)
{
        insert_text(c, node, parent, node);
}

/* Texts of one page each, let go of. */
static void fill(struct cache *c, uint32_t from, uint32_t to)
{
        for (uint32_t i = from; i < to; i++) {
                insert(c, i, NODE_NONE);
                ops->idle(c->policy, i, 0);
        }
}

static void touch(struct cache *c, uint32_t node, unsigned times)
{
        while (times-- > 0)
                ops->touch(c->policy, node, 0, 0);
}

static void drop(struct cache *c, uint32_t node, enum evict_reason why)
{
        ops->remove(c->policy, node, why);
        tree_remove(&c->tree, node);
}

static void expect_evicted(struct cache *c, uint32_t node)
{
        assert_int_equal(ops->victim(c->policy, 0, EVICT_DROP, 0), node);
        assert_int_equal(ops->victim(c->policy, 0, EVICT_DROP, 0), node);
        assert_null(ops->check(c->policy));
        if (node != NODE_NONE)
                drop(c, node, EVICT_PRESSURE);
        assert_null(ops->check(c->policy));
}

/* 0..7 are in the main queue, none in the small one: a ninth page is more than a tenth. */
static void fill_main(struct cache *c)
{
        fill(c, 0, 8);
        for (uint32_t i = 0; i < 8; i++)
                touch(c, i, 2);
        fill(c, 8, 9);
        expect_evicted(c, 8);
}

#define SPARE 99 /* a node */

/* One page through the small queue, and out. Needs fill_main(). */
static void pass_through(struct cache *c, uint32_t text)
{
        insert_text(c, SPARE, NODE_NONE, text);
        ops->idle(c->policy, SPARE, 0);
        expect_evicted(c, SPARE);
}

static bool is_remembered(struct cache *c, uint32_t text)
{
        bool known;

        insert_text(c, SPARE, NODE_NONE, text);
        ops->idle(c->policy, SPARE, 0);
        known = ops->victim(c->policy, 0, EVICT_DROP, 0) != SPARE;
        drop(c, SPARE, EVICT_INVALIDATE);
        return known;
}

TEST(test_memory_is_bounded)
{
        const uint32_t n = 1 << 16;
        struct cache c;

        cache_init(&c, n, 1000);
        assert_in_range(ops->memory_bytes(c.policy), 24 * n, 24 * n + 2048 * 8 + 1000);
        cache_deinit(&c);
        cache_init(&c, n, 0);
        assert_in_range(ops->memory_bytes(c.policy), 40 * n, 40 * n + 1000);
        cache_deinit(&c);
}

SCENE(test_reset_forgets_nodes_and_keeps_ghosts, 100, 0)
{
        fill_main(c);
        pass_through(c, 1000);
        assert_int_equal(fresh_tree(&c->tree), 0);
        assert_int_equal(ops->reset(c->policy), 0);
        assert_null(ops->check(c->policy));
        expect_evicted(c, NODE_NONE);
        fill_main(c);
        assert_true(is_remembered(c, 1000));
}
