/*
 * FIFO, LRU, LFU and SIEVE against caches that are plainly written: arrays of blocks, searched from
 * end to end, no heaps and no lists. Both run the same random trace, and each block inserted or
 * evicted is compared, in order.
 */
#include <string.h>

#include "policy/sim/policies.h"
#include "tests/unit/random-trace.h"
#include "tests/unit/test-support.h"

#define MAX_EVENTS 65536

/* Insertions and evictions. The n-th block here is the n-th id of the other list. */
struct event {
        bool is_insert;
        uint64_t name;
};

struct events {
        struct event list[MAX_EVENTS];
        uint32_t n;
};

static struct random_trace random_trace;
static struct events expected, seen;

static void note(struct events *e, bool is_insert, uint64_t name)
{
        assert_true(e->n < MAX_EVENTS);
        e->list[e->n++] = (struct event){is_insert, name};
}

struct naive {
        const struct sim_trace *trace;
        bool cached[RANDOM_TRACE_UNIQUE], held[RANDOM_TRACE_UNIQUE], visited[RANDOM_TRACE_UNIQUE];
        uint64_t inserted[RANDOM_TRACE_UNIQUE]; /* when */
        uint64_t used[RANDOM_TRACE_UNIQUE];     /* when last, deepest of a request first */
        uint64_t uses[RANDOM_TRACE_UNIQUE];
        /* Blocks in the order in which their first request ended, deepest first. */
        uint32_t order[RANDOM_TRACE_UNIQUE], n_order, hand;
        uint64_t clock, n_cached, hits;
};

static bool is_leaf(const struct naive *c, uint32_t block)
{
        for (uint32_t b = 0; b < c->trace->n_unique; b++)
                if (c->cached[b] && c->trace->parents[b] == block)
                        return false;
        return true;
}

static bool may_go(const struct naive *c, uint32_t block)
{
        return c->cached[block] && !c->held[block] && is_leaf(c, block);
}

static uint32_t naive_lru(struct naive *c)
{
        uint32_t found = NODE_NONE;

        for (uint32_t b = 0; b < c->trace->n_unique; b++)
                if (may_go(c, b) && (found == NODE_NONE || c->used[b] < c->used[found]))
                        found = b;
        return found;
}

static uint32_t naive_lfu(struct naive *c)
{
        uint32_t found = NODE_NONE;

        for (uint32_t b = 0; b < c->trace->n_unique; b++)
                if (may_go(c, b) &&
                        (found == NODE_NONE || c->uses[b] < c->uses[found] ||
                                (c->uses[b] == c->uses[found] && c->used[b] < c->used[found])))
                        found = b;
        return found;
}

/* Returns the leaf below the oldest, following the newest child at each step. */
static uint32_t naive_fifo(struct naive *c)
{
        uint32_t at = NODE_NONE, next;

        for (uint32_t i = 0; i < c->n_order && at == NODE_NONE; i++)
                if (!c->held[c->order[i]])
                        at = c->order[i];
        while (at != NODE_NONE && !is_leaf(c, at)) {
                next = NODE_NONE;
                for (uint32_t b = 0; b < c->trace->n_unique; b++)
                        if (c->cached[b] && c->trace->parents[b] == at &&
                                (next == NODE_NONE || c->inserted[b] > c->inserted[next]))
                                next = b;
                at = next;
        }
        return at;
}

static uint32_t naive_sieve(struct naive *c)
{
        for (uint32_t steps = 0; steps < 2 * c->n_order + 2; steps++) {
                uint32_t at = c->order[c->hand];

                if (c->n_order > 0 && may_go(c, at) && !c->visited[at])
                        return at;
                if (c->n_order > 0 && may_go(c, at))
                        c->visited[at] = false;
                c->hand = c->hand + 1 < c->n_order ? c->hand + 1 : 0;
        }
        return NODE_NONE;
}

static void naive_evict(struct naive *c, uint32_t block)
{
        uint32_t i = 0;

        while (c->order[i] != block)
                i++;
        memmove(&c->order[i], &c->order[i + 1], (--c->n_order - i) * sizeof(*c->order));
        if (c->hand > i)
                c->hand--;
        if (c->hand == c->n_order)
                c->hand = 0;
        c->cached[block] = false;
        c->n_cached--;
        note(&expected, false, block);
}

static void naive_insert(struct naive *c, uint32_t block)
{
        c->cached[block] = c->held[block] = true;
        c->visited[block] = false;
        c->inserted[block] = ++c->clock;
        c->uses[block] = 1;
        c->n_cached++;
        note(&expected, true, block);
}

