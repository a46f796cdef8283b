/*
 * PGI against plain LRU on traffic of other kinds than conversations: an API whose prompts have
 * Zipf's popularity, one whose popularity drifts, system prompts with conversations below,
 * conversations among bulk jobs that are read once, and a loop. It may lose 0.2 points of token
 * hits nowhere.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "policy/sim/policies.h"
#include "policy/sim/sim.h"
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"

#define BLOCK_TOKENS 512
#define MAX_REQUESTS 40000
#define MAX_BLOCKS   1500000
#define MAX_UNIQUE   300000
#define SECOND       1e9

static const uint32_t percents[] = {1, 2, 5, 10, 20, 50, 100};

/* As it is made: not in order of time. */
static struct sim_request requests[MAX_REQUESTS];
static uint32_t blocks[MAX_BLOCKS], parents[MAX_UNIQUE];
static struct sim_trace trace;

static double uniform(void)
{
        return (double)(random_u64() >> 11) / 9007199254740992.0;
}

static double exponential(double mean)
{
        return -mean * log(1 - uniform());
}

static void trace_begin(uint64_t seed)
{
        random_state = seed;
        trace = (struct sim_trace){
                .requests = requests,
                .blocks = blocks,
                .parents = parents,
                .n_tenants = 1,
                .block_tokens = BLOCK_TOKENS,
        };
}

/* `n` blocks below `parent`; the last one. */
static uint32_t more_text(uint32_t parent, uint32_t n)
{
        for (; n > 0; n--) {
                assert_true(trace.n_unique < MAX_UNIQUE);
                parents[trace.n_unique] = parent;
                parent = trace.n_unique++;
        }
        return parent;
}

/* For the text that ends with block `end` and a new partial tail. */
static void add_request(double seconds, uint32_t end)
{
        struct sim_request *r = &requests[trace.n_requests++];
        uint32_t tail = more_text(end, 1), n = 0;

        assert_true(trace.n_requests < MAX_REQUESTS);
        for (uint32_t at = tail; at != NODE_NONE; at = parents[at])
                n++;
        assert_true(trace.n_blocks + n <= MAX_BLOCKS);
        *r = (struct sim_request){
                .time_nsec = (uint64_t)(seconds * SECOND),
                .first = trace.n_blocks,
                .n_blocks = n,
                .input_tokens = (n - 1) * BLOCK_TOKENS + 1 + random_below(BLOCK_TOKENS - 1),
        };
        for (uint32_t at = tail; at != NODE_NONE; at = parents[at])
                blocks[r->first + --n] = at;
        trace.n_blocks += r->n_blocks;
}

static int by_time(const void *a, const void *b)
{
        const struct sim_request *x = a, *y = b;

        if (x->time_nsec != y->time_nsec)
                return x->time_nsec < y->time_nsec ? -1 : 1;
        return x->first < y->first ? -1 : x->first > y->first;
}

/* Prompt number i of n is asked for in proportion to 1 / (i + 1)^alpha. */
static uint32_t zipf(const double *sums, uint32_t n)
{
        double at = uniform() * sums[n - 1];
        uint32_t from = 0, to = n - 1;

        while (from < to) {
                uint32_t middle = (from + to) / 2;

                if (sums[middle] < at)
                        from = middle + 1;
                else
                        to = middle;
        }
        return from;
}

static void add_api(double alpha, double drift)
{
        enum { PROMPTS = 3000, ASKED = 20000 };
        static uint32_t ends[PROMPTS];
        static double sums[PROMPTS];
        double now = 0, sum = 0;

        for (uint32_t i = 0; i < PROMPTS; i++) {
                ends[i] = more_text(NODE_NONE, 1 + random_below(12));
                sum += pow(i + 1, -alpha);
                sums[i] = sum;
        }
        for (uint32_t k = 0; k < ASKED; k++) {
                now += exponential(0.1);
                add_request(now, ends[(zipf(sums, PROMPTS) + (uint32_t)(k * drift)) % PROMPTS]);
        }
}

