#include <errno.h>
#include <string.h>

#include "policy/sim/policies.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/random-trace.h"
#include "tests/unit/test-support.h"

static struct random_trace random_trace;

/* Three texts: 0 1 2, 0 1 3, 4; the last block of each request is partial. */
static const uint32_t few_blocks[] = {0, 1, 2, 0, 1, 3, 4, 0, 1, 2};
static const uint32_t few_parents[] = {NODE_NONE, 0, 1, 1, NODE_NONE};
static const struct sim_request few_requests[] = {
        {.time_nsec = 5, .first = 0, .n_blocks = 3, .input_tokens = 40},
        {.time_nsec = 6, .first = 3, .n_blocks = 3, .input_tokens = 33, .tenant = 1},
        {.time_nsec = 7, .first = 6, .n_blocks = 1, .input_tokens = 16, .hint = EVICT_HINT_DONE},
        {.time_nsec = 9, .first = 7, .n_blocks = 3, .input_tokens = 40, .hint = EVICT_HINT_DONE},
};
static const struct sim_trace few = {
        .requests = few_requests,
        .blocks = few_blocks,
        .parents = few_parents,
        .n_blocks = ARRAY_SIZE(few_blocks),
        .n_requests = ARRAY_SIZE(few_requests),
        .n_unique = ARRAY_SIZE(few_parents),
        .n_tenants = 2,
        .block_tokens = 16,
};

static struct sim_options options_of(const struct evict_ops *policy, uint32_t capacity)
{
        return (struct sim_options){
                .policy = policy,
                .capacity_pages = capacity,
                .tenant = SIM_ALL_TENANTS,
                .may_bypass = policy == &evict_optimum,
        };
}

static struct sim *new_sim(const struct sim_trace *trace, const struct sim_options *options)
{
        struct sim *s = NULL;

        assert_int_equal(sim_new(trace, options, &s), 0);
        return s;
}

static struct sim_result run(const struct sim_trace *trace, const struct sim_options *options)
{
        struct sim *s = new_sim(trace, options);
        struct sim_result result;

        for (uint32_t left = trace->n_requests; left > 0;) {
                assert_int_equal(sim_run(s, 1), --left);
                assert_null(sim_check(s));
        }
        assert_int_equal(sim_run(s, 1), 0);
        sim_result(s, &result);
        sim_free(s);
        return result;
}

/* A policy that is LRU and writes down what it is told. */
static char spied[4096];

static KVL_PRINTF(1, 2) void note(const char *format, ...)
{
        size_t len = strlen(spied);
        va_list args;

        va_start(args, format);
        vsnprintf(spied + len, sizeof(spied) - len, format, args);
        va_end(args);
}

static void spy_insert(
        void *policy, uint32_t node, const struct evict_insert *what, uint64_t now_nsec)
{
        note("insert %u tokens %u request %d at %d%s\n", node, what->tokens, (int)what->request,
                (int)now_nsec, what->window_passed ? ", passed" : "");
        evict_lru.insert(policy, node, what, now_nsec);
}

static void spy_touch(void *policy, uint32_t node, uint64_t request, uint64_t now_nsec)
{
        note("touch %u request %d at %d\n", node, (int)request, (int)now_nsec);
        evict_lru.touch(policy, node, request, now_nsec);
}

static void spy_hint(
        void *policy, uint32_t node, enum evict_hint hint, uint64_t after_nsec, uint64_t now_nsec)
{
        static const char *const names[] = {"unknown", "continues", "done", "returns"};

        note("%s %u at %d", names[hint], node, (int)now_nsec);
        note(after_nsec > 0 ? " after %ju\n" : "\n", (uintmax_t)after_nsec);
}

static void spy_hold(void *policy, uint32_t node)
{
        note("hold %u\n", node);
        evict_lru.hold(policy, node);
}

static void spy_idle(void *policy, uint32_t node, uint64_t now_nsec)
{
        note("idle %u at %d\n", node, (int)now_nsec);
        evict_lru.idle(policy, node, now_nsec);
}

static void spy_remove(void *policy, uint32_t node, enum evict_reason why)
{
        assert_int_equal(why, EVICT_PRESSURE);
        note("remove %u\n", node);
        evict_lru.remove(policy, node, why);
}

static void spy_request_end(void *policy, uint64_t request, uint64_t now_nsec)
{
        note("end %d at %d\n", (int)request, (int)now_nsec);
}

