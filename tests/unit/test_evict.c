/*
 * Properties of every policy, with events as the daemon sends them. Clients overlap, die, and
 * release pages in any order, and allocations fail at any moment.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "policy/sim/policies.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/fresh-tree.h"
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"

#define N_NODES     64
#define N_REQUESTS  5
#define MAX_DEPTH   16
#define FANOUT      3 /* different continuations of a text */
#define PAGE_TOKENS 16

struct request {
        uint64_t id; /* 0: not running */
        uint32_t path[MAX_DEPTH];
        uint32_t depth;
};

struct world {
        const struct evict_ops *ops;
        void *policy;
        struct tree tree;
        uint32_t n_usable;
        uint32_t pins[N_NODES];
        bool is_watched[N_NODES]; /* held for a pin in a segment */
        bool is_locked[N_NODES];
        bool is_passed[N_NODES]; /* its window has passed, without a touch() since */
        bool is_continued[N_NODES];
        uint64_t ids[N_NODES];
        struct request requests[N_REQUESTS];
        uint64_t clock, last_request;
};

static uint64_t any_next_use(void *data, uint64_t id)
{
        return id % 5 == 0 ? UINT64_MAX : id % 1000;
}

static struct evict_params params_of(struct world *w)
{
        return (struct evict_params){
                .tree = &w->tree,
                .page_tokens = PAGE_TOKENS,
                .max_ghosts = 1 + random_below(100),
                .next_use = any_next_use,
        };
}

/* Tiers have the first third of the nodes, and so on, where there are three. */
static void world_init(struct world *w, const struct evict_ops *ops, uint32_t n_tiers)
{
        static const uint32_t first[] = {0, N_NODES / 3, N_NODES / 3 * 2};
        struct evict_params params;

        *w = (struct world){.ops = ops, .n_usable = 1, .last_request = 1};
        tree_init(&w->tree);
        tree_set_tiers(&w->tree, first, n_tiers);
        assert_int_equal(tree_reserve(&w->tree, 1), 0);
        params = params_of(w);
        assert_int_equal(ops->new (&params, &w->policy), 0);
        assert_int_equal(ops->reserve(w->policy, 1), 0);
}

static void world_deinit(struct world *w)
{
        w->ops->free(w->policy);
        tree_deinit(&w->tree);
}

static bool is_held(const struct world *w, uint32_t node)
{
        return w->pins[node] > 0 || w->is_watched[node];
}

static bool may_go(const struct world *w, uint32_t node, enum evict_how how)
{
        if (!tree_has(&w->tree, node) || is_held(w, node) || w->is_locked[node])
                return false;
        return how == EVICT_DROP ? tree_is_leaf(&w->tree, node) : tree_is_tip(&w->tree, node);
}

static void check_victim(const struct world *w, uint32_t tier, enum evict_how how)
{
        uint32_t n_may_go = 0, victim = w->ops->victim(w->policy, tier, how, w->clock);
        bool passed_may_go = false;

        for (uint32_t i = 0; i < w->n_usable; i++)
                if (tree_tier(&w->tree, i) == tier && may_go(w, i, how)) {
                        n_may_go++;
                        passed_may_go |= w->is_passed[i] && !w->is_continued[i];
                }
        if (victim == NODE_NONE ? n_may_go > 0
                                : !may_go(w, victim, how) || tree_tier(&w->tree, victim) != tier)
                fail_msg("%s: %u is the victim of %u in tier %u", w->ops->name, victim, n_may_go,
                        tier);
        if (passed_may_go && !w->is_passed[victim])
                fail_msg("%s: %u is the victim before a page whose window has passed", w->ops->name,
                        victim);
}

static void check(struct world *w)
{
        const char *wrong;

        for (uint32_t tier = 0; tier < w->tree.n_tiers; tier++) {
                check_victim(w, tier, EVICT_DROP);
                check_victim(w, tier, EVICT_DEMOTE);
        }
        wrong = w->ops->check(w->policy);
        if (wrong)
                fail_msg("%s: %s", w->ops->name, wrong);
        assert_null(tree_check(&w->tree));
}

static void drop(struct world *w, uint32_t node, enum evict_reason why)
{
        w->ops->remove(w->policy, node, why);
        tree_remove(&w->tree, node);
        w->pins[node] = 0;
        w->is_watched[node] = false;
        w->is_locked[node] = false;
        w->is_passed[node] = w->is_continued[node] = false;
}

static uint32_t any_tier(const struct world *w)
{
        return random_below(w->tree.n_tiers);
}

