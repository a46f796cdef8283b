/* Expected texts (policy/expect.h), with the daemon's policies and one of the simulator's. */
#include <string.h>

#include "policy/expect.h"
#include "policy/sim/policies.h"
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"

#define SECOND UINT64_C(1000000000)

/* Nodes 0..N - 1 are of the device, N..2 * N - 1 of the tier below. */
#define N 400

struct cache {
        const struct evict_ops *ops;
        struct tree tree;
        struct ancestors ancestors;
        void *policy;
        struct expect *expect;
        struct expect_counters counters;
        uint64_t now;
};

static const struct evict_ops *const all_ops[] = {&evict_lru, &evict_pgi, &evict_s3fifo};

static void cache_init(struct cache *c, const struct evict_ops *ops)
{
        *c = (struct cache){.ops = ops, .now = SECOND};
        tree_init(&c->tree);
        tree_set_tiers(&c->tree, (uint32_t[]){0, N}, 2);
        assert_int_equal(tree_reserve(&c->tree, 2 * N), 0);
        assert_int_equal(
                ops->new (&(struct evict_params){.tree = &c->tree, .page_tokens = 16}, &c->policy),
                0);
        assert_int_equal(ops->reserve(c->policy, 2 * N), 0);
        c->expect = expect_new(ops, c->policy, &c->tree, &c->ancestors, 2 * N, &c->counters);
        assert_non_null(c->expect);
}

static void cache_deinit(struct cache *c)
{
        expect_free(c->expect);
        c->ops->free(c->policy);
        ancestors_deinit(&c->ancestors);
        tree_deinit(&c->tree);
}

#define SCENE(fn, ...) TEST_ON(fn, struct cache, c, cache_init, cache_deinit, ##__VA_ARGS__)

static uint32_t depth_of(const struct cache *c, uint32_t node)
{
        uint32_t n = 0;

        for (; node != NODE_NONE; n++)
                node = tree_parent(&c->tree, node);
        return n;
}

static void check(const struct cache *c)
{
        assert_null(expect_verify(c->expect));
        assert_null(tree_check(&c->tree));
        assert_null(c->ops->check(c->policy));
}

static void insert(struct cache *c, uint32_t node, uint32_t parent, uint32_t depth)
{
        tree_insert(&c->tree, node, parent);
        ancestors_insert(&c->ancestors, &c->tree, node, depth_of(c, node));
        c->ops->insert(c->policy, node,
                &(struct evict_insert){.id = node + 1, .tokens = 16, .depth = depth}, c->now);
        c->ops->idle(c->policy, node, c->now);
}

/* Nodes first..first + n - 1, each continuing the one before it. */
static void insert_text(struct cache *c, uint32_t first, uint32_t n, uint32_t parent)
{
        for (uint32_t i = 0; i < n; i++)
                insert(c, first + i, i > 0 ? first + i - 1 : parent, i + 1);
        c->now += SECOND;
}

/* A share that is as large as `pages` pages of each tier. */
static uint32_t expect_until(struct cache *c, uint32_t node, uint64_t until, uint32_t pages)
{
        uint64_t n_pages[TREE_TIERS] = {
                (uint64_t)pages * EXPECT_SHARE, (uint64_t)pages * EXPECT_SHARE};
        uint32_t n_walked = expect_add(c->expect, node, depth_of(c, node), until, n_pages, c->now);

        check(c);
        return n_walked;
}

static void expect_text(struct cache *c, uint32_t node, uint32_t pages)
{
        (void)expect_until(c, node, c->now + 30 * SECOND, pages);
}

static uint32_t next_victim(struct cache *c, uint32_t tier, enum evict_how how)
{
        expect_prune(c->expect, c->now);
        check(c);
        return c->ops->victim(c->policy, tier, how, c->now);
}

static void drop(struct cache *c, uint32_t node)
{
        expect_leaves(c->expect, node);
        c->ops->remove(c->policy, node, EVICT_PRESSURE);
        ancestors_remove(&c->ancestors, node, depth_of(c, node));
        tree_remove(&c->tree, node);
        check(c);
}

static void move(struct cache *c, uint32_t node, uint32_t to)
{
        ancestors_move(&c->ancestors, node, to, depth_of(c, node));
        tree_move(&c->tree, node, to);
        c->ops->move(c->policy, node, to);
        expect_moved(c->expect, node, to);
        check(c);
}