/* There is more to do at 6, once. */
static bool spy_work(void *policy, uint64_t now_nsec)
{
        note("work at %d\n", (int)now_nsec);
        return now_nsec == 6 && !strstr(spied, "work at 6\nwork");
}

static int spy_load(void *policy, const void *buf, size_t size)
{
        note("load %.*s\n", (int)size, (const char *)buf);
        return memcmp(buf, "good", 4) == 0 ? 0 : -EINVAL;
}

static struct evict_ops make_spy(void)
{
        struct evict_ops spy = evict_lru;

        spied[0] = '\0';
        spy.insert = spy_insert;
        spy.touch = spy_touch;
        spy.hint = spy_hint;
        spy.hold = spy_hold;
        spy.idle = spy_idle;
        spy.remove = spy_remove;
        spy.request_end = spy_request_end;
        spy.work = spy_work;
        spy.load = spy_load;
        return spy;
}

TEST(test_events_as_the_daemon_gives_them)
{
        struct evict_ops spy = make_spy();
        struct sim_options options = options_of(&spy, 3);

        options.learnt = "good";
        options.learnt_bytes = 4;
        run(&few, &options);
        assert_string_equal(spied, "load good\n"
                                   "insert 0 tokens 16 request 1 at 5\n"
                                   "insert 1 tokens 16 request 1 at 5\n"
                                   "insert 2 tokens 8 request 1 at 5\n"
                                   "end 1 at 5\n"
                                   "idle 2 at 5\nidle 1 at 5\nidle 0 at 5\n"
                                   "work at 5\n"
                                   "hold 0\nhold 1\n"
                                   "touch 1 request 2 at 6\n"
                                   "remove 2\n"
                                   "insert 2 tokens 1 request 2 at 6\n"
                                   "end 2 at 6\n"
                                   "idle 2 at 6\nidle 1 at 6\nidle 0 at 6\n"
                                   "work at 6\nwork at 6\n"
                                   "remove 2\n"
                                   "insert 2 tokens 16 request 3 at 7\n"
                                   "done 2 at 7\n"
                                   "end 3 at 7\n"
                                   "idle 2 at 7\n"
                                   "work at 7\n"
                                   "hold 0\nhold 1\n"
                                   "touch 1 request 4 at 9\n"
                                   "remove 2\n"
                                   "insert 2 tokens 8 request 4 at 9\n"
                                   "done 2 at 9\n"
                                   "end 4 at 9\n"
                                   "idle 2 at 9\nidle 1 at 9\nidle 0 at 9\n"
                                   "work at 9\n");
}

/* The hints that a policy is told, of which so many are right. */
static const char *hints_of(const struct sim_trace *trace, struct sim_hints hints)
{
        struct evict_ops spy = evict_lru;
        struct sim_options options = options_of(&spy, 3);

        spied[0] = '\0';
        spy.hint = spy_hint;
        options.hints = hints;
        run(trace, &options);
        return spied;
}

/* Requests 0 and 1 have whole blocks 0 and 1, which the next ones have, too. */
TEST(test_drawn_hints)
{
        assert_string_equal(hints_of(&few, (struct sim_hints){true, false, 100}),
                "continues 2 at 5\ncontinues 2 at 6\ndone 2 at 7\ndone 2 at 9\n");
        assert_string_equal(hints_of(&few, (struct sim_hints){true, true, 100}),
                "returns 2 at 5 after 1\nreturns 2 at 6 after 3\ndone 2 at 7\ndone 2 at 9\n");
        assert_string_equal(hints_of(&few, (struct sim_hints){true, false, 0}),
                "done 2 at 5\ndone 2 at 6\ncontinues 2 at 7\ncontinues 2 at 9\n");
        assert_non_null(strstr(hints_of(&few, (struct sim_hints){true, true, 0}),
                "done 2 at 6\nreturns 2 at 7 after "));
}

/* 100 texts that no other continues, of which 30 % are said to continue: 30, and 5 more or less in
 * one of three cases. */
TEST(test_drawn_hints_are_wrong_as_often_as_asked)
{
        struct sim_request requests[100];
        uint32_t blocks[100], parents[100];
        struct sim_trace trace = {requests, blocks, parents, 100, 100, 100, 1, 16};
        unsigned n = 0;

        for (uint32_t i = 0; i < trace.n_requests; i++) {
                requests[i] = (struct sim_request){.first = i, .n_blocks = 1, .input_tokens = 16};
                blocks[i] = i;
                parents[i] = NODE_NONE;
        }
        for (const char *at = hints_of(&trace, (struct sim_hints){true, false, 70});
                (at = strstr(at, "continues")); at++)
                n++;
        assert_in_range(n, 10, 50);
}

