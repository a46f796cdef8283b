#include "policy/ancestors.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"

#define N_NODES UINT32_C(20000)

/* Numbers of nodes are in no order of the text, as those of pages. */
static uint32_t node_of(uint32_t i)
{
        return (uint32_t)(i * UINT64_C(7919) % N_NODES);
}

static void make_chain(struct tree *t, struct ancestors *a, uint32_t n)
{
        tree_init(t);
        assert_int_equal(tree_reserve(t, N_NODES), 0);
        *a = (struct ancestors){0};
        for (uint32_t i = 0; i < n; i++) {
                tree_insert(t, node_of(i), i == 0 ? NODE_NONE : node_of(i - 1));
                ancestors_insert(a, t, node_of(i), i + 1);
        }
        assert_null(ancestors_check(a, t));
}

static void free_both(struct tree *t, struct ancestors *a)
{
        ancestors_deinit(a);
        tree_deinit(t);
}

TEST(test_each_of_a_chain)
{
        struct ancestors a;
        struct tree t;

        make_chain(&t, &a, N_NODES);
        for (uint32_t wanted = 1; wanted <= N_NODES; wanted++)
                assert_int_equal(ancestors_find(&a, &t, node_of(N_NODES - 1), N_NODES, wanted),
                        node_of(wanted - 1));
        free_both(&t, &a);
}

/* Links that lie between marks are broken: only those near both ends are looked at. */
struct limit {
        const struct tree *tree;
        uint32_t depth;
        uint32_t n_asked;
};

static bool is_above(const void *data, uint32_t node)
{
        struct limit *l = (struct limit *)data;
        uint32_t depth = 0;

        l->n_asked++;
        for (; node != NODE_NONE && depth <= l->depth; depth++)
                node = tree_parent(l->tree, node);
        return depth <= l->depth;
}

/* The last page that is true is found from each of those below it, and few are asked. */
TEST(test_deepest)
{
        const uint32_t n = 20 * ANCESTORS_STEP + 7;
        struct ancestors a;
        struct tree t;

        make_chain(&t, &a, n);
        for (uint32_t wanted = 0; wanted <= n; wanted += 1 + wanted / 3)
                for (uint32_t from = 1; from <= n; from += 37) {
                        struct limit l = {.tree = &t, .depth = wanted};
                        uint32_t depth = from, found = ancestors_find_deepest(&a, &t,
                                                       node_of(from - 1), &depth, is_above, &l);

                        if (wanted == 0) {
                                assert_int_equal(found, NODE_NONE);
                        } else {
                                assert_int_equal(found, node_of(MIN(wanted, from) - 1));
                                assert_int_equal(depth, MIN(wanted, from));
                        }
                        assert_in_range(l.n_asked, 1, 2 * ANCESTORS_STEP + n / ANCESTORS_STEP + 2);
                }
        free_both(&t, &a);
}

TEST(test_walk_is_short)
{
        const uint32_t wanted = 1000, depth = 15100, step = ANCESTORS_STEP;
        struct ancestors a;
        struct tree t;

        make_chain(&t, &a, N_NODES);
        for (uint32_t i = wanted + step; i < depth - step; i++)
                t.nodes[node_of(i)] = (struct tree_node){0};
        assert_int_equal(
                ancestors_find(&a, &t, node_of(depth - 1), depth, wanted), node_of(wanted - 1));
        free_both(&t, &a);
}

struct random_tree {
        struct tree tree;
        struct ancestors ancestors;
        uint32_t depth[N_NODES]; /* 0: not in the tree */
        uint32_t last;           /* inserted */
};

/* Behind the last one more often than not, so that texts get long. */
static void insert_one(struct random_tree *r)
{
        uint32_t node = random_below(N_NODES), up = r->last;

        if (r->depth[node] != 0)
                return;
        if (random_below(1000) == 0)
                up = random_below(N_NODES);
        if (up == NODE_NONE || r->depth[up] == 0)
                up = NODE_NONE;
        r->depth[node] = up == NODE_NONE ? 1 : r->depth[up] + 1;
        tree_insert(&r->tree, node, up);
        ancestors_insert(&r->ancestors, &r->tree, node, r->depth[node]);
        r->last = node;
}

static void remove_some(struct random_tree *r)
{
        uint32_t node = random_below(N_NODES);

        for (uint32_t n = random_below(700); n > 0 && node != NODE_NONE && r->depth[node] != 0;
                n--) {
                uint32_t up = tree_parent(&r->tree, node);

                if (!tree_is_leaf(&r->tree, node))
                        return;
                ancestors_remove(&r->ancestors, node, r->depth[node]);
                tree_remove(&r->tree, node);
                r->depth[node] = 0;
                r->last = up;
                node = up;
        }
}

