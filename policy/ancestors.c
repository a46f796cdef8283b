#include "policy/ancestors.h"

#include <assert.h>
#include <stdlib.h>

#include "base/array.h"

#define MARKS_FIRST UINT32_C(64)
#define MARKS_MAX   (UINT32_C(1) << 31)

struct ancestors_mark {
        uint32_t node;   /* NODE_NONE: spare */
        uint32_t up_1;   /* the mark ANCESTORS_STEP levels up, plus 1; 0: none */
        uint32_t next_1; /* of its bucket, or spare; plus 1; 0 ends */
};

void ancestors_deinit(struct ancestors *a)
{
        array_free(a->marks, a->n_marks, sizeof(*a->marks));
        free(a->buckets);
        *a = (struct ancestors){0};
}

/*
 * The factor is 2^32 divided by the golden ratio, which spreads consecutive numbers evenly: Knuth,
 * "The Art of Computer Programming" 3, 6.4. A client may choose among the pages that it was granted
 * which get marks. No more than there are marks can share a bucket, and no more than about the
 * nodes of the tree divided by the buckets: some 1,400 of 2 M nodes at the very worst.
 */
static uint32_t *bucket_of(const struct ancestors *a, uint32_t node)
{
        return &a->buckets[(node * UINT32_C(2654435769)) >> __builtin_clz(a->n_marks) >> 1];
}

/* Returns the link to the node's mark: in a bucket, or in the mark before. If the link is 0, there
 * is none. */
static uint32_t *find_link(const struct ancestors *a, uint32_t node)
{
        uint32_t *where = bucket_of(a, node);

        while (*where != 0 && a->marks[*where - 1].node != node)
                where = &a->marks[*where - 1].next_1;
        return where;
}

/* The node's mark plus 1; 0: it has none. */
static uint32_t find_mark(const struct ancestors *a, uint32_t node)
{
        return a->n_marks == 0 ? 0 : *find_link(a, node);
}

static void enter_bucket(struct ancestors *a, uint32_t mark)
{
        uint32_t *bucket = bucket_of(a, a->marks[mark].node);

        a->marks[mark].next_1 = *bucket;
        *bucket = mark + 1;
}

/* Twice as many marks, all in buckets anew. Called when none is spare. */
static bool grow_marks(struct ancestors *a)
{
        uint32_t n = a->n_marks == 0 ? MARKS_FIRST : 2 * a->n_marks;
        uint32_t *buckets = a->n_marks < MARKS_MAX ? calloc(n, sizeof(*buckets)) : NULL;
        void *marks = a->marks;

        if (!buckets)
                return false;
        if (array_reserve(&marks, &a->n_marks, n, n, sizeof(*a->marks)) < 0) {
                free(buckets);
                return false;
        }
        a->marks = marks;
        free(a->buckets);
        a->buckets = buckets;
        for (uint32_t i = 0; i < a->n_used; i++)
                enter_bucket(a, i);
        return true;
}

/* Plus 1; 0: no memory. */
static uint32_t take_mark(struct ancestors *a)
{
        uint32_t mark = a->spare;

        if (mark != 0) {
                a->spare = a->marks[mark - 1].next_1;
                return mark;
        }
        if (a->n_used == a->n_marks && !grow_marks(a))
                return 0;
        return ++a->n_used;
}

/* NODE_NONE: there are fewer. */
static uint32_t climb(const struct tree *t, uint32_t node, uint32_t n)
{
        while (n-- > 0 && node != NODE_NONE)
                node = tree_parent(t, node);
        return node;
}

void ancestors_insert_below(struct ancestors *a, uint32_t node, uint32_t depth, uint32_t above)
{
        uint32_t up, mark;

        if (!ancestors_has_mark(depth))
                return;
        up = above == NODE_NONE ? 0 : find_mark(a, above);
        mark = take_mark(a);
        if (mark == 0) {
                a->is_incomplete = true;
                return;
        }
        a->marks[mark - 1] = (struct ancestors_mark){.node = node, .up_1 = up};
        enter_bucket(a, mark - 1);
}

void ancestors_insert(struct ancestors *a, const struct tree *t, uint32_t node, uint32_t depth)
{
        if (ancestors_has_mark(depth))
                ancestors_insert_below(a, node, depth, climb(t, node, ANCESTORS_STEP));
}

/* Out of its bucket. Plus 1; 0: the node has none. */
static uint32_t leave_bucket(struct ancestors *a, uint32_t node)
{
        uint32_t *link = a->n_marks == 0 ? NULL : find_link(a, node), mark;

        if (!link || *link == 0)
                return 0;
        mark = *link;
        *link = a->marks[mark - 1].next_1;
        return mark;
}

void ancestors_remove(struct ancestors *a, uint32_t node, uint32_t depth)
{
        uint32_t mark = ancestors_has_mark(depth) ? leave_bucket(a, node) : 0;

        if (mark == 0)
                return;
        a->marks[mark - 1] = (struct ancestors_mark){.node = NODE_NONE, .next_1 = a->spare};
        a->spare = mark;
}

