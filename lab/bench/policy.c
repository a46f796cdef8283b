/*
 * policy: cost of an eviction policy per event in a full cache of 1 M pages, beside an LRU that is
 * only a doubly linked list. Also the cost of a hit while another text is expected, and of a block
 * in the simulator. In this process, with the daemon's code.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/macros.h"
#include "policy/ancestors.h"
#include "policy/expect.h"
#include "policy/sim/sim.h"
#include "tests/bench/bench.h"
#include "tests/integration/pattern.h"

#define N_PAGES      (1u << 20) /* specification */
#define N_QUICK      (1u << 14)
#define DEPTH        32 /* pages of a text: 2,048 tokens of 64; not tuned */
#define BATCH        64 /* events of one sample */
#define SAMPLES      256
#define OTHERS       1024   /* texts served while requests run: 4 MiB of cache lines; not tuned */
#define MAX_TOUCH    150.0  /* ns a node walked; specification */
#define MAX_EVICT    1000.0 /* ns; specification */
#define MAX_RATIO    4.0    /* to the list; specification */
#define MAX_SIM      500.0  /* ns a block: 2 M a second; specification */
#define STEP_NSEC    NSEC_PER_MSEC /* between two events, as the policy sees it */
#define SIM_REQUESTS 20000

/* ---- the list -------------------------------------------------------------------------------- */

/* Node 0 is its head. */
struct list_cache {
        uint32_t *prev, *next;
};

static void list_out(struct list_cache *l, uint32_t n)
{
        l->next[l->prev[n]] = l->next[n];
        l->prev[l->next[n]] = l->prev[n];
}

static void list_in(struct list_cache *l, uint32_t n)
{
        l->prev[n] = 0;
        l->next[n] = l->next[0];
        l->prev[l->next[0]] = n;
        l->next[0] = n;
}

/* ---- the cache that both manage -------------------------------------------------------------- */

struct cache {
        const struct evict_ops *ops; /* NULL: the list */
        void *policy;
        struct tree tree;
        struct list_cache list;
        uint32_t
                *order; /* pages of texts: anywhere, as in a cache that has been full for a while */
        uint32_t n;
        uint64_t now, id;
};

static void cache_insert(struct cache *c, uint32_t page, uint32_t parent)
{
        struct evict_insert what = {
                .id = ++c->id * UINT64_C(0x9e3779b97f4a7c15), .tokens = 64, .depth = 1};

        tree_insert(&c->tree, page, parent);
        if (!c->ops) {
                list_in(&c->list, page + 1);
                return;
        }
        c->ops->insert(c->policy, page, &what, c->now);
        c->ops->idle(c->policy, page, c->now);
}

static void cache_touch(struct cache *c, uint32_t page)
{
        c->now += STEP_NSEC;
        if (c->ops) {
                c->ops->touch(c->policy, page, 0, c->now);
                return;
        }
        for (uint32_t n = page; n != NODE_NONE; n = tree_parent(&c->tree, n)) {
                list_out(&c->list, n + 1);
                list_in(&c->list, n + 1);
        }
}

/* Evicts the victim; a page that begins a text takes its place. */
static int cache_replace(struct cache *c)
{
        uint32_t page;

        c->now += STEP_NSEC;
        if (c->ops) {
                page = c->ops->victim(c->policy, 0, EVICT_DROP, c->now);
                if (page == NODE_NONE)
                        return -ENOENT;
                c->ops->remove(c->policy, page, EVICT_PRESSURE);
        } else {
                page = c->list.prev[0] - 1;
                /* Pages are touched from the end on, so a leaf is older than its parent. */
                if (!tree_is_leaf(&c->tree, page))
                        page = tree_leaf_below(&c->tree, page);
                list_out(&c->list, page + 1);
        }
        tree_remove(&c->tree, page);
        cache_insert(c, page, NODE_NONE);
        return 0;
}

static void cache_close(struct cache *c)
{
        if (c->policy)
                c->ops->free(c->policy);
        tree_deinit(&c->tree);
        free(c->list.prev);
        free(c->list.next);
        free(c->order);
}

static void shuffle(uint32_t *pages, uint32_t n)
{
        uint64_t random = 3;

        for (uint32_t i = 0; i < n; i++) {
                uint32_t k = (uint32_t)(pattern_next(&random) % (i + 1));

                pages[i] = pages[k];
                pages[k] = i;
        }
}