/* One group whose window has 16 tokens beside the one they attend from: the last block. */
static struct sim_options with_windows(const struct evict_ops *policy, uint32_t capacity)
{
        struct sim_options options = options_of(policy, capacity);

        options.windows = (struct sim_windows){.groups = 1, .tokens = 17, .told = true};
        return options;
}

/* In each block the window's page comes first. The second text leaves the first after block 1,
 * whose window it finds; the third has one block. */
TEST(test_events_of_windows)
{
        struct evict_ops spy = make_spy();
        struct sim_options options = with_windows(&spy, 10);
        struct sim_result r;

        spy.work = NULL;
        r = run(&few, &options);
        assert_string_equal(spied, "insert 0 tokens 16 request 1 at 5, passed\n"
                                   "insert 1 tokens 16 request 1 at 5\n"
                                   "insert 2 tokens 16 request 1 at 5\n"
                                   "insert 3 tokens 16 request 1 at 5\n"
                                   "idle 0 at 5\n"
                                   "insert 4 tokens 8 request 1 at 5\n"
                                   "insert 5 tokens 8 request 1 at 5\n"
                                   "idle 2 at 5\n"
                                   "end 1 at 5\n"
                                   "idle 4 at 5\n"
                                   "idle 5 at 5\nidle 3 at 5\nidle 1 at 5\n"
                                   "hold 1\nhold 3\n"
                                   "touch 3 request 2 at 6\n"
                                   "hold 2\n"
                                   "touch 2 request 2 at 6\n"
                                   "insert 6 tokens 1 request 2 at 6\n"
                                   "insert 7 tokens 1 request 2 at 6\n"
                                   "idle 2 at 6\n"
                                   "end 2 at 6\n"
                                   "idle 6 at 6\n"
                                   "idle 7 at 6\nidle 3 at 6\nidle 1 at 6\n"
                                   "insert 8 tokens 16 request 3 at 7\n"
                                   "insert 9 tokens 16 request 3 at 7\n"
                                   "done 9 at 7\n"
                                   "end 3 at 7\n"
                                   "idle 8 at 7\nidle 9 at 7\n"
                                   "hold 1\nhold 3\nhold 5\n"
                                   "touch 5 request 4 at 9\n"
                                   "hold 4\n"
                                   "touch 4 request 4 at 9\n"
                                   "done 5 at 9\n"
                                   "end 4 at 9\n"
                                   "idle 4 at 9\n"
                                   "idle 5 at 9\nidle 3 at 9\nidle 1 at 9\n");
        assert_int_equal(r.hit_blocks, 5);
}

/* A text of 4 blocks, another one, and the first again, with 12 pages; each text has 8. Without the
 * notice that a text's first two windows have passed, the policy keeps those, and not the first
 * text's last one. */
TEST(test_passed_windows_make_room)
{
        static const uint32_t blocks[] = {0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3};
        static const uint32_t parents[] = {NODE_NONE, 0, 1, 2, NODE_NONE, 4, 5, 6};
        static const struct sim_request requests[] = {
                {.first = 0, .n_blocks = 4, .input_tokens = 64},
                {.first = 4, .n_blocks = 4, .input_tokens = 64},
                {.first = 8, .n_blocks = 4, .input_tokens = 64},
        };
        const struct sim_trace trace = {requests, blocks, parents, ARRAY_SIZE(blocks),
                ARRAY_SIZE(requests), ARRAY_SIZE(parents), 1, 16};

        for (unsigned i = 0; i < 2; i++) {
                struct sim_options options = with_windows(i ? &evict_pgi : &evict_lru, 12);

                assert_int_equal(run(&trace, &options).hit_blocks, 4);
                options.windows.told = false;
                assert_int_equal(run(&trace, &options).hit_blocks, 0);
        }
}

/* Without want of room windows lose no hit; with it a hit is never longer than without windows. */
TEST(test_random_windows)
{
        random_start(__func__);
        for (int i = 0; i < 200; i++) {
                const struct evict_ops *policy = random_below(2) ? &evict_lru : &evict_pgi;
                uint32_t groups = 1 + random_below(3), n_pages;
                struct sim_options options = with_windows(policy, 1 + random_below(60));
                struct sim_result plain, r;

                random_trace_make(&random_trace, 60, 12, 60);
                n_pages = random_trace.trace.n_unique * (1 + groups);
                options.windows = (struct sim_windows){groups, 1 + random_below(80), i % 2};
                (void)run(&random_trace.trace, &options);
                options.capacity_pages = n_pages + random_below(2);
                r = run(&random_trace.trace, &options);
                options.windows.groups = 0;
                plain = run(&random_trace.trace, &options);
                assert_int_equal(r.hit_tokens, plain.hit_tokens);
                assert_int_equal(r.inserts, n_pages);
                assert_int_equal(r.evictions, 0);
        }
}

