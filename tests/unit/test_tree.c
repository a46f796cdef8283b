#include <errno.h>
#include <unistd.h>

#include "policy/tree.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/fresh-tree.h"
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"

#define SCENE(fn, ...) TEST_ON(fn, struct tree, t, tree_init, tree_deinit, ##__VA_ARGS__)

SCENE(test_insert_and_remove)
{
        assert_int_equal(tree_reserve(t, 4), 0);
        assert_false(tree_has(t, 0));
        tree_insert(t, 2, NODE_NONE);
        tree_insert(t, 0, 2);
        tree_insert(t, 3, 2);
        assert_int_equal(tree_parent(t, 2), NODE_NONE);
        assert_int_equal(tree_parent(t, 0), 2);
        assert_false(tree_is_leaf(t, 2));
        assert_true(tree_is_leaf(t, 0) && tree_is_leaf(t, 3));
        assert_false(tree_has(t, 1));
        assert_null(tree_check(t));

        tree_remove(t, 0);
        assert_false(tree_has(t, 0));
        assert_int_equal(tree_first_child(t, 2), 3);
        assert_int_equal(tree_next_sibling(t, 3), NODE_NONE);
        tree_remove(t, 3);
        assert_true(tree_is_leaf(t, 2));
        tree_remove(t, 2);
        assert_false(tree_has(t, 2));
        assert_null(tree_check(t));
}

/* 0 <- 1 <- 2, 0 <- 3; 4. */
TEST(test_walks)
{
        struct tree t;

        tree_init(&t);
        assert_int_equal(tree_reserve(&t, 5), 0);
        tree_insert(&t, 0, NODE_NONE);
        tree_insert(&t, 1, 0);
        assert_false(tree_is_only_child(&t, 0));
        assert_true(tree_is_only_child(&t, 1));
        tree_insert(&t, 2, 1);
        tree_insert(&t, 3, 0);
        tree_insert(&t, 4, NODE_NONE);
        assert_false(tree_is_only_child(&t, 1));
        assert_false(tree_is_only_child(&t, 3));
        assert_int_equal(tree_next_below(&t, 0, 0), 3);
        assert_int_equal(tree_next_below(&t, 0, 3), 1);
        assert_int_equal(tree_next_below(&t, 0, 1), 2);
        assert_int_equal(tree_next_below(&t, 0, 2), NODE_NONE);
        assert_int_equal(tree_next_below(&t, 3, 3), NODE_NONE); /* its sibling isn't below it */
        tree_deinit(&t);
}

SCENE(test_reserve_keeps_nodes)
{
        assert_int_equal(tree_reserve(t, 2), 0);
        tree_insert(t, 0, NODE_NONE);
        tree_insert(t, 1, 0);
        assert_int_equal(tree_reserve(t, 1000), 0);
        assert_true(t->n_nodes >= 1000);
        assert_int_equal(tree_parent(t, 1), 0);
        for (uint32_t i = 2; i < 1000; i++)
                assert_false(tree_has(t, i));
        tree_insert(t, 999, 1);
        assert_int_equal(tree_reserve(t, 10), 0);
        assert_true(tree_has(t, 999));
        assert_null(tree_check(t));
}

SCENE(test_out_of_memory_changes_nothing)
{
        assert_int_equal(tree_reserve(t, 2), 0);
        tree_insert(t, 1, NODE_NONE);
        alloc_fail_at(1);
        assert_int_equal(tree_reserve(t, 100), -ENOMEM);
        assert_true(alloc_fail_end());
        assert_int_equal(t->n_nodes, 2);
        assert_true(tree_has(t, 1));
}

/* With tiers there are two arrays. */
SCENE(test_out_of_memory_with_tiers)
{
        tree_set_tiers(t, (uint32_t[]){0, 10}, 2);
        assert_int_equal(tree_reserve(t, 20), 0);
        tree_insert(t, 1, NODE_NONE);
        tree_insert(t, 2, 1);
        alloc_fail_each(n)
        {
                int r = tree_reserve(t, 100 + n);

                assert_int_equal(r, alloc_fail_happened() ? -ENOMEM : 0);
                assert_null(tree_check(t));
                assert_true(!tree_is_tip(t, 1) && tree_is_tip(t, 2));
        }
}