/* The text of the n-th continuation of a node. */
static uint64_t id_below(const struct world *w, uint32_t parent, uint32_t n)
{
        uint64_t above = parent == NODE_NONE ? 1 : w->ids[parent];

        return (above + n + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

static bool has_text(const struct world *w, uint64_t id)
{
        for (uint32_t i = 0; i < w->n_usable; i++)
                if (tree_has(&w->tree, i) && w->ids[i] == id)
                        return true;
        return false;
}

/* A page for a text that isn't cached, by eviction if need be; NODE_NONE: all are held. */
static uint32_t make_room(struct world *w)
{
        uint32_t victim, first = w->tree.n_tiers > 1 ? random_below(w->n_usable) : 0;

        for (uint32_t i = 0; i < w->n_usable; i++)
                if (!tree_has(&w->tree, (first + i) % w->n_usable))
                        return (first + i) % w->n_usable;
        victim = w->ops->victim(w->policy, any_tier(w), EVICT_DROP, w->clock);
        if (victim != NODE_NONE)
                drop(w, victim, EVICT_PRESSURE);
        return victim;
}

static void pin(struct world *w, struct request *r, uint32_t node)
{
        if (!is_held(w, node))
                w->ops->hold(w->policy, node);
        w->pins[node]++;
        r->path[r->depth++] = node;
}

static void unpin(struct world *w, struct request *r, uint32_t at)
{
        uint32_t node = r->path[at];

        memmove(&r->path[at], &r->path[at + 1], (--r->depth - at) * sizeof(*r->path));
        if (--w->pins[node] == 0 && !w->is_watched[node])
                w->ops->idle(w->policy, node, w->clock);
}

/* The page that a request continues: its last one, or one that it has pinned in a segment. */
static uint32_t end_of(const struct world *w, const struct request *r)
{
        uint32_t any = random_below(w->n_usable);

        if (random_below(8) == 0 && tree_has(&w->tree, any))
                return any;
        return r->depth > 0 ? r->path[r->depth - 1] : NODE_NONE;
}

/* One page. False: no room, that text is cached, or what it goes on from was evicted. */
static bool publish(struct world *w, struct request *r)
{
        uint32_t parent = end_of(w, r), node;
        uint64_t id = id_below(w, parent, random_below(FANOUT));
        struct evict_insert what = {
                .id = id,
                .tokens = 1 + random_below(PAGE_TOKENS),
                .depth = r->depth + 1,
                .request = random_below(8) == 0 ? 0 : r->id,
                .window_passed = evict_find(w->ops->name) && random_below(4) == 0,
        };

        if (r->depth == MAX_DEPTH || has_text(w, id))
                return false;
        node = make_room(w);
        if (node == NODE_NONE || (parent != NODE_NONE && !tree_has(&w->tree, parent)))
                return false;
        tree_insert(&w->tree, node, parent);
        w->ids[node] = id;
        w->pins[node] = 1;
        w->is_passed[node] = what.window_passed;
        if (parent != NODE_NONE)
                w->is_continued[parent] = true;
        w->ops->insert(w->policy, node, &what, w->clock);
        r->path[r->depth++] = node;
        return true;
}

static void touch(struct world *w, uint32_t node, uint64_t request)
{
        w->ops->touch(w->policy, node, request, w->clock);
        w->is_passed[node] = false;
}

/* Looks up the cached part of a text, which is pinned, or only touched (through shared memory). */
static void look_up(struct world *w, struct request *r)
{
        uint32_t node = random_below(w->n_usable), up[N_NODES], n = 0;
        bool says_so = random_below(4) > 0;

        if (!tree_has(&w->tree, node))
                return;
        if (random_below(3) == 0)
                touch(w, node, says_so ? r->id : 0);
        for (uint32_t at = node; at != NODE_NONE; at = tree_parent(&w->tree, at))
                up[n++] = at;
        while (random_below(8) > 0 && n > 0 && r->depth < MAX_DEPTH)
                pin(w, r, up[--n]);
        if (r->depth > 0)
                touch(w, r->path[r->depth - 1], says_so ? r->id : 0);
}

static void begin(struct world *w, struct request *r)
{
        r->id = w->last_request++;
        look_up(w, r);
        for (uint32_t more = random_below(6); more > 0 && publish(w, r); more--)
                ;
        if (r->depth > 0 && w->ops->hint)
                w->ops->hint(w->policy, r->path[r->depth - 1], random_below(EVICT_HINT_RETURNS + 1),
                        random_below(1000) * UINT64_C(1000000), w->clock);
}

static void end(struct world *w, struct request *r)
{
        bool in_order = random_below(4) > 0, dies = random_below(8) == 0;

        if (!dies && random_below(2))
                w->ops->request_end(w->policy, r->id, w->clock);
        while (r->depth > 0)
                unpin(w, r, in_order ? r->depth - 1 : random_below(r->depth));
        if (!dies)
                w->ops->request_end(w->policy, r->id, w->clock);
        r->id = 0;
}

/* Requests keep no node that isn't cached, or isn't theirs. */
static void forget_in_requests(struct world *w, uint32_t node, uint32_t to)
{
        for (struct request *r = w->requests; r < w->requests + N_REQUESTS; r++)
                for (uint32_t i = r->depth; i-- > 0;)
                        if (r->path[i] == node && to != NODE_NONE)
                                r->path[i] = to;
                        else if (r->path[i] == node)
                                memmove(&r->path[i], &r->path[i + 1],
                                        (--r->depth - i) * sizeof(*r->path));
}

static void invalidate(struct world *w, uint32_t top)
{
        for (uint32_t up = top, leaf = NODE_NONE; leaf != top;) {
                leaf = tree_leaf_below(&w->tree, up);
                up = tree_parent(&w->tree, leaf);
                forget_in_requests(w, leaf, NODE_NONE);
                drop(w, leaf, EVICT_INVALIDATE);
        }
}

/* The evictor finds the victim pinned in a segment; later it looks again. */
static void watch(struct world *w)
{
        uint32_t node = w->ops->victim(w->policy, any_tier(w), EVICT_DROP, w->clock);

        if (node == NODE_NONE)
                return;
        w->is_watched[node] = true;
        w->ops->hold(w->policy, node);
}

static void look_again(struct world *w)
{
        for (uint32_t i = 0; i < w->n_usable; i++) {
                if (!w->is_watched[i])
                        continue;
                w->is_watched[i] = false;
                if (!is_held(w, i))
                        w->ops->idle(w->policy, i, w->clock);
        }
}

static void move(struct world *w, uint32_t node, uint32_t to)
{
        bool stays = tree_tier(&w->tree, node) == tree_tier(&w->tree, to);

        tree_move(&w->tree, node, to);
        w->ops->move(w->policy, node, to);
        forget_in_requests(w, node, to);
        w->ids[to] = w->ids[node];
        w->pins[to] = w->pins[node];
        w->is_watched[to] = w->is_watched[node];
        w->is_locked[to] = w->is_locked[node] && stays;
        w->is_passed[to] = w->is_passed[node];
        w->is_continued[to] = w->is_continued[node];
        w->is_passed[node] = w->is_continued[node] = false;
        w->pins[node] = 0;
        w->is_watched[node] = false;
        w->is_locked[node] = false;
}

/* Any page; more often the next to go down: it does, or it doesn't. */
static void lock_or_unlock(struct world *w, uint32_t node)
{
        if (random_below(2))
                node = w->ops->victim(w->policy, any_tier(w), EVICT_DEMOTE, w->clock);
        if (node == NODE_NONE || !tree_has(&w->tree, node))
                return;
        (w->is_locked[node] ? w->ops->unlock : w->ops->lock)(w->policy, node);
        w->is_locked[node] = !w->is_locked[node];
}

static void reset(struct world *w)
{
        int r = w->ops->reset(w->policy);

        assert_int_equal(r, alloc_fail_happened() ? -ENOMEM : 0);
        alloc_fail_end();
        if (r < 0)
                return;
        assert_int_equal(fresh_tree(&w->tree), 0);
        memset(w->pins, 0, sizeof(w->pins));
        memset(w->is_watched, 0, sizeof(w->is_watched));
        memset(w->is_locked, 0, sizeof(w->is_locked));
        memset(w->is_passed, 0, sizeof(w->is_passed));
        memset(w->is_continued, 0, sizeof(w->is_continued));
        for (struct request *q = w->requests; q < w->requests + N_REQUESTS; q++)
                q->depth = 0;
}

static void grow(struct world *w)
{
        int r = w->ops->reserve(w->policy, w->n_usable + 1);

        assert_int_equal(r, alloc_fail_happened() ? -ENOMEM : 0);
        alloc_fail_end();
        assert_int_equal(tree_reserve(&w->tree, w->n_usable + 1), 0);
        w->n_usable += r == 0;
}

static void save_and_load(struct world *w)
{
        static char saved[1 << 20];
        size_t size;
        int r;

        if (!w->ops->save)
                return;
        size = w->ops->save(w->policy, saved, sizeof(saved));
        assert_in_range(size, 1, sizeof(saved));
        assert_int_equal(w->ops->save(w->policy, NULL, 0), size);
        r = w->ops->load(w->policy, saved, size);
        assert_int_equal(r, alloc_fail_happened() ? -ENOMEM : 0);
}

static void change_pages(struct world *w, uint32_t node)
{
        uint32_t to = random_below(w->n_usable);

        if (random_below(4) == 0 && w->n_usable < N_NODES)
                grow(w);
        else if (random_below(40) == 0)
                reset(w);
        else if (tree_has(&w->tree, node) && !tree_has(&w->tree, to))
                move(w, node, to);
        else if (w->ops->lock)
                lock_or_unlock(w, node);
        if (w->ops->value && tree_has(&w->tree, node))
                assert_true(w->ops->value(w->policy, node, w->clock) >= 0);
        if (w->ops->chance && tree_has(&w->tree, node)) {
                double soon = w->ops->chance(w->policy, node, 1000000000, w->clock);
                double later = w->ops->chance(w->policy, node, UINT64_MAX, w->clock);

                assert_true(soon >= 0 && soon <= later && later <= 1);
                if (w->is_passed[node])
                        assert_true(later == 0 && w->ops->value(w->policy, node, w->clock) == 0);
        }
}

static void step(struct world *w)
{
        uint32_t what = random_below(100), node = random_below(w->n_usable);
        struct request *r = &w->requests[random_below(N_REQUESTS)];

        w->clock += random_below(4) * UINT64_C(700000000);
        if (what < 60)
                r->id ? end(w, r) : begin(w, r);
        else if (what < 70)
                publish(w, r);
        else if (what < 78)
                watch(w);
        else if (what < 82)
                look_again(w);
        else if (what < 84 && tree_has(&w->tree, node))
                invalidate(w, node);
        else if (what < 95)
                change_pages(w, node);
        else if (what < 97)
                save_and_load(w);
        else if (w->ops->work)
                w->ops->work(w->policy, w->clock);
}

static void drive(const struct evict_ops *ops, uint32_t n_tiers, bool memory_fails)
{
        struct world w;

        world_init(&w, ops, n_tiers);
        for (int i = 0; i < 20000 / (int)n_tiers; i++) {
                if (memory_fails && random_below(3) == 0)
                        alloc_fail_at(1 + random_below(3));
                step(&w);
                alloc_fail_end();
                check(&w);
        }
        world_deinit(&w);
}

TEST(test_driven_as_by_the_daemon)
{
        random_start(__func__);
        for (const struct evict_ops *const *p = sim_policies; *p; p++)
                drive(*p, 1, false);
}

TEST(test_over_three_tiers)
{
        random_start(__func__);
        for (const struct evict_ops *const *p = sim_policies; *p; p++)
                if ((*p)->lock)
                        drive(*p, 3, false);
}

TEST(test_while_memory_fails)
{
        random_start(__func__);
        for (const struct evict_ops *const *p = sim_policies; *p; p++)
                drive(*p, 1, true);
        for (const struct evict_ops *const *p = sim_policies; *p; p++)
                if ((*p)->lock)
                        drive(*p, 2, true);
}

TEST(test_created_or_not)
{
        struct world w = {0};

        tree_init(&w.tree);
        for (const struct evict_ops *const *p = sim_policies; *p; p++) {
                struct evict_params params = params_of(&w);

                alloc_fail_each(n)
                {
                        void *policy = NULL;
                        int r = (*p)->new (&params, &policy);

                        assert_int_equal(r, alloc_fail_happened() ? -ENOMEM : 0);
                        assert_true((r == 0) == (policy != NULL));
                        (*p)->free(policy);
                }
                assert_true(!(*p)->lock == !(*p)->unlock);
                assert_true((*p)->save == NULL ? (*p)->load == NULL : (*p)->load != NULL);
        }
}

/* None goes by order in the tree alone: with all else equal, an unused page leaves before used. */
TEST(test_unused_goes_before_used)
{
        for (const struct evict_ops *const *p = sim_policies; *p; p++) {
                struct world w;

                if (*p == &evict_fifo || *p == &evict_optimum)
                        continue;
                world_init(&w, *p, 1);
                assert_int_equal(tree_reserve(&w.tree, 2), 0);
                assert_int_equal((*p)->reserve(w.policy, 2), 0);
                w.n_usable = 2;
                for (uint32_t i = 0; i < 2; i++) {
                        struct request r = {.id = i + 1};

                        assert_int_equal(make_room(&w), i);
                        tree_insert(&w.tree, i, NODE_NONE);
                        w.ids[i] = id_below(&w, NODE_NONE, i);
                        (*p)->insert(w.policy, i,
                                &(struct evict_insert){w.ids[i], PAGE_TOKENS, 1, r.id}, w.clock);
                        (*p)->request_end(w.policy, r.id, w.clock);
                        (*p)->idle(w.policy, i, w.clock);
                        w.clock += 1000000000;
                }
                for (uint64_t use = 3; use < 6; use++) {
                        (*p)->hold(w.policy, 0);
                        (*p)->touch(w.policy, 0, use, w.clock);
                        (*p)->request_end(w.policy, use, w.clock);
                        (*p)->idle(w.policy, 0, w.clock);
                        w.clock += 1000000000;
                }
                if ((*p)->victim(w.policy, 0, EVICT_DROP, w.clock) != 1)
                        fail_msg("%s takes what was used", (*p)->name);
                world_deinit(&w);
        }
}