TEST(test_refused)
{
        struct evict_ops spy = make_spy();
        struct sim_options options = options_of(&evict_optimum, 2);
        struct sim *s = NULL;

        options.may_bypass = false;
        assert_int_equal(sim_new(&few, &options, &s), -EINVAL);
        options = options_of(&evict_lru, 0);
        assert_int_equal(sim_new(&few, &options, &s), -EINVAL);
        options = with_windows(&evict_lru, 1);
        options.windows.tokens = 0;
        assert_int_equal(sim_new(&few, &options, &s), -EINVAL);
        options = with_windows(&evict_lru, 1);
        options.below_pages = 1;
        assert_int_equal(sim_new(&few, &options, &s), -EINVAL);
        options = with_windows(&evict_lru, 1);
        options.windows.groups = UINT32_MAX / few.n_unique;
        assert_int_equal(sim_new(&few, &options, &s), -EINVAL);
        /* LRU learns nothing; the spy wants something else. */
        options = options_of(&evict_lru, 1);
        options.learnt = "bad!";
        options.learnt_bytes = 4;
        assert_int_equal(sim_new(&few, &options, &s), -EINVAL);
        options.policy = &spy;
        assert_int_equal(sim_new(&few, &options, &s), -EINVAL);
        assert_null(s);
}

/* 3 pages and 2 below: 2 goes down for 3, 1 and 3 stay until 4 comes; all are found again. */
TEST(test_tier_below)
{
        struct sim_options options = options_of(&evict_lru, 3);
        struct sim_result r;

        options.below_pages = 2;
        r = run(&few, &options);
        assert_int_equal(r.hit_tokens, 32 + 40);
        assert_int_equal(r.below_tokens, 8);
        assert_int_equal(r.inserts, 5);
        assert_int_equal(r.evictions, 0);
        assert_int_equal(r.demotions, 1 + 1 + 1);
        assert_int_equal(r.promotions, 1);
        options.below_pages = 1;
        r = run(&few, &options);
        /* 2 is dropped for 3 to go down, and comes anew at 3's expense. */
        assert_int_equal(r.hit_tokens, 32 + 32);
        assert_int_equal(r.evictions, 1 + 1);
        options.policy = &evict_arc;
        assert_int_equal(sim_new(&few, &options, &(struct sim *){NULL}), -EINVAL);
}

/* Where a path fits the device, LRU over two tiers is LRU. */
TEST(test_two_tiers_of_lru_are_one)
{
        random_start(__func__);
        for (int i = 0; i < 30; i++) {
                uint32_t device = 12 + random_below(60), below = 1 + random_below(120);
                struct sim_options one = options_of(&evict_lru, device + below);
                struct sim_options two = options_of(&evict_lru, device), alone = two;
                struct sim_result r, all;

                random_trace_make(&random_trace, 200, 12, 400);
                two.below_pages = below;
                r = run(&random_trace.trace, &two);
                all = run(&random_trace.trace, &one);
                assert_int_equal(r.hit_tokens, all.hit_tokens);
                assert_int_equal(r.evictions, all.evictions);
                all = run(&random_trace.trace, &alone);
                assert_true(r.hit_tokens - r.below_tokens >= all.hit_tokens);
        }
}

/* Every policy: what sim_check() says after each request, and no more hits than the optimum. */
TEST(test_random_traces)
{
        random_start(__func__);
        for (int i = 0; i < 20; i++) {
                uint32_t capacity = 1 + random_below(200);
                struct sim_options optimum = options_of(&evict_optimum, capacity);
                struct sim_result best;

                random_trace_make(&random_trace, 200, 12, 400);
                best = run(&random_trace.trace, &optimum);
                for (const struct evict_ops *const *p = sim_policies; *p; p++) {
                        struct sim_options options = options_of(*p, capacity);
                        struct sim_result r = run(&random_trace.trace, &options);

                        assert_int_equal(r.requests, random_trace.trace.n_requests);
                        assert_true(r.inserts - r.evictions <= capacity);
                        assert_true(r.hit_blocks <= best.hit_blocks);
                        if (capacity >= random_trace.trace.n_unique)
                                assert_int_equal(r.inserts, random_trace.trace.n_unique);
                }
        }
}