/* Turns follow after log-normal pauses. */
static void add_conversations(uint32_t n, double per_second, double goes_on, double pause)
{
        uint32_t prompts[8];
        double start = 0;

        for (uint32_t i = 0; i < ARRAY_SIZE(prompts); i++)
                prompts[i] = more_text(NODE_NONE, 1 + random_below(8));
        for (uint32_t i = 0; i < n; i++) {
                uint32_t text =
                        more_text(prompts[random_below(random_below(8) + 1)], 1 + random_below(20));
                double now = start += exponential(1 / per_second);

                for (;;) {
                        add_request(now, text);
                        if (uniform() > goes_on)
                                break;
                        now += pause *
                               exp(sqrt(-2 * log(1 - uniform())) * cos(6.283185307 * uniform()));
                        text = more_text(text, 1 + random_below(5));
                }
        }
}

/* 100 texts that are read once, every five minutes. */
static void add_jobs(void)
{
        for (uint32_t job = 0; job < 12; job++)
                for (uint32_t i = 0; i < 100; i++)
                        add_request(
                                300 * job + 0.3 * i, more_text(NODE_NONE, 20 + random_below(40)));
}

static void add_loop(void)
{
        uint32_t ends[400];

        for (uint32_t i = 0; i < ARRAY_SIZE(ends); i++)
                ends[i] = more_text(NODE_NONE, 10);
        for (uint32_t i = 0; i < 4800; i++)
                add_request(0.5 * i, ends[i % ARRAY_SIZE(ends)]);
}

static double hit_percent(const struct evict_ops *ops, uint32_t percent)
{
        struct sim_options options = {
                .policy = ops,
                .capacity_pages = (uint32_t)((uint64_t)trace.n_unique * percent / 100),
                .tenant = SIM_ALL_TENANTS,
        };
        struct sim_result result;
        struct sim *s = NULL;

        assert_int_equal(sim_new(&trace, &options, &s), 0);
        assert_int_equal(sim_run(s, UINT32_MAX), 0);
        assert_null(sim_check(s));
        sim_result(s, &result);
        sim_free(s);
        return 100.0 * (double)result.hit_tokens / (double)result.input_tokens;
}

/* more: what it gains at some capacity, at least. */
static void expect_no_worse_than_lru(const char *what, double more)
{
        double gain = 0;

        qsort(requests, trace.n_requests, sizeof(*requests), by_time);
        for (unsigned k = 0; k < ARRAY_SIZE(percents); k++) {
                double lru = hit_percent(&evict_lru, percents[k]);
                double pgi = hit_percent(&evict_pgi, percents[k]);

                print_message("%s at %u %%: lru %.2f, pgi %.2f\n", what, percents[k], lru, pgi);
                assert_true(pgi >= lru - 0.2);
                gain = fmax(gain, pgi - lru);
        }
        assert_true(gain >= more);
}

static void test_popular_prompts(void **state)
{
        trace_begin(1);
        add_api(0.9, 0);
        expect_no_worse_than_lru("Zipf", 5);
        trace_begin(2);
        add_api(0.9, 0.1);
        expect_no_worse_than_lru("Zipf, drifting", 2);
}

static void test_conversations(void **state)
{
        trace_begin(3);
        add_conversations(6000, 2, 0.7, 60);
        expect_no_worse_than_lru("conversations", 0.5);
        trace_begin(4);
        add_conversations(2000, 0.5, 0.9, 20);
        expect_no_worse_than_lru("long conversations", 0.5);
}

static void test_bulk_jobs(void **state)
{
        trace_begin(5);
        add_conversations(3000, 1, 0.7, 60);
        add_jobs();
        expect_no_worse_than_lru("bulk jobs", 2);
}

/* Where LRU hits nothing before all of it fits. */
static void test_loop(void **state)
{
        trace_begin(6);
        add_loop();
        expect_no_worse_than_lru("loop", 20);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_popular_prompts),
                TEST(test_conversations),
                TEST(test_bulk_jobs),
                TEST(test_loop),
        };

        return RUN_TESTS(tests);
}