/* The deepest expectation on the way up, by a walk; EXPECT_MOST: none. */
static uint32_t walk_to_expected(const struct cache *c, uint32_t node)
{
        for (; node != NODE_NONE; node = tree_parent(&c->tree, node))
                if (c->expect->marks[node].entry_1 > 0)
                        return c->expect->marks[node].entry_1 - 1U;
        return EXPECT_MOST;
}

/* Ends the expectation that a walk finds, and no other. */
static void touch(struct cache *c, uint32_t node)
{
        uint32_t i = walk_to_expected(c, node);
        uint64_t n_fulfilled = c->counters.fulfilled;
        uint32_t n_requests = i < EXPECT_MOST ? c->expect->entries[i].n_requests : 0;

        c->ops->touch(c->policy, node, 0, c->now);
        (void)expect_touched(c->expect, node, depth_of(c, node));
        assert_int_equal(c->counters.fulfilled - n_fulfilled, i < EXPECT_MOST);
        if (i < EXPECT_MOST)
                assert_int_equal(c->expect->entries[i].n_requests, n_requests - 1);
        check(c);
}

/* How many pages go until none does that isn't expected. */
static uint32_t drop_unexpected(struct cache *c)
{
        uint32_t n = 0, victim;

        while ((victim = next_victim(c, 0, EVICT_DROP)) != NODE_NONE) {
                drop(c, victim);
                n++;
        }
        return n;
}

static bool has_text(const struct cache *c, uint32_t first, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++)
                if (!tree_has(&c->tree, first + i))
                        return false;
        return true;
}

/* A reader keeps its page: the next one yields, the last first, and none is asked twice. */
SCENE(test_yields_nothing_that_is_read, &evict_pgi)
{
        insert_text(c, 0, 1, NODE_NONE);
        insert_text(c, 1, 1, NODE_NONE);
        expect_text(c, 0, 100);
        expect_text(c, 1, 100);
        c->ops->hold(c->policy, 1);
        assert_true(expect_yield(c->expect, 0, EVICT_DROP));
        assert_int_equal(next_victim(c, 0, EVICT_DROP), NODE_NONE);
        assert_true(expect_yield(c->expect, 0, EVICT_DROP));
        assert_int_equal(next_victim(c, 0, EVICT_DROP), 0);
        assert_false(expect_yield(c->expect, 0, EVICT_DROP));
        c->ops->idle(c->policy, 1, c->now);
        expect_text(c, 0, 100); /* said again, it stands again */
        expect_text(c, 1, 100);
        assert_int_equal(next_victim(c, 0, EVICT_DROP), NODE_NONE);
}

TEST(test_expires)
{
        for (size_t i = 0; i < ARRAY_SIZE(all_ops); i++) {
                struct cache c;

                cache_init(&c, all_ops[i]);
                insert_text(&c, 0, 4, NODE_NONE);
                insert_text(&c, 10, 4, NODE_NONE);
                (void)expect_until(&c, 3, c.now + 5 * SECOND, 100);
                (void)expect_until(&c, 13, c.now + 9 * SECOND, 100);
                (void)expect_until(&c, 3, c.now + 7 * SECOND, 100); /* two requests */
                c.now += 5 * SECOND;
                assert_int_equal(drop_unexpected(&c), 0);
                c.now += 2 * SECOND;
                assert_int_equal(drop_unexpected(&c), 4);
                assert_int_equal(c.counters.expired, 2);
                assert_true(has_text(&c, 10, 4));
                c.now += 2 * SECOND;
                assert_int_equal(drop_unexpected(&c), 4);
                assert_int_equal(c.counters.expired, 3);
                assert_int_equal(expect_count_pages(c.expect), 0);
                cache_deinit(&c);
        }
}

/* By a touch of the text, or of what continues it; each request counts. */
SCENE(test_is_fulfilled, &evict_lru)
{
        insert_text(c, 0, 4, NODE_NONE);
        insert_text(c, 10, 4, 3);
        insert_text(c, 20, 4, 1);
        expect_text(c, 3, 100);
        expect_text(c, 3, 100);
        expect_text(c, 1, 100);
        assert_int_equal(expect_count_pages(c->expect), 4);
        touch(c, 0); /* less than what is expected */
        assert_int_equal(c->counters.fulfilled, 0);
        touch(c, 13);
        assert_int_equal(c->counters.fulfilled, 1);
        touch(c, 23); /* of the two that are on its way the deeper one, at page 1 */
        assert_int_equal(c->counters.fulfilled, 2);
        assert_int_equal(expect_count_pages(c->expect), 4);
        touch(c, 3);
        assert_int_equal(c->counters.fulfilled, 3);
        assert_int_equal(expect_count_pages(c->expect), 0);
        touch(c, 3);
        assert_int_equal(c->counters.fulfilled, 3);
        assert_int_equal(drop_unexpected(c), 12);
}