static int cache_open(struct cache *c, const struct evict_ops *ops, uint32_t n)
{
        struct evict_params params = {.tree = &c->tree, .page_tokens = 64};
        int r;

        *c = (struct cache){.ops = ops, .n = n, .now = NSEC_PER_SEC};
        tree_init(&c->tree);
        c->list.prev = calloc(n + 1, sizeof(uint32_t));
        c->list.next = calloc(n + 1, sizeof(uint32_t));
        c->order = calloc(n, sizeof(uint32_t));
        r = c->list.prev && c->list.next && c->order ? tree_reserve(&c->tree, n) : -ENOMEM;
        if (r == 0 && ops)
                r = ops->new (&params, &c->policy);
        if (r == 0 && ops)
                r = ops->reserve(c->policy, n);
        if (c->order)
                shuffle(c->order, n);
        for (uint32_t i = 0; r == 0 && i < n; i++) {
                c->now += STEP_NSEC;
                cache_insert(c, c->order[i], i % DEPTH == 0 ? NODE_NONE : c->order[i - 1]);
        }
        return r;
}

/* ---- events ---------------------------------------------------------------------------------- */

enum event { TOUCH, FIND, END, REPLACE, N_EVENTS };

/* The touch of a request, and its end. */
static void cache_find(struct cache *c, uint32_t page, uint64_t request)
{
        c->now += STEP_NSEC;
        if (c->ops)
                c->ops->touch(c->policy, page, request, c->now);
}

static void cache_end(struct cache *c, uint64_t request)
{
        c->now += STEP_NSEC;
        if (c->ops)
                c->ops->request_end(c->policy, request, c->now);
}

/* The last page of some text. */
static uint32_t some_text(const struct cache *c, uint64_t *random)
{
        return c->order[pattern_next(random) % (c->n / DEPTH) * DEPTH + DEPTH - 1];
}

/* Runs as many requests as a sample has events, and times one of each one's two events. Others are
 * served between, so that the pages aren't in the processor's caches. */
static double sample_requests(
        struct cache *c, enum event e, const uint32_t pages[BATCH], uint64_t *random)
{
        uint64_t start = clock_now_nsec(), found, ends;

        for (unsigned i = 0; i < BATCH; i++)
                cache_find(c, pages[i], c->id + i + 1);
        found = clock_now_nsec();
        for (unsigned i = 0; i < OTHERS; i++)
                cache_touch(c, some_text(c, random));
        ends = clock_now_nsec();
        for (unsigned i = 0; i < BATCH; i++)
                cache_end(c, c->id + i + 1);
        c->id += BATCH;
        return (double)(e == FIND ? found - start : clock_now_nsec() - ends);
}

/* One sample: nanoseconds a node, or an eviction. Housekeeping isn't an event's. */
static int sample(struct cache *c, enum event e, uint64_t *random, double *ret_nsec)
{
        uint32_t pages[BATCH];
        uint64_t start;
        int r = 0;

        for (unsigned i = 0; i < BATCH; i++)
                pages[i] = some_text(c, random);
        start = clock_now_nsec();
        for (unsigned i = 0; r == 0 && i < BATCH && (e == TOUCH || e == REPLACE); i++) {
                if (e == TOUCH)
                        cache_touch(c, pages[i]);
                else
                        r = cache_replace(c);
        }
        *ret_nsec = e == TOUCH || e == REPLACE ? (double)(clock_now_nsec() - start)
                                               : sample_requests(c, e, pages, random);
        *ret_nsec /= e == TOUCH || e == END ? BATCH * DEPTH : BATCH;
        if (c->ops && c->ops->work)
                c->ops->work(c->policy, c->now);
        return r;
}

struct costs {
        struct series own[N_EVENTS], list[N_EVENTS];
};

/* Policy and list by turns. */
static int run_round(struct costs *x, const struct evict_ops *ops, uint32_t n)
{
        struct cache own, list;
        uint64_t random[2] = {1, 1};
        double nsec;
        int r = cache_open(&own, ops, n), q = cache_open(&list, NULL, n);

        r = r < 0 ? r : q;
        for (enum event e = 0; r == 0 && e < N_EVENTS; e++) {
                for (unsigned i = 0; r == 0 && i < SAMPLES; i++) {
                        r = sample(&own, e, &random[0], &nsec);
                        series_add(&x->own[e], nsec);
                        if (r == 0)
                                r = sample(&list, e, &random[1], &nsec);
                        series_add(&x->list[e], nsec);
                }
                series_close_round(&x->own[e]);
                series_close_round(&x->list[e]);
        }
        cache_close(&own);
        cache_close(&list);
        return r;
}

