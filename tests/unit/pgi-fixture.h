/* A cache that PGI manages, and texts in it: lists of ids, of which each stands for all before it,
 * too.
 */
#ifndef KVL_TESTS_PGI_FIXTURE_H
#define KVL_TESTS_PGI_FIXTURE_H

#include <stdlib.h>

#include "policy/evict.h"
#include "policy/pgi.h"
#include "tests/unit/test-support.h"

#define N_NODES     4096
#define N_IDS       200000
#define PAGE_TOKENS 512
#define SECOND      UINT64_C(1000000000)

static const struct evict_ops *const ops = &evict_pgi;

struct cache {
        uint32_t n_sessions, first_session, last_id; /* run_sessions() */
        uint64_t used_at[N_NODES];
        struct tree tree;
        void *pgi;
        uint32_t *node_1; /* by id */
        uint32_t id_of[N_NODES];
        uint32_t free[N_NODES], n_free;
        uint64_t now, request;
};

static inline void cache_init_with(struct cache *c, uint32_t max_ghosts, uint32_t crossover)
{
        struct evict_params params = {.tree = &c->tree,
                .page_tokens = PAGE_TOKENS,
                .max_ghosts = max_ghosts,
                .crossover_tokens = crossover};

        *c = (struct cache){.now = 1000 * SECOND, .n_free = N_NODES};
        c->node_1 = calloc(N_IDS, sizeof(*c->node_1));
        assert_non_null(c->node_1);
        for (uint32_t i = 0; i < N_NODES; i++)
                c->free[i] = N_NODES - 1 - i;
        tree_init(&c->tree);
        assert_int_equal(tree_reserve(&c->tree, N_NODES), 0);
        assert_int_equal(ops->new (&params, &c->pgi), 0);
        assert_int_equal(ops->reserve(c->pgi, N_NODES), 0);
}

static inline void cache_init(struct cache *c, uint32_t max_ghosts)
{
        cache_init_with(c, max_ghosts, 0);
}

static inline void cache_deinit(struct cache *c)
{
        assert_null(ops->check(c->pgi));
        ops->free(c->pgi);
        tree_deinit(&c->tree);
        free(c->node_1);
}

static inline uint32_t node_of(const struct cache *c, uint32_t id)
{
        assert_true(c->node_1[id] > 0);
        return c->node_1[id] - 1;
}

static inline struct pgi_view look(const struct cache *c, uint32_t id)
{
        struct pgi_view view;

        pgi_look(c->pgi, node_of(c, id), &view);
        return view;
}

static inline void evict(struct cache *c, uint32_t node)
{
        assert_int_not_equal(node, NODE_NONE);
        ops->remove(c->pgi, node, EVICT_PRESSURE);
        tree_remove(&c->tree, node);
        c->node_1[c->id_of[node]] = 0;
        c->free[c->n_free++] = node;
}

static inline void evict_all(struct cache *c)
{
        while (c->n_free < N_NODES)
                evict(c, ops->victim(c->pgi, 0, EVICT_DROP, c->now));
        assert_int_equal(ops->victim(c->pgi, 0, EVICT_DROP, c->now), NODE_NONE);
        c->first_session = c->n_sessions;
}

static inline uint32_t depth_of(const struct cache *c, uint32_t node)
{
        return node == NODE_NONE ? 0 : depth_of(c, tree_parent(&c->tree, node)) + 1;
}

static inline void publish(struct cache *c, uint32_t id, uint32_t parent, uint32_t tokens)
{
        uint32_t node = c->free[--c->n_free];

        c->id_of[node] = id;
        c->node_1[id] = node + 1;
        tree_insert(&c->tree, node, parent);
        ops->insert(c->pgi, node,
                &(struct evict_insert){.id = id,
                        .tokens = tokens,
                        .depth = depth_of(c, parent) + 1,
                        .request = c->request},
                c->now);
}

/* Looks the text up, publishes what isn't cached, leaves the request running. The number of pages
 * found. The last page has tail_tokens. */
static inline uint32_t start(struct cache *c, const uint32_t *ids, uint32_t n, uint32_t tail_tokens)
{
        uint32_t n_hit = 0;

        c->request++;
        while (n_hit < n && c->node_1[ids[n_hit]])
                n_hit++;
        if (n_hit > 0)
                ops->touch(c->pgi, node_of(c, ids[n_hit - 1]), c->request, c->now);
        for (uint32_t i = n_hit; i < n; i++)
                publish(c, ids[i], i > 0 ? node_of(c, ids[i - 1]) : NODE_NONE,
                        i + 1 == n ? tail_tokens : PAGE_TOKENS);
        for (uint32_t i = n; i-- > n_hit;)
                ops->idle(c->pgi, node_of(c, ids[i]), c->now);
        for (uint32_t i = 0; i < n; i++)
                c->used_at[node_of(c, ids[i])] = c->now;
        return n_hit;
}

static inline void end(struct cache *c)
{
        ops->request_end(c->pgi, c->request, c->now);
        ops->work(c->pgi, c->now);
}

static inline uint32_t ask(struct cache *c, const uint32_t *ids, uint32_t n, uint32_t tail_tokens)
{
        uint32_t n_hit = start(c, ids, n, tail_tokens);

        end(c);
        return n_hit;
}

#define IDS(...) (const uint32_t[]){__VA_ARGS__}, ARRAY_SIZE(((const uint32_t[]){__VA_ARGS__}))

#define PGI_SCENE(fn, ...) TEST_ON(fn, struct cache, c, cache_init, cache_deinit, ##__VA_ARGS__)

#endif
