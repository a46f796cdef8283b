#include <string.h>
#include <unistd.h>

#include "policy/evict.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/fresh-tree.h"
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"

static const struct evict_ops *const ops = &evict_lru;

struct cache {
        struct tree tree;
        void *lru;
};

static void cache_init(struct cache *c, uint32_t n)
{
        tree_init(&c->tree);
        assert_int_equal(tree_reserve(&c->tree, n), 0);
        assert_int_equal(ops->new (&(struct evict_params){.tree = &c->tree}, &c->lru), 0);
        assert_int_equal(ops->reserve(c->lru, n), 0);
}

static void cache_deinit(struct cache *c)
{
        ops->free(c->lru);
        tree_deinit(&c->tree);
}

#define SCENE(fn, ...) TEST_ON(fn, struct cache, c, cache_init, cache_deinit, ##__VA_ARGS__)

static void insert(struct cache *c, uint32_t node, uint32_t parent)
{
        tree_insert(&c->tree, node, parent);
        ops->insert(c->lru, node, &(struct evict_insert){.id = node, .tokens = 16, .depth = 1}, 0);
}

static void drop(struct cache *c, uint32_t node, enum evict_reason why)
{
        ops->remove(c->lru, node, why);
        tree_remove(&c->tree, node);
}

static void expect_evicted(struct cache *c, uint32_t node)
{
        assert_int_equal(ops->victim(c->lru, 0, EVICT_DROP, 0), node);
        assert_int_equal(ops->victim(c->lru, 0, EVICT_DROP, 0), node);
        assert_null(ops->check(c->lru));
        if (node != NODE_NONE)
                drop(c, node, EVICT_PRESSURE);
        assert_null(ops->check(c->lru));
}

/* 0 <- 1 <- 2 and 3, let go in that order of age: 3 the oldest. 10 and more lie below. */
static void tiers_init(struct cache *c)
{
        tree_init(&c->tree);
        tree_set_tiers(&c->tree, (uint32_t[]){0, 10}, 2);
        assert_int_equal(tree_reserve(&c->tree, 20), 0);
        assert_int_equal(ops->new (&(struct evict_params){.tree = &c->tree}, &c->lru), 0);
        assert_int_equal(ops->reserve(c->lru, 20), 0);
        for (uint32_t i = 0; i < 3; i++)
                insert(c, i, i ? i - 1 : NODE_NONE);
        insert(c, 3, NODE_NONE);
        for (uint32_t i = 4; i-- > 0;)
                ops->idle(c->lru, i, 0);
}

#define SCENE_TIERS(fn, ...) TEST_ON(fn, struct cache, c, tiers_init, cache_deinit, ##__VA_ARGS__)

static void move(struct cache *c, uint32_t node, uint32_t to)
{
        tree_move(&c->tree, node, to);
        ops->move(c->lru, node, to);
        assert_null(ops->check(c->lru));
}

static void expect_victim(struct cache *c, uint32_t tier, enum evict_how how, uint32_t node)
{
        assert_int_equal(ops->victim(c->lru, tier, how, 0), node);
        assert_null(ops->check(c->lru));
}

SCENE_TIERS(test_goes_down_in_order)
{
        expect_victim(c, 1, EVICT_DROP, NODE_NONE);
        expect_victim(c, 0, EVICT_DEMOTE, 3);
        move(c, 3, 13);
        move(c, 2, 12);
        expect_victim(c, 0, EVICT_DEMOTE, 1);       /* a tip: 2 lies lower */
        expect_victim(c, 0, EVICT_DROP, NODE_NONE); /* but no leaf: it is set aside */
        expect_victim(c, 0, EVICT_DEMOTE, 1);
        expect_victim(c, 1, EVICT_DROP, 13);
        drop(c, 12, EVICT_PRESSURE);
        expect_victim(c, 0, EVICT_DROP, 1); /* it was set aside until now */
        move(c, 13, 3);                     /* up again: the newest */
        expect_victim(c, 1, EVICT_DROP, NODE_NONE);
        drop(c, 1, EVICT_PRESSURE);
        drop(c, 0, EVICT_PRESSURE);
        expect_victim(c, 0, EVICT_DROP, 3);
}

