/* The simulator's requests that take time, against what is worked out by hand. */
#include <string.h>

#include "policy/sim/policies.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/random-trace.h"
#include "tests/unit/test-support.h"

#define SEC UINT64_C(1000000000)

static struct random_trace random_trace;

/* A block a second, an output token a second. */
static const struct sim_engine slow = {.prefill_tokens_per_sec = 16, .output_token_nsec = SEC};

/* Texts of blocks of 16 tokens: 0 1 2, and 3. */
static const uint32_t parents[] = {NODE_NONE, 0, 1, NODE_NONE};
static const uint32_t blocks[] = {0, 1, 2, 3};

static struct sim_request request_at(
        uint64_t sec, uint32_t first, uint32_t n_blocks, uint32_t output_tokens)
{
        return (struct sim_request){
                .time_nsec = sec * SEC,
                .first = first,
                .n_blocks = n_blocks,
                .input_tokens = n_blocks * 16,
                .output_tokens = output_tokens,
        };
}

static struct sim_trace trace_of(const struct sim_request *requests, uint32_t n)
{
        return (struct sim_trace){
                .requests = requests,
                .blocks = blocks,
                .parents = parents,
                .n_blocks = ARRAY_SIZE(blocks),
                .n_requests = n,
                .n_unique = ARRAY_SIZE(parents),
                .n_tenants = 1,
                .block_tokens = 16,
        };
}

static struct sim_options options_of(
        const struct evict_ops *policy, uint32_t capacity, const struct sim_engine *engine)
{
        return (struct sim_options){
                .policy = policy,
                .capacity_pages = capacity,
                .tenant = SIM_ALL_TENANTS,
                .engine = *engine,
        };
}

static struct sim_result run(const struct sim_trace *trace, const struct sim_options *options)
{
        struct sim_result result;
        struct sim *s = NULL;

        assert_int_equal(sim_new(trace, options, &s), 0);
        for (uint32_t left = trace->n_requests; left > 0;) {
                assert_int_equal(sim_run(s, 1), --left);
                assert_null(sim_check(s));
        }
        sim_result(s, &result);
        sim_free(s);
        return result;
}

static struct sim_result run_slow(const struct sim_request *requests, uint32_t n, uint32_t capacity)
{
        struct sim_options options = options_of(&evict_lru, capacity, &slow);
        struct sim_trace trace = trace_of(requests, n);

        return run(&trace, &options);
}

/* The first has computed its blocks after 2 s: the second comes before that and finds none of
 * them, and after its own 3 s the two are there already. The third finds all. */
TEST(test_found_once_computed)
{
        const struct sim_request r[] = {
                request_at(0, 0, 2, 0), request_at(1, 0, 3, 0), request_at(5, 0, 3, 0)};
        struct sim_result got = run_slow(r, 3, 5);

        assert_int_equal(got.hit_blocks, 3);
        assert_int_equal(got.inserts, 3);
        assert_int_equal(got.flight.duplicate_blocks, 2);
        assert_int_equal(got.flight.waited_requests, 0);
        assert_int_equal(got.flight.max_running, 2);
        assert_int_equal(got.evictions, 0);
        /* 2 pages for 2 s, 3 for 3 s; the third ends where it begins. Until 5 s there are 5. */
        assert_true(got.flight.held_page_seconds == 2 * 2 + 3 * 3);
        assert_true(got.flight.cached_page_seconds == 5 * 5);
}

/* Requests begin in their order: the third had room, and waits for the second. */
TEST(test_waits_in_order)
{
        const struct sim_request r[] = {
                request_at(0, 0, 2, 16), request_at(1, 0, 3, 16), request_at(3, 3, 1, 0)};
        struct sim_result got = run_slow(r, 3, 4);

        /* 18 s until the second begins, which finds two blocks by then; the third has room for
         * its page only once the second has ended, 1 + 16 s later. */
        assert_int_equal(got.flight.waited_requests, 2);
        assert_int_equal(got.flight.wait_nsec, (18 - 1) * SEC + (18 + 17 - 3) * SEC);
        assert_int_equal(got.hit_blocks, 2);
}