static void expect_same_result(const struct sim_result *a, const struct sim_result *b)
{
        assert_int_equal(a->hit_tokens, b->hit_tokens);
        assert_int_equal(a->hit_blocks, b->hit_blocks);
        assert_int_equal(a->inserts, b->inserts);
        assert_int_equal(a->evictions, b->evictions);
        assert_int_equal(a->policy_bytes, b->policy_bytes);
}

/* A crossover that the policy isn't told measures, and changes nothing else; and policies that
 * don't go by costs ignore it. With one, the tree and the policy stay sound. */
TEST(test_costs)
{
        random_start(__func__);
        for (int i = 0; i < 20; i++) {
                uint32_t capacity = 1 + random_below(200);

                random_trace_make(&random_trace, 200, 12, 400);
                for (const struct evict_ops *const *p = sim_policies; *p; p++) {
                        struct sim_options options = options_of(*p, capacity);
                        struct sim_result plain = run(&random_trace.trace, &options), r;

                        assert_true(plain.hit_cost == (double)plain.hit_tokens);
                        assert_true(plain.input_cost == (double)plain.input_tokens);
                        options.crossover = 1 + random_below(1000);
                        r = run(&random_trace.trace, &options);
                        expect_same_result(&r, &plain);
                        assert_true(r.hit_cost >= plain.hit_cost && r.hit_cost <= r.input_cost);
                        options.goes_by_cost = true;
                        r = run(&random_trace.trace, &options);
                        if (!(*p)->goes_by_cost)
                                expect_same_result(&r, &plain);
                }
        }
}

/*
 * The optimum by trying everything: for each set of blocks that can be cached before a request, the
 * most hits so far. After a request any part of what was cached and what it brought may stay, if it
 * fits and has each block's parent.
 */
#define BRUTE_UNIQUE 9
#define N_SETS       (1u << BRUTE_UNIQUE)
#define UNREACHED    (-1)

static bool may_be_cached(const struct sim_trace *t, unsigned set, uint32_t capacity)
{
        for (uint32_t b = 0; b < t->n_unique; b++)
                if ((set >> b & 1) && t->parents[b] != NODE_NONE && !(set >> t->parents[b] & 1))
                        return false;
        return (uint32_t)__builtin_popcount(set) <= capacity;
}

static void try_request(const struct sim_trace *t, const struct sim_request *r, const bool *allowed,
        const int *before, int *after)
{
        const uint32_t *path = &t->blocks[r->first];

        for (unsigned set = 0; set < N_SETS; set++)
                after[set] = UNREACHED;
        for (unsigned set = 0; set < N_SETS; set++) {
                unsigned all = set;
                int hits = 0;

                if (before[set] == UNREACHED)
                        continue;
                while (hits < (int)r->n_blocks && (set >> path[hits] & 1))
                        hits++;
                for (uint32_t i = 0; i < r->n_blocks; i++)
                        all |= 1u << path[i];
                for (unsigned kept = all;; kept = (kept - 1) & all) {
                        if (allowed[kept])
                                after[kept] = MAX(after[kept], before[set] + hits);
                        if (kept == 0)
                                break;
                }
        }
}

static int most_hits(const struct sim_trace *t, uint32_t capacity)
{
        static int hits[2][N_SETS];
        static bool allowed[N_SETS];
        int most = 0;

        for (unsigned set = 0; set < N_SETS; set++) {
                allowed[set] = may_be_cached(t, set, capacity);
                hits[0][set] = set == 0 ? 0 : UNREACHED;
        }
        for (uint32_t i = 0; i < t->n_requests; i++)
                try_request(t, &t->requests[i], allowed, hits[i % 2], hits[1 - i % 2]);
        for (unsigned set = 0; set < N_SETS; set++)
                most = MAX(most, hits[t->n_requests % 2][set]);
        return most;
}

TEST(test_optimum_against_brute_force)
{
        random_start(__func__);
        for (int i = 0; i < 300; i++) {
                uint32_t capacity = 1 + random_below(5);
                struct sim_options options = options_of(&evict_optimum, capacity);

                random_trace_make(&random_trace, 14, 4, BRUTE_UNIQUE);
                assert_int_equal(run(&random_trace.trace, &options).hit_blocks,
                        most_hits(&random_trace.trace, capacity));
        }
}