/* Beyond the share the text that was said last loses pages from its end; one alone can't have more
 * either. */
SCENE(test_share, &evict_pgi)
{
        for (uint32_t i = 0; i < 4; i++)
                insert_text(c, 10 * i, 8, NODE_NONE);
        expect_text(c, 7, 16);
        expect_text(c, 17, 16);
        assert_int_equal(expect_count_pages(c->expect), 16);
        expect_text(c, 23, 18);
        assert_int_equal(expect_count_pages(c->expect), 18);
        assert_int_equal(drop_unexpected(c), 14);
        assert_true(has_text(c, 0, 8) && has_text(c, 10, 8) && has_text(c, 20, 2));
        expect_text(c, 7, 5);
        assert_int_equal(expect_count_pages(c->expect), 5);
        assert_int_equal(drop_unexpected(c), 13);
        assert_true(has_text(c, 0, 5));
        assert_int_equal(c->counters.dropped, 2);
        expect_text(c, 4, 0);
        assert_int_equal(expect_count_pages(c->expect), 0);
        assert_int_equal(drop_unexpected(c), 5);
}

/* One that was said before others, of which one has come, never comes: it gives up what is too
 * much, and its place. */
SCENE(test_overdue, &evict_pgi)
{
        for (uint32_t i = 0; i < 3; i++)
                insert_text(c, 10 * i, 8, NODE_NONE);
        expect_text(c, 7, 16);
        expect_text(c, 17, 16);
        touch(c, 17);
        expect_text(c, 27, 12);
        assert_int_equal(expect_count_pages(c->expect), 12);
        assert_int_equal(drop_unexpected(c), 12);
        assert_true(has_text(c, 0, 4) && has_text(c, 20, 8));
        for (uint32_t i = 0; i < EXPECT_MOST - 2; i++) {
                insert(c, 50 + i, NODE_NONE, 1);
                expect_text(c, 50 + i, N);
        }
        assert_int_equal(c->counters.dropped, 0);
        insert(c, 40, NODE_NONE, 1);
        expect_text(c, 40, N);
        assert_int_equal(c->counters.dropped, 1);
        assert_int_equal(drop_unexpected(c), 4);
        assert_true(tree_has(&c->tree, 40));
}

/* More texts than there can be: they are told in vain. One that is there counts as before. */
SCENE(test_most, &evict_lru)
{
        for (uint32_t i = 0; i < EXPECT_MOST + 5; i++) {
                insert(c, i, NODE_NONE, 1);
                expect_text(c, i, N);
        }
        assert_int_equal(expect_count_pages(c->expect), EXPECT_MOST);
        assert_int_equal(c->counters.dropped, 5);
        expect_text(c, 7, N);
        assert_int_equal(c->counters.dropped, 5);
        assert_int_equal(drop_unexpected(c), 5);
        assert_true(has_text(c, 0, EXPECT_MOST));
}

/* In each tier it is kept where it lies, also after it went there or came from there. */
TEST(test_tiers)
{
        for (size_t i = 0; i < ARRAY_SIZE(all_ops); i++) {
                struct cache c;

                cache_init(&c, all_ops[i]);
                insert_text(&c, 0, 2, NODE_NONE);
                insert_text(&c, 10, 1, NODE_NONE);
                expect_text(&c, 1, 100);
                assert_int_equal(next_victim(&c, 0, EVICT_DEMOTE), 10);
                move(&c, 10, N + 10);
                assert_int_equal(next_victim(&c, 0, EVICT_DEMOTE), NODE_NONE);
                assert_true(expect_yield(c.expect, 0, EVICT_DEMOTE));
                assert_int_equal(next_victim(&c, 0, EVICT_DEMOTE), 1);
                move(&c, 1, N + 1);
                assert_int_equal(c.expect->n_pages[0], 1);
                assert_int_equal(c.expect->n_pages[1], 1);
                /* Page 0 is a tip on the device, and no end of an expected text. */
                assert_int_equal(next_victim(&c, 0, EVICT_DEMOTE), 0);
                assert_int_equal(next_victim(&c, 1, EVICT_DROP), N + 10);
                drop(&c, N + 10);
                assert_int_equal(next_victim(&c, 1, EVICT_DROP), NODE_NONE);
                move(&c, N + 1, 2);
                move(&c, 2, 3); /* within the tier */
                assert_int_equal(next_victim(&c, 0, EVICT_DEMOTE), NODE_NONE);
                touch(&c, 3);
                assert_int_equal(next_victim(&c, 0, EVICT_DROP), 3);
                cache_deinit(&c);
        }
}