SCENE(test_move_takes_the_place)
{
        assert_int_equal(tree_reserve(t, 12), 0);
        tree_insert(t, 0, NODE_NONE);
        for (uint32_t i = 1; i <= 3; i++)
                tree_insert(t, i, 0);
        tree_insert(t, 4, 2);
        tree_insert(t, 5, 2);
        tree_move(t, 2, 8); /* between siblings, with children */
        assert_false(tree_has(t, 2));
        assert_int_equal(tree_parent(t, 8), 0);
        assert_int_equal(tree_parent(t, 4), 8);
        assert_int_equal(tree_parent(t, 5), 8);
        assert_null(tree_check(t));
        tree_move(t, 3, 9); /* a first child */
        assert_int_equal(tree_first_child(t, 0), 9);
        tree_move(t, 1, 10); /* a last one */
        assert_null(tree_check(t));
        tree_move(t, 0, 11); /* a root */
        assert_int_equal(tree_parent(t, 11), NODE_NONE);
        assert_int_equal(tree_parent(t, 10), 11);
        assert_null(tree_check(t));
        tree_insert(t, 2, 8);
        assert_null(tree_check(t));
}

/* Removes a subtree as the header says. Returns the number of nodes. */
static uint32_t remove_subtree(struct tree *t, uint32_t top)
{
        uint32_t n = 0;

        for (uint32_t up = top, leaf = NODE_NONE; leaf != top; n++) {
                leaf = tree_leaf_below(t, up);
                up = tree_parent(t, leaf);
                tree_remove(t, leaf);
        }
        return n;
}

/* A quadratic walk would take 10^11 steps and be killed. */
TEST(test_long_chain_goes_in_linear_time)
{
        const uint32_t n = 500000;
        struct tree t;

        alarm(30);
        tree_init(&t);
        assert_int_equal(tree_reserve(&t, n + 2), 0);
        tree_insert(&t, n, NODE_NONE);
        for (uint32_t i = 0; i < n; i++)
                tree_insert(&t, i, i ? i - 1 : n);
        tree_insert(&t, n + 1, n);
        assert_int_equal(remove_subtree(&t, 0), n);
        assert_true(tree_has(&t, n) && tree_has(&t, n + 1));
        assert_null(tree_check(&t));
        tree_deinit(&t);
        alarm(0);
}

/* Tiers 0..9 and 10 and more: 0 <- 1 <- 2, 0 <- 3, going down from the leaves. */
SCENE(test_tips)
{
        tree_set_tiers(t, (uint32_t[]){0, 10}, 2);
        assert_int_equal(tree_reserve(t, 20), 0);
        assert_true(tree_tier(t, 9) == 0 && tree_tier(t, 10) == 1);
        tree_insert(t, 0, NODE_NONE);
        tree_insert(t, 1, 0);
        tree_insert(t, 2, 1);
        tree_insert(t, 3, 0);
        assert_true(tree_is_tip(t, 2) && !tree_is_tip(t, 1) && tree_hides_tip(t, 2));
        assert_false(tree_hides_tip(t, 1)); /* nor does 3 alone */
        tree_move(t, 2, 12);
        assert_true(tree_is_tip(t, 1) && !tree_is_leaf(t, 1) && !tree_hides_tip(t, 12));
        tree_move(t, 3, 13);
        assert_true(tree_hides_tip(t, 1) && !tree_is_only_child(t, 1));
        tree_move(t, 1, 11);
        assert_true(tree_is_tip(t, 0) && !tree_is_tip(t, 11) && tree_is_tip(t, 12));
        tree_move(t, 0, 10);
        assert_false(tree_is_tip(t, 10));
        tree_move(t, 11, 1); /* up, past its parent: that may not go further down */
        assert_true(!tree_is_tip(t, 10) && tree_is_tip(t, 1) && tree_is_tip(t, 12));
        assert_null(tree_check(t));
        t->near[1]++;
        assert_non_null(tree_check(t));
        t->near[1]--;
        assert_int_equal(fresh_tree(t), 0);
        assert_null(tree_check(t));
        assert_int_equal(tree_tier(t, 10), 1);
}