static void move_one(struct random_tree *r)
{
        uint32_t node = random_below(N_NODES), to = random_below(N_NODES);

        if (r->depth[node] == 0 || r->depth[to] != 0)
                return;
        tree_move(&r->tree, node, to);
        ancestors_move(&r->ancestors, node, to, r->depth[node]);
        r->depth[to] = r->depth[node];
        r->depth[node] = 0;
        r->last = r->last == node ? to : r->last;
}

static void look_for_some(const struct random_tree *r)
{
        uint32_t node = random_below(N_NODES), depth = r->depth[node], wanted, up = node;

        if (depth == 0)
                return;
        wanted = 1 + random_below(depth);
        for (uint32_t i = depth; i > wanted; i--)
                up = tree_parent(&r->tree, up);
        assert_int_equal(ancestors_find(&r->ancestors, &r->tree, node, depth, wanted), up);
}

TEST(test_any_tree)
{
        static struct random_tree r;
        uint32_t deepest = 0;

        random_start("any_tree");
        tree_init(&r.tree);
        assert_int_equal(tree_reserve(&r.tree, N_NODES), 0);
        r.last = NODE_NONE;
        for (unsigned i = 0; i < 300000; i++) {
                insert_one(&r);
                if (i % 50 == 0)
                        remove_some(&r);
                if (i % 7 == 0)
                        move_one(&r);
                if (i % 20 == 0)
                        look_for_some(&r);
                if (i % 10000 == 0)
                        assert_null(ancestors_check(&r.ancestors, &r.tree));
        }
        for (uint32_t node = 0; node < N_NODES; node++)
                deepest = r.depth[node] > deepest ? r.depth[node] : deepest;
        assert_in_range(deepest, 3 * ANCESTORS_STEP, N_NODES); /* it was about something */
        assert_null(ancestors_check(&r.ancestors, &r.tree));
        free_both(&r.tree, &r.ancestors);
}

/* Each allocation fails once: a mark is missing, and nothing is found at another place. */
TEST(test_no_memory_for_marks)
{
        const uint32_t n = 3 * 64 * ANCESTORS_STEP / 2;

        assert_in_range(n, 1, 2 * N_NODES);
        alloc_fail_each(failing)
        {
                struct ancestors a = {0};
                struct tree t;
                bool failed;

                tree_init(&t);
                if (tree_reserve(&t, n) == 0) {
                        for (uint32_t i = 0; i < n; i++) {
                                tree_insert(&t, i, i - 1);
                                ancestors_insert(&a, &t, i, i + 1);
                        }
                        failed = alloc_fail_happened();
                        assert_int_equal(a.is_incomplete, failed);
                        assert_null(ancestors_check(&a, &t));
                        for (uint32_t wanted = 1; wanted <= n; wanted += 77)
                                assert_int_equal(
                                        ancestors_find(&a, &t, n - 1, n, wanted), wanted - 1);
                        for (uint32_t i = n; i-- > 0;) {
                                ancestors_move(&a, i, i, i + 1);
                                ancestors_remove(&a, i, i + 1);
                                tree_remove(&t, i);
                        }
                        assert_null(ancestors_check(&a, &t));
                }
                free_both(&t, &a);
        }
}

static bool is_marked_node(const void *data, uint32_t node)
{
        return node == node_of(ANCESTORS_STEP - 1);
}

TEST(test_parts_of_the_checker)
{
        uint32_t node = node_of(ANCESTORS_STEP - 1), other = node_of(5);
        struct ancestors a, none = {0};
        struct tree t;

        make_chain(&t, &a, ANCESTORS_STEP + 1); /* one mark */
        assert_null(ancestors_check_node(&a, &t, node, ANCESTORS_STEP));
        assert_null(ancestors_check_node(&a, &t, other, 6));
        assert_non_null(ancestors_check_node(&none, &t, node, ANCESTORS_STEP));
        assert_null(ancestors_check_mark(&a, 0, is_marked_node, NULL));
        ancestors_move(&a, node, other, ANCESTORS_STEP);
        assert_non_null(ancestors_check_mark(&a, 0, is_marked_node, NULL));
        ancestors_remove(&a, other, ANCESTORS_STEP);
        assert_null(ancestors_check_mark(&a, 0, is_marked_node, NULL)); /* it is spare */
        free_both(&t, &a);
}