void ancestors_move(struct ancestors *a, uint32_t node, uint32_t to, uint32_t depth)
{
        uint32_t mark = ancestors_has_mark(depth) ? leave_bucket(a, node) : 0;

        if (mark == 0)
                return;
        a->marks[mark - 1].node = to;
        enter_bucket(a, mark - 1);
}

uint32_t ancestors_find(const struct ancestors *a, const struct tree *t, uint32_t node,
        uint32_t depth, uint32_t wanted)
{
        assert(wanted > 0 && wanted <= depth);

        while (depth > wanted) {
                uint32_t mark = ancestors_has_mark(depth) && depth - wanted >= ANCESTORS_STEP
                                        ? find_mark(a, node)
                                        : 0;

                if (mark == 0 || a->marks[mark - 1].up_1 == 0) {
                        node = tree_parent(t, node);
                        depth--;
                        continue;
                }
                while (depth - wanted >= ANCESTORS_STEP && a->marks[mark - 1].up_1 != 0) {
                        mark = a->marks[mark - 1].up_1;
                        depth -= ANCESTORS_STEP;
                }
                node = a->marks[mark - 1].node;
        }
        return node;
}

uint32_t ancestors_find_deepest(const struct ancestors *a, const struct tree *t, uint32_t node,
        uint32_t *depth, bool (*is)(const void *data, uint32_t node), const void *data)
{
        while (node != NODE_NONE && !is(data, node)) {
                uint32_t mark = ancestors_has_mark(*depth) ? find_mark(a, node) : 0, up;

                for (; mark != 0; mark = up) {
                        up = a->marks[mark - 1].up_1;
                        if (up == 0 || is(data, a->marks[up - 1].node))
                                break;
                        node = a->marks[up - 1].node;
                        *depth -= ANCESTORS_STEP;
                }
                node = tree_parent(t, node);
                --*depth;
        }
        return node;
}

/* ---- the checker ----------------------------------------------------------------------------- */

/* Checks the mark of a node that needs one. */
static const char *check_mark(const struct ancestors *a, const struct tree *t, uint32_t node,
        uint32_t depth, uint32_t *n_found)
{
        uint32_t mark = find_mark(a, node), up;

        if (mark == 0)
                return a->is_incomplete ? NULL : "a node has no mark of ancestors";
        ++*n_found;
        up = a->marks[mark - 1].up_1;
        if (up == 0)
                return depth == ANCESTORS_STEP || a->is_incomplete
                               ? NULL
                               : "a mark of ancestors knows none above";
        return up <= a->n_used && a->marks[up - 1].node == climb(t, node, ANCESTORS_STEP)
                       ? NULL
                       : "a mark of ancestors knows a wrong one above";
}

/* All nodes at or below this root. */
static const char *check_below(
        const struct ancestors *a, const struct tree *t, uint32_t root, uint32_t *n_found)
{
        uint32_t depth = 1;

        for (uint32_t node = root;;) {
                const char *why =
                        ancestors_has_mark(depth) ? check_mark(a, t, node, depth, n_found) : NULL;

                if (why)
                        return why;
                if (!tree_is_leaf(t, node)) {
                        node = tree_first_child(t, node);
                        depth++;
                        continue;
                }
                while (node != root && tree_next_sibling(t, node) == NODE_NONE) {
                        node = tree_parent(t, node);
                        depth--;
                }
                if (node == root)
                        return NULL;
                node = tree_next_sibling(t, node);
        }
}

const char *ancestors_check_node(
        const struct ancestors *a, const struct tree *t, uint32_t node, uint32_t depth)
{
        uint32_t n_found = 0;

        return ancestors_has_mark(depth) ? check_mark(a, t, node, depth, &n_found) : NULL;
}

const char *ancestors_check_mark(const struct ancestors *a, uint32_t mark,
        bool (*needs_mark)(const void *data, uint32_t node), const void *data)
{
        uint32_t node = a->marks[mark].node;

        if (node == NODE_NONE || (find_mark(a, node) == mark + 1 && needs_mark(data, node)))
                return NULL;
        return "a mark of ancestors is at a node that is to have none";
}

const char *ancestors_check(const struct ancestors *a, const struct tree *t)
{
        uint32_t n_found = 0, n_used = 0;
        const char *why = NULL;

        for (uint32_t node = 0; node < t->n_nodes && !why; node++)
                if (tree_has(t, node) && tree_parent(t, node) == NODE_NONE)
                        why = check_below(a, t, node, &n_found);
        for (uint32_t i = 0; i < a->n_used; i++)
                n_used += a->marks[i].node != NODE_NONE;
        if (!why && n_used != n_found)
                why = "a mark of ancestors is at a node that is to have none";
        return why;
}