SCENE(test_held_child_protects_its_parent, 3)
{
        insert(c, 0, NODE_NONE);
        insert(c, 1, 0);
        insert(c, 2, NODE_NONE);
        ops->idle(c->lru, 0, 0);
        expect_evicted(c, NODE_NONE);
        ops->idle(c->lru, 2, 0);
        /* The child goes although it is held: the parent was in use until now, so 2 is older. */
        drop(c, 1, EVICT_INVALIDATE);
        assert_null(ops->check(c->lru));
        expect_evicted(c, 2);
        expect_evicted(c, 0);
}

SCENE(test_nine_bytes_a_node, 1000000)
{
        assert_in_range(ops->memory_bytes(c->lru), 9000000, 9000200);
}

/* Let go from the top: moving parents past their children would take 10^11 steps and be killed. */
TEST(test_long_chain_goes_in_linear_time)
{
        const uint32_t n = 500000;
        struct cache c;

        alarm(30);
        cache_init(&c, n);
        for (uint32_t i = 0; i < n; i++)
                insert(&c, i, i ? i - 1 : NODE_NONE);
        for (uint32_t i = 0; i < n - 1; i++)
                ops->idle(c.lru, i, 0);
        for (uint32_t i = 0; i < n; i++) /* the last one is held: asking again must not walk */
                assert_int_equal(ops->victim(c.lru, 0, EVICT_DROP, 0), NODE_NONE);
        ops->idle(c.lru, n - 1, 0);
        for (uint32_t i = n; i-- > 0;) {
                assert_int_equal(ops->victim(c.lru, 0, EVICT_DROP, 0), i);
                drop(&c, i, EVICT_PRESSURE);
        }
        cache_deinit(&c);
        alarm(0);
}

/*
 * Random events against a model that searches everything.
 *
 * A victim is the idle leaf with the lowest rank. A node's rank is the time it became idle. A node
 * that was passed over at its turn, because it has children, has no rank until its last child
 * leaves. Then it gets that child's rank, or the current time if the child was held.
 */
#define N_MODEL 48
#define NO_RANK 0

enum model_state { ABSENT, HELD, IDLE };

struct model {
        enum model_state state[N_MODEL];
        uint32_t parent[N_MODEL];
        uint64_t rank[N_MODEL];
        uint32_t n_usable;
        uint64_t clock;
};

static bool model_is_leaf(const struct model *m, uint32_t node)
{
        for (uint32_t i = 0; i < N_MODEL; i++)
                if (m->state[i] != ABSENT && m->parent[i] == node)
                        return false;
        return true;
}

static uint32_t model_victim(struct model *m)
{
        uint32_t found = NODE_NONE;

        for (uint32_t i = 0; i < N_MODEL; i++)
                if (m->state[i] == IDLE && model_is_leaf(m, i) &&
                        (found == NODE_NONE || m->rank[i] < m->rank[found]))
                        found = i;
        for (uint32_t i = 0; i < N_MODEL; i++)
                if (m->state[i] == IDLE && (found == NODE_NONE || m->rank[i] < m->rank[found]))
                        m->rank[i] = NO_RANK;
        return found;
}

static void model_remove(struct model *m, uint32_t node)
{
        uint32_t parent = m->parent[node];
        uint64_t rank = m->state[node] == HELD ? ++m->clock : m->rank[node];

        m->state[node] = ABSENT;
        if (parent != NODE_NONE && m->state[parent] == IDLE && model_is_leaf(m, parent) &&
                m->rank[parent] == NO_RANK)
                m->rank[parent] = rank;
}