static void naive_request(struct naive *c, const uint32_t *path, uint32_t n, uint32_t capacity,
        uint32_t (*victim)(struct naive *c))
{
        uint32_t hits = 0, n_cached;

        while (hits < n && c->cached[path[hits]])
                c->held[path[hits++]] = true;
        for (uint32_t i = 0; i < hits; i++) {
                c->visited[path[i]] = true;
                c->uses[path[i]]++;
        }
        for (n_cached = hits; n_cached < n; n_cached++) {
                uint32_t goes = c->n_cached < capacity ? NODE_NONE : victim(c);

                if (c->n_cached == capacity && goes == NODE_NONE)
                        break;
                if (goes != NODE_NONE)
                        naive_evict(c, goes);
                naive_insert(c, path[n_cached]);
        }
        for (uint32_t i = n_cached; i-- > 0;) {
                c->held[path[i]] = false;
                c->used[path[i]] = ++c->clock;
                if (i >= hits)
                        c->order[c->n_order++] = path[i];
        }
        c->hits += hits;
}

/* The policy, overheard. */
static const struct evict_ops *overheard;
static uint64_t ids[RANDOM_TRACE_UNIQUE + 1]; /* of nodes */

static void overheard_insert(
        void *policy, uint32_t node, const struct evict_insert *what, uint64_t now_nsec)
{
        assert_true(node < ARRAY_SIZE(ids));
        ids[node] = what->id;
        note(&seen, true, what->id);
        overheard->insert(policy, node, what, now_nsec);
}

static void overheard_remove(void *policy, uint32_t node, enum evict_reason why)
{
        note(&seen, false, ids[node]);
        overheard->remove(policy, node, why);
}

/* Maps blocks to ids in order of first use, and checks the map both ways. */
static void compare(const char *name)
{
        static uint64_t id_of[RANDOM_TRACE_UNIQUE];

        memset(id_of, 0, sizeof(id_of));
        for (uint32_t i = 0; i < MAX(expected.n, seen.n); i++) {
                const struct event *e = &expected.list[i], *s = &seen.list[i];

                if (i >= expected.n || i >= seen.n || e->is_insert != s->is_insert)
                        fail_msg("%s: event %u is another", name, i);
                if (e->is_insert && id_of[e->name] == 0)
                        id_of[e->name] = s->name;
                if (id_of[e->name] != s->name)
                        fail_msg("%s: event %u is of another block", name, i);
        }
}

static uint64_t simulated_hits(uint32_t capacity)
{
        struct evict_ops ops = *overheard;
        struct sim_options options = {
                .policy = &ops, .capacity_pages = capacity, .tenant = SIM_ALL_TENANTS};
        struct sim_result result;
        struct sim *s = NULL;

        ops.insert = overheard_insert;
        ops.remove = overheard_remove;
        assert_int_equal(sim_new(&random_trace.trace, &options, &s), 0);
        assert_int_equal(sim_run(s, UINT32_MAX), 0);
        sim_result(s, &result);
        sim_free(s);
        return result.hit_blocks;
}

static uint64_t naive_hits(uint32_t capacity, uint32_t (*victim)(struct naive *c))
{
        static struct naive naive;
        const struct sim_trace *t = &random_trace.trace;

        naive = (struct naive){.trace = t};
        for (uint32_t i = 0; i < t->n_requests; i++)
                naive_request(&naive, &t->blocks[t->requests[i].first], t->requests[i].n_blocks,
                        capacity, victim);
        return naive.hits;
}

TEST(test_against_plain_caches)
{
        static const struct {
                const struct evict_ops *ops;
                uint32_t (*victim)(struct naive *c);
        } pairs[] = {
                {&evict_fifo, naive_fifo},
                {&evict_lru, naive_lru},
                {&evict_lfu, naive_lfu},
                {&evict_sieve, naive_sieve},
        };
        uint64_t hits = 0, simulated;

        random_start(__func__);
        for (int round = 0; round < 40; round++) {
                uint32_t capacity = 1 + random_below(60);

                random_trace_make(&random_trace, 300, 10, 200);
                for (unsigned i = 0; i < ARRAY_SIZE(pairs); i++) {
                        expected.n = seen.n = 0;
                        overheard = pairs[i].ops;
                        hits = naive_hits(capacity, pairs[i].victim);
                        simulated = simulated_hits(capacity);
                        compare(overheard->name);
                        assert_int_equal(simulated, hits);
                }
        }
        assert_true(hits > 0);
}