TEST(test_shared_pages_are_held_once)
{
        const struct sim_request r[] = {request_at(0, 0, 2, 16), request_at(3, 0, 3, 0)};
        struct sim_result got = run_slow(r, 2, 4);

        assert_int_equal(got.hit_blocks, 2);
        assert_int_equal(got.flight.waited_requests, 0);
        /* 3 pages for 18 s, and one more from 3 to 4 s. */
        assert_true(got.flight.held_page_seconds == 3 * 18 + 1);
}

/* One that is alone begins, and what doesn't fit isn't cached. */
TEST(test_text_longer_than_the_cache)
{
        const struct sim_request r[] = {request_at(0, 0, 3, 16), request_at(100, 0, 3, 16)};
        struct sim_result got = run_slow(r, 2, 2);

        assert_int_equal(got.flight.uncached_blocks, 2);
        assert_int_equal(got.hit_blocks, 2);
        assert_int_equal(got.flight.waited_requests, 0);
        assert_true(got.flight.held_page_seconds == 2 * (3 + 16) + 2 * (1 + 16));
}

/* 4 billion tokens of so many nanoseconds each are cut where times end; the next waits so long. */
static void check_endless(uint64_t output_token_nsec)
{
        const struct sim_request r[] = {request_at(0, 0, 1, UINT32_MAX), request_at(1, 3, 1, 1)};
        const struct sim_engine engine = {.output_token_nsec = output_token_nsec, .max_running = 1};
        struct sim_options options = options_of(&evict_pgi, 2, &engine);
        struct sim_trace trace = trace_of(r, 2);

        assert_int_equal(run(&trace, &options).flight.wait_nsec, SIM_TIME_MAX_NSEC - SEC);
}

TEST(test_endless_output)
{
        check_endless(2 * SEC);  /* more than the time there is */
        check_endless(60 * SEC); /* more than 64 bits */
}

/* Where nothing takes time it is the same as without. */
TEST(test_no_time_is_as_before)
{
        const struct sim_engine none = {0}, no_time = {.max_running = 2};

        for (unsigned round = 0; round < 30; round++) {
                struct sim_options before, after;
                struct sim_result a, b;
                uint32_t capacity;

                random_trace_make(&random_trace, 64, 12, 256);
                capacity = 12 + random_below(64);
                before = options_of(&evict_lru, capacity, &none);
                after = options_of(&evict_lru, capacity, &no_time);
                a = run(&random_trace.trace, &before);
                b = run(&random_trace.trace, &after);
                assert_int_equal(a.hit_tokens, b.hit_tokens);
                assert_int_equal(a.inserts, b.inserts);
                assert_int_equal(a.evictions, b.evictions);
                assert_int_equal(b.flight.waited_requests, 0);
                assert_true(b.flight.held_page_seconds == 0);
        }
}

static void run_random(const struct evict_ops *policy)
{
        struct sim_engine engine = {
                .prefill_tokens_per_sec = 1 + random_below(64),
                .output_token_nsec = random_below(2) * SEC / 4,
                .max_running = random_below(6),
        };
        struct sim_options options = options_of(policy, 1 + random_below(64), &engine);
        struct sim_result got;

        for (uint32_t i = 0; i < random_trace.trace.n_requests; i++)
                random_trace.requests[i].output_tokens = random_below(64);
        got = run(&random_trace.trace, &options);
        assert_true(got.flight.held_page_seconds <= got.flight.cached_page_seconds);
        if (engine.max_running > 0)
                assert_true(got.flight.max_running <= engine.max_running);
}

/* All invariants hold after each request of any trace (run()). */
TEST(test_random_traces)
{
        for (unsigned round = 0; round < 20; round++) {
                random_trace_make(&random_trace, 64, 12, 256);
                for (const struct evict_ops *const *p = sim_policies; *p; p++)
                        if (*p != &evict_optimum)
                                run_random(*p);
        }
}