static void evict_both(struct cache *c, struct model *m)
{
        uint32_t node = model_victim(m);

        assert_int_equal(ops->victim(c->lru, 0, EVICT_DROP, 0), node);
        if (node == NODE_NONE || random_below(4) == 0)
                return;
        assert_true(tree_is_leaf(&c->tree, node));
        drop(c, node, EVICT_PRESSURE);
        model_remove(m, node);
}

static void forget_or_grow_both(struct cache *c, struct model *m)
{
        if (m->n_usable < N_MODEL) {
                m->n_usable++;
                assert_int_equal(tree_reserve(&c->tree, m->n_usable), 0);
                assert_int_equal(ops->reserve(c->lru, m->n_usable), 0);
        } else if (random_below(8) == 0) {
                assert_int_equal(fresh_tree(&c->tree), 0);
                assert_int_equal(ops->reset(c->lru), 0);
                memset(m->state, 0, sizeof(m->state));
        }
}

static void toggle_both(struct cache *c, struct model *m, uint32_t node)
{
        uint32_t parent = random_below(m->n_usable);

        switch (m->state[node]) {
        case ABSENT:
                m->parent[node] = m->state[parent] != ABSENT ? parent : NODE_NONE;
                m->state[node] = HELD;
                insert(c, node, m->parent[node]);
                break;
        case HELD:
                m->state[node] = IDLE;
                m->rank[node] = ++m->clock;
                ops->idle(c->lru, node, m->clock);
                break;
        case IDLE:
                m->state[node] = HELD;
                ops->hold(c->lru, node);
                break;
        }
}

static void move_both(struct cache *c, struct model *m, uint32_t node, uint32_t to)
{
        m->state[to] = m->state[node];
        m->parent[to] = m->parent[node];
        m->rank[to] = m->rank[node];
        m->state[node] = ABSENT;
        for (uint32_t i = 0; i < N_MODEL; i++)
                if (m->state[i] != ABSENT && m->parent[i] == node)
                        m->parent[i] = to;
        tree_move(&c->tree, node, to);
        ops->move(c->lru, node, to);
}

static void random_step(struct cache *c, struct model *m)
{
        uint32_t node = random_below(m->n_usable), what = random_below(100);

        if (what < 15) {
                evict_both(c, m);
        } else if (what < 16) {
                forget_or_grow_both(c, m);
        } else if (what < 20) {
                if (m->state[node] == ABSENT || !model_is_leaf(m, node))
                        return;
                drop(c, node, EVICT_INVALIDATE);
                model_remove(m, node);
        } else if (what < 35) {
                if (m->state[node] == ABSENT)
                        return;
                if (m->state[node] == IDLE)
                        m->rank[node] = ++m->clock;
                ops->touch(c->lru, node, 1, m->clock);
        } else if (what < 45) {
                uint32_t to = random_below(m->n_usable);

                if (m->state[node] != ABSENT && m->state[to] == ABSENT)
                        move_both(c, m, node, to);
        } else {
                toggle_both(c, m, node);
        }
}

TEST(test_random_against_model)
{
        struct model m = {.n_usable = 1};
        struct cache c;

        random_start(__func__);
        cache_init(&c, m.n_usable);
        for (int i = 0; i < 50000; i++) {
                random_step(&c, &m);
                assert_null(ops->check(c.lru));
                assert_null(tree_check(&c.tree));
        }
        cache_deinit(&c);
}

/*
 * Events as the daemon sends them: requests hold paths from a root, overlap, and release from the
 * deepest page up. Then it is plain LRU, and the oldest of *all* idle nodes is a leaf.
 */
#define N_REQUESTS 6
#define MAX_DEPTH  12

struct request {
        uint32_t path[MAX_DEPTH];
        uint32_t depth;
};

struct workload {
        struct cache cache;
        uint32_t pins[N_MODEL];
        uint64_t idle_since[N_MODEL];
        uint64_t clock;
        struct request requests[N_REQUESTS];
};