SCENE(test_check_finds_damage)
{
        assert_int_equal(tree_reserve(t, 4), 0);
        tree_insert(t, 0, NODE_NONE);
        tree_insert(t, 1, 0);
        tree_insert(t, 2, 0);
        assert_null(tree_check(t));
        t->nodes[1].parent_1 = 0; /* a sibling that is a root */
        assert_non_null(tree_check(t));
        t->nodes[1].parent_1 = 1;
        assert_null(tree_check(t));
        t->nodes[3].next_1 = 1; /* links outside the tree */
        assert_non_null(tree_check(t));
        t->nodes[3].next_1 = 0;
        t->nodes[0].first_child_1 = 0; /* unreachable children */
        assert_non_null(tree_check(t));
}

#define N_MODEL 64

struct model {
        uint32_t parent[N_MODEL];
        bool present[N_MODEL];
};

static uint32_t model_children(const struct model *m, uint32_t node)
{
        uint32_t n = 0;

        for (uint32_t i = 0; i < N_MODEL; i++)
                n += m->present[i] && m->parent[i] == node;
        return n;
}

static uint32_t model_tier(uint32_t node)
{
        return (node >= N_MODEL / 4) + (node >= N_MODEL / 2);
}

static bool model_is_tip(const struct model *m, uint32_t node)
{
        for (uint32_t i = 0; i < N_MODEL; i++)
                if (m->present[i] && m->parent[i] == node && model_tier(i) <= model_tier(node))
                        return false;
        return true;
}

static uint32_t model_remove_below(struct model *m, uint32_t node)
{
        uint32_t n = 1;

        m->present[node] = false;
        for (uint32_t i = 0; i < N_MODEL; i++)
                if (m->present[i] && m->parent[i] == node)
                        n += model_remove_below(m, i);
        return n;
}

static void compare(const struct tree *t, const struct model *m)
{
        for (uint32_t i = 0; i < N_MODEL; i++) {
                uint32_t n = 0;

                assert_int_equal(tree_has(t, i), m->present[i]);
                if (!m->present[i])
                        continue;
                assert_int_equal(tree_parent(t, i), m->parent[i]);
                for (uint32_t c = tree_first_child(t, i); c != NODE_NONE;
                        c = tree_next_sibling(t, c), n++)
                        assert_true(m->present[c] && m->parent[c] == i && n < N_MODEL);
                assert_int_equal(n, model_children(m, i));
                assert_int_equal(tree_is_leaf(t, i), n == 0);
                assert_int_equal(tree_is_tip(t, i), model_is_tip(m, i));
        }
        assert_null(tree_check(t));
}

static void move_both(struct tree *t, struct model *m, uint32_t node, uint32_t to)
{
        m->present[to] = true;
        m->parent[to] = m->parent[node];
        m->present[node] = false;
        for (uint32_t i = 0; i < N_MODEL; i++)
                if (m->present[i] && m->parent[i] == node)
                        m->parent[i] = to;
        tree_move(t, node, to);
}

static void random_step(struct tree *t, struct model *m)
{
        uint32_t node = random_below(N_MODEL), parent = random_below(N_MODEL);

        if (random_below(500) == 0) {
                assert_int_equal(fresh_tree(t), 0);
                *m = (struct model){0};
        } else if (!m->present[node] && m->present[parent] && random_below(4) == 0) {
                move_both(t, m, parent, node);
        } else if (!m->present[node]) {
                m->parent[node] = m->present[parent] ? parent : NODE_NONE;
                m->present[node] = true;
                tree_insert(t, node, m->parent[node]);
        } else if (model_children(m, node) == 0) {
                m->present[node] = false;
                tree_remove(t, node);
        } else if (random_below(8) == 0) {
                assert_int_equal(remove_subtree(t, node), model_remove_below(m, node));
        }
}

TEST(test_random_against_model)
{
        struct model m = {0};
        struct tree t;

        random_start(__func__);
        tree_init(&t);
        tree_set_tiers(&t, (uint32_t[]){0, N_MODEL / 4, N_MODEL / 2}, 3);
        assert_int_equal(tree_reserve(&t, N_MODEL), 0);
        for (int i = 0; i < 20000; i++) {
                random_step(&t, &m);
                compare(&t, &m);
        }
        tree_deinit(&t);
}
