/* The simulator policies' memory of evicted nodes, and its use. */
#include "policy/sim/ghosts.h"
#include "policy/sim/policies.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"

#define SCENE_GHOSTS(fn, ...) \
        TEST_ON(fn, struct ghosts, g, ghosts_init, ghosts_deinit, ##__VA_ARGS__)

static void expect_gone(struct ghosts *g, uint64_t id)
{
        struct ghost ghost;

        assert_false(ghosts_take(g, id, &ghost));
}

static void expect_there(struct ghosts *g, uint64_t id, uint32_t queue, uint64_t value)
{
        struct ghost ghost;

        assert_true(ghosts_take(g, id, &ghost));
        assert_true(ghost.id == id && ghost.value == value);
        assert_int_equal(ghost.queue, queue);
        expect_gone(g, id);
}

SCENE_GHOSTS(test_added_and_taken, 10)
{
        expect_gone(g, 7);
        ghosts_drop_oldest(g, 0);
        ghosts_add(g, 0, 7, 70);
        ghosts_add(g, 1, 8, 80);
        ghosts_add(g, 1, 7, 71); /* the newer one counts */
        ghosts_add(g, 0, UINT64_MAX, 90);
        assert_int_equal(ghosts_count(g, 0), 1);
        assert_int_equal(ghosts_count(g, 1), 2);
        expect_there(g, 7, 1, 71);
        expect_there(g, UINT64_MAX, 0, 90);
        expect_there(g, 8, 1, 80);
        assert_int_equal(ghosts_count(g, 0) + ghosts_count(g, 1), 0);
}

SCENE_GHOSTS(test_oldest_makes_room, 100)
{
        for (uint64_t id = 0; id < 100; id++)
                ghosts_add(g, id % 2, id, id);
        ghosts_add(g, 0, 100, 100);
        expect_gone(g, 0);
        ghosts_drop_oldest(g, 1);
        expect_gone(g, 1);
        for (uint64_t id = 2; id <= 100; id++)
                expect_there(g, id, id % 2, id);
        /* From the other queue, if its own is empty. */
        for (uint64_t id = 0; id < 100; id++)
                ghosts_add(g, 0, id, id);
        ghosts_add(g, 1, 100, 100);
        expect_gone(g, 0);
        expect_there(g, 100, 1, 100);
}

/* A cache of texts of one page each. */
struct cache {
        const struct evict_ops *ops;
        struct tree tree;
        void *policy;
};

static void cache_init(struct cache *c, const struct evict_ops *ops)
{
        struct evict_params params = {.tree = &c->tree, .page_tokens = 512};

        c->ops = ops;
        tree_init(&c->tree);
        assert_int_equal(tree_reserve(&c->tree, 100), 0);
        assert_int_equal(ops->new (&params, &c->policy), 0);
        assert_int_equal(ops->reserve(c->policy, 100), 0);
}

static void cache_deinit(struct cache *c)
{
        c->ops->free(c->policy);
        tree_deinit(&c->tree);
}

#define SCENE(fn, ...) TEST_ON(fn, struct cache, c, cache_init, cache_deinit, ##__VA_ARGS__)

/* A node's text has its number. */
static void insert(struct cache *c, uint32_t node, uint32_t parent)
{
        tree_insert(&c->tree, node, parent);
        c->ops->insert(
                c->policy, node, &(struct evict_insert){.id = node, .tokens = 512, .depth = 1}, 0);
        c->ops->idle(c->policy, node, 0);
}

static void use(struct cache *c, uint32_t node)
{
        c->ops->hold(c->policy, node);
        c->ops->touch(c->policy, node, 0, 0);
        c->ops->idle(c->policy, node, 0);
}

static void expect_evicted(struct cache *c, uint32_t node)
{
        assert_int_equal(c->ops->victim(c->policy, 0, EVICT_DROP, 0), node);
        c->ops->remove(c->policy, node, EVICT_PRESSURE);
        tree_remove(&c->tree, node);
        assert_null(c->ops->check(c->policy));
}

/* 0 is used twice, the first time before it is evicted; all others once, but for 3. */
SCENE(test_lru2_remembers_uses_of_the_evicted, &evict_lru2)
{
        insert(c, 0, NODE_NONE);
        expect_evicted(c, 0);
        insert(c, 3, NODE_NONE);
        insert(c, 0, NODE_NONE);
        insert(c, 1, NODE_NONE);
        insert(c, 2, NODE_NONE);
        use(c, 3);
        expect_evicted(c, 1);
        expect_evicted(c, 2);
        expect_evicted(c, 0); /* its use before the last is older than 3's */
        expect_evicted(c, 3);
}

/* The target begins at 0: what was used once goes first, until a ghost of it comes back. */
SCENE(test_arc_follows_its_ghosts, &evict_arc)
{
        for (uint32_t i = 0; i < 6; i++)
                insert(c, i, NODE_NONE);
        use(c, 0);
        use(c, 1);
        use(c, 2);
        expect_evicted(c, 3);
        expect_evicted(c, 4);
        insert(c, 3, NODE_NONE); /* 0, 1, 2 and 3 were used again, 5 once; the target is 1 */
        expect_evicted(c, 0);
        insert(c, 4, NODE_NONE); /* and 2 */
        insert(c, 6, NODE_NONE);
        expect_evicted(c, 1);
        insert(c, 0, NODE_NONE); /* a ghost of those used again: 1 */
        expect_evicted(c, 5);
}

/* Equal uses: the deeper block costs more, and the older one of two goes. */
SCENE(test_gdsf_weighs_depth, &evict_gdsf)
{
        insert(c, 0, NODE_NONE);
        for (uint32_t i = 1; i < 60; i++)
                insert(c, i, i - 1);
        insert(c, 60, NODE_NONE);
        insert(c, 61, NODE_NONE);
        use(c, 60);
        expect_evicted(c, 61);
        /* At 59 * 512 tokens attention costs nearly what the rest does: two uses of 60's. */
        expect_evicted(c, 59);
        expect_evicted(c, 58);
        use(c, 60);
        for (uint32_t i = 58; i-- > 0;)
                expect_evicted(c, i);
        expect_evicted(c, 60);
}

/* A block that was used often long ago isn't worth more than an endless stream of new ones. */
SCENE(test_gdsf_ages, &evict_gdsf)
{
        insert(c, 0, NODE_NONE);
        use(c, 0);
        use(c, 0); /* worth 3 */
        for (uint32_t i = 1; i < 3; i++) {
                insert(c, 2 * i, NODE_NONE); /* worth i, as the cache is i - 1 old */
                insert(c, 2 * i + 1, NODE_NONE);
                expect_evicted(c, 2 * i);
                expect_evicted(c, 2 * i + 1);
        }
        insert(c, 10, NODE_NONE); /* worth 3, too, and younger */
        expect_evicted(c, 0);
        expect_evicted(c, 10);
}