static int measure_policy(struct bench_run *run, const struct evict_ops *ops)
{
        static const char *const names[] = {
                "touch, a node", "touch of a request", "end of a request, a node", "eviction"};
        static const double bounds[] = {MAX_TOUCH, MAX_EVICT, MAX_TOUCH, MAX_EVICT};
        struct costs x = {0};
        int r = 0;

        for (enum event e = 0; r == 0 && e < N_EVENTS; e++) {
                r = series_init(&x.own[e], SAMPLES, run->rounds);
                if (r == 0)
                        r = series_init(&x.list[e], SAMPLES, run->rounds);
        }
        for (unsigned i = 0; r == 0 && i < run->rounds; i++)
                r = run_round(&x, ops, run->quick ? N_QUICK : N_PAGES);
        for (enum event e = 0; e < N_EVENTS; e++) {
                if (r == 0) {
                        struct bench_result *result =
                                bench_add(run, "ns", "%s: %s", ops->name, names[e]);

                        result->max_value = bounds[e];
                        if (e == TOUCH || e == REPLACE) {
                                series_report(result, &x.own[e], &x.list[e], "linked list");
                                result->max_ratio = MAX_RATIO;
                        } else {
                                series_report(result, &x.own[e], NULL, NULL);
                        }
                }
                series_deinit(&x.own[e]);
                series_deinit(&x.list[e]);
        }
        return r < 0 ? bench_fail(ops->name, r) : 0;
}

/* ---- the simulator --------------------------------------------------------------------------- */

struct traffic {
        struct sim_trace trace;
        struct sim_request *requests;
        uint32_t *blocks, *parents;
};

/*
 * Every other request begins a text of DEPTH blocks; the others ask for one of the last thousand.
 */
static int make_traffic(struct traffic *t, uint32_t n_requests)
{
        uint64_t random = 7;
        uint32_t n_texts = 0;

        t->requests = calloc(n_requests, sizeof(*t->requests));
        t->blocks = calloc((size_t)n_requests * DEPTH, sizeof(*t->blocks));
        t->parents = calloc((size_t)n_requests * DEPTH, sizeof(*t->parents));
        if (!t->requests || !t->blocks || !t->parents)
                return -ENOMEM;
        for (uint32_t i = 0; i < n_requests; i++) {
                uint32_t back = MIN(n_texts, 1000u);
                uint32_t text = i % 2 && back > 0
                                        ? n_texts - 1 - (uint32_t)(pattern_next(&random) % back)
                                        : n_texts++;

                t->requests[i] = (struct sim_request){.time_nsec = i * NSEC_PER_SEC / 10,
                        .first = (uint64_t)i * DEPTH,
                        .n_blocks = DEPTH,
                        .input_tokens = DEPTH * 64};
                for (uint32_t k = 0; k < DEPTH; k++) {
                        t->blocks[i * DEPTH + k] = text * DEPTH + k;
                        t->parents[text * DEPTH + k] = k ? text * DEPTH + k - 1 : NODE_NONE;
                }
        }
        t->trace = (struct sim_trace){.requests = t->requests,
                .blocks = t->blocks,
                .parents = t->parents,
                .n_blocks = (uint64_t)n_requests * DEPTH,
                .n_requests = n_requests,
                .n_unique = n_texts * DEPTH,
                .n_tenants = 1,
                .block_tokens = 64};
        return 0;
}

static void free_traffic(struct traffic *t)
{
        free(t->requests);
        free(t->blocks);
        free(t->parents);
}

static int simulate(const struct traffic *t, const struct evict_ops *ops, struct series *nsec)
{
        struct sim_options options = {
                .policy = ops, .capacity_pages = t->trace.n_unique / 20, .tenant = SIM_ALL_TENANTS};
        struct sim *s;
        uint64_t start;
        int r = sim_new(&t->trace, &options, &s);

        if (r < 0)
                return r;
        start = clock_now_nsec();
        sim_run(s, UINT32_MAX);
        series_add(nsec, (double)(clock_now_nsec() - start) / (double)t->trace.n_blocks);
        series_close_round(nsec);
        sim_free(s);
        return 0;
}

static int measure_simulator(struct bench_run *run)
{
        struct traffic t = {0};
        int r = make_traffic(&t, run->quick ? SIM_REQUESTS / 20 : SIM_REQUESTS);

        for (const struct evict_ops *const *p = evict_policies; r == 0 && *p; p++) {
                struct series nsec = {0};

                r = series_init(&nsec, 1, run->rounds);
                for (unsigned i = 0; r == 0 && i < run->rounds; i++)
                        r = simulate(&t, *p, &nsec);
                if (r == 0) {
                        struct bench_result *result =
                                bench_add(run, "ns", "simulator, %s: a block", (*p)->name);

                        series_report(result, &nsec, NULL, NULL);
                        result->max_value = MAX_SIM;
                }
                series_deinit(&nsec);
        }
        free_traffic(&t);
        return r < 0 ? bench_fail("simulator", r) : 0;
}

/* ---- hits while another text is expected ------------------------------------------------------
 */

/* Texts of the same length that share nothing, in pages anywhere; the first of them is expected. */
struct expecting {
        struct tree tree;
        struct ancestors ancestors;
        void *lru;
        struct expect *by_halves, *by_walk;
        struct expect_counters counters;
        uint32_t *order;
        uint32_t n, n_pages; /* of all, and of a text */
};

