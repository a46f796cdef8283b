#include <unistd.h>

#include "policy/tree.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/fresh-tree.h"
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"

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