/* ---- all of it in any order ------------------------------------------------------------------ */

/* Long texts that branch, and a few of which more begin others than are looked for one by one. */
TEST(test_deep_texts)
{
        random_start(__func__);
        for (unsigned round = 0; round < 10; round++) {
                uint32_t n_expected = 1 + random_below(2 * EXPECT_PREFIXES);
                struct cache c;

                cache_init(&c, &evict_lru);
                for (uint32_t i = 0; i < N; i++) /* one in 40 pages branches off */
                        insert(&c, i,
                                i == 0 ? NODE_NONE
                                       : (random_below(40) > 0 ? i - 1 : random_below(i)),
                                1);
                for (unsigned k = 0; k < 60; k++) {
                        for (uint32_t i = 0; i < n_expected; i++)
                                expect_text(&c, random_below(N), N);
                        for (uint32_t i = 0; i <= n_expected; i++)
                                touch(&c, random_below(N));
                }
                assert_true(c.counters.fulfilled > 0);
                cache_deinit(&c);
        }
}

static uint32_t random_node(const struct cache *c)
{
        for (unsigned i = 0; i < 50; i++) {
                uint32_t node = random_below(2 * N);

                if (tree_has(&c->tree, node))
                        return node;
        }
        return NODE_NONE;
}

static uint32_t random_unused(const struct cache *c, uint32_t tier)
{
        for (;;) {
                uint32_t node = tier * N + random_below(N);

                if (!tree_has(&c->tree, node))
                        return node;
        }
}

static uint32_t find_victim(struct cache *c, uint32_t tier, enum evict_how how)
{
        uint32_t victim;

        while ((victim = next_victim(c, tier, how)) == NODE_NONE)
                if (!expect_yield(c->expect, tier, how))
                        return NODE_NONE;
        return victim;
}

/* True if the node's parent is on the device. */
static bool may_come_up(const struct cache *c, uint32_t node)
{
        uint32_t parent = tree_parent(&c->tree, node);

        return parent == NODE_NONE || tree_tier(&c->tree, parent) == 0;
}

static void do_something(struct cache *c, uint32_t *n_cached)
{
        uint32_t node = random_node(c), tier = random_below(2), victim;

        c->now += random_below(2) * SECOND;
        switch (random_below(8)) {
        case 0:
        case 1:
        case 2:
                if (*n_cached < N / 4) {
                        insert(c, random_unused(c, 0), node, 1);
                        (*n_cached)++;
                }
                break;
        case 3:
                if (node != NODE_NONE)
                        (void)expect_until(
                                c, node, c->now + random_below(40) * SECOND, random_below(30));
                break;
        case 4:
                if (node != NODE_NONE)
                        touch(c, node);
                break;
        case 5:
                victim = find_victim(c, tier, EVICT_DROP);
                if (victim != NODE_NONE) {
                        drop(c, victim);
                        (*n_cached)--;
                }
                break;
        case 6:
                victim = find_victim(c, 0, EVICT_DEMOTE);
                if (victim != NODE_NONE)
                        move(c, victim, random_unused(c, 1));
                break;
        case 7:
                if (node != NODE_NONE)
                        move(c, node,
                                random_unused(
                                        c, may_come_up(c, node) ? 0 : tree_tier(&c->tree, node)));
                break;
        }
        check(c);
}

/* Nothing is held: in the end all of it can go. */
TEST(test_any_order)
{
        for (size_t i = 0; i < ARRAY_SIZE(all_ops); i++) {
                uint32_t n_cached = 0, victim;
                struct cache c;

                cache_init(&c, all_ops[i]);
                for (unsigned step = 0; step < 4000; step++)
                        do_something(&c, &n_cached);
                while (n_cached > 0) {
                        victim = find_victim(&c, 0, EVICT_DROP);
                        if (victim == NODE_NONE)
                                victim = find_victim(&c, 1, EVICT_DROP);
                        assert_int_not_equal(victim, NODE_NONE);
                        drop(&c, victim);
                        n_cached--;
                }
                assert_int_equal(expect_count_pages(c.expect), 0);
                assert_int_equal(c.counters.received,
                        c.counters.fulfilled + c.counters.expired + c.counters.dropped);
                cache_deinit(&c);
        }
}

int main(void)
{
        random_start("test_expect");
        return test_run_all(NULL, NULL);
}