static void expecting_close(struct expecting *x)
{
        expect_free(x->by_halves);
        expect_free(x->by_walk);
        if (x->lru)
                evict_lru.free(x->lru);
        ancestors_deinit(&x->ancestors);
        tree_deinit(&x->tree);
        free(x->order);
}

static int expecting_open(struct expecting *x, uint32_t n, uint32_t n_pages)
{
        struct evict_params params = {.tree = &x->tree, .page_tokens = 64};
        const uint64_t all[TREE_TIERS] = {UINT32_MAX};
        int r;

        *x = (struct expecting){.n = n, .n_pages = n_pages};
        tree_init(&x->tree);
        x->order = calloc(n, sizeof(*x->order));
        r = x->order ? tree_reserve(&x->tree, n) : -ENOMEM;
        if (r == 0)
                r = evict_lru.new(&params, &x->lru);
        if (r == 0)
                r = evict_lru.reserve(x->lru, n);
        if (r < 0)
                return r;
        shuffle(x->order, n);
        for (uint32_t i = 0; i < n; i++) {
                tree_insert(&x->tree, x->order[i], i % n_pages == 0 ? NODE_NONE : x->order[i - 1]);
                ancestors_insert(&x->ancestors, &x->tree, x->order[i], i % n_pages + 1);
        }
        x->by_halves = expect_new(&evict_lru, x->lru, &x->tree, &x->ancestors, n, &x->counters);
        x->by_walk = expect_new(&evict_lru, x->lru, &x->tree, NULL, n, &x->counters);
        if (!x->by_halves || !x->by_walk)
                return -ENOMEM;
        expect_add(x->by_halves, x->order[n_pages - 1], n_pages, UINT64_MAX, all, 1);
        expect_add(x->by_walk, x->order[n_pages - 1], n_pages, UINT64_MAX, all, 1);
        return 0;
}

/* Nanoseconds a hit of texts that aren't expected. */
static double sample_hits(struct expecting *x, struct expect *e, uint64_t *random)
{
        uint32_t n_texts = x->n / x->n_pages, ends[BATCH];
        uint64_t start;

        for (unsigned i = 0; i < BATCH; i++)
                ends[i] =
                        (1 + (uint32_t)(pattern_next(random) % (n_texts - 1)) + 1) * x->n_pages - 1;
        start = clock_now_nsec();
        for (unsigned i = 0; i < BATCH; i++)
                (void)expect_touched(e, x->order[ends[i]], x->n_pages);
        return (double)(clock_now_nsec() - start) / BATCH;
}

static int measure_length(struct bench_run *run, uint32_t n_pages, uint32_t n)
{
        struct series by_halves = {0}, by_walk = {0};
        struct expecting x;
        uint64_t random[2] = {1, 2}; /* other texts, or the second would find them in the caches */
        int r = expecting_open(&x, n, n_pages);

        if (r == 0)
                r = series_init(&by_halves, SAMPLES, run->rounds);
        if (r == 0)
                r = series_init(&by_walk, SAMPLES, run->rounds);
        for (unsigned round = 0; r == 0 && round < run->rounds; round++) {
                for (unsigned i = 0; i < SAMPLES / 8; i++) {
                        series_add(&by_halves, sample_hits(&x, x.by_halves, &random[0]));
                        series_add(&by_walk, sample_hits(&x, x.by_walk, &random[1]));
                }
                series_close_round(&by_halves);
                series_close_round(&by_walk);
        }
        if (r == 0)
                series_report(
                        bench_add(run, "ns", "another is expected: a hit of %u pages", n_pages),
                        &by_halves, &by_walk, "walk up the text");
        series_deinit(&by_halves);
        series_deinit(&by_walk);
        expecting_close(&x);
        return r;
}

static int measure_expecting(struct bench_run *run)
{
        static const uint32_t lengths[] = {DEPTH, 128, 2048, EVICT_WALK_PAGES};
        uint32_t n = run->quick ? N_QUICK : N_PAGES;
        int r = 0;

        for (size_t i = 0; r == 0 && i < ARRAY_SIZE(lengths) && lengths[i] <= n / 4; i++)
                r = measure_length(run, lengths[i], n);
        return r < 0 ? bench_fail("hits while another text is expected", r) : 0;
}

static int run_policy(struct bench_run *run)
{
        int r = 0;

        for (const struct evict_ops *const *p = evict_policies; r == 0 && *p; p++)
                r = measure_policy(run, *p);
        if (r == 0)
                r = measure_expecting(run);
        return r < 0 ? r : measure_simulator(run);
}

const struct bench bench_policy = {
        "policy", "what an eviction policy costs per event, beside a linked list", 9, run_policy};
