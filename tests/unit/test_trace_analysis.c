/* Replay and analysis of traces so small that every figure can be counted by hand. */
#include "tests/unit/test-support.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/trace/analysis.h"
#include "client/trace/jobs.h"
#include "client/trace/report.h"
#include "policy/sim/policies.h"

/* Blocks of 16 tokens. The third request continues the first, the second shares its head. */
#define FIRST  "{\"timestamp\":0,\"input_length\":32,\"output_length\":16,\"hash_ids\":[1,2]}\n"
#define SECOND "{\"timestamp\":1000,\"input_length\":32,\"output_length\":16,\"hash_ids\":[1,3]}\n"
#define THIRD  "{\"timestamp\":5000,\"input_length\":40,\"output_length\":8,\"hash_ids\":[1,2,4]}\n"

static void parse(const char *text, struct trace *ret)
{
        struct trace_error e;

        assert_int_equal(trace_parse(text, strlen(text), 0, 16, ret, &e), 0);
}

static void check_dist(const struct dist *d, uint64_t n, double mean, uint64_t median, uint64_t max)
{
        uint64_t binned = 0;

        assert_int_equal(d->n, n);
        assert_true(d->mean == mean);
        assert_int_equal(d->quantiles[DIST_MEDIAN], median);
        assert_int_equal(d->quantiles[DIST_QUANTILES - 1], max);
        for (unsigned i = 0; i < DIST_BINS; i++)
                binned += d->bins[i];
        assert_int_equal(binned, n);
}

TEST(test_dist)
{
        uint64_t values[] = {0, 1, 2, 3, 4, 5, 6, UINT64_MAX};
        struct dist d;
        unsigned first, last;

        dist_of(values, 7, &d);
        check_dist(&d, 7, 3, 3, 6);
        /* 0 1 | 2 | 3 (from 2.83) | 4 5 (below 5.66) | 6 */
        assert_int_equal(d.bins[0], 2);
        assert_int_equal(d.bins[2], 1);
        assert_int_equal(d.bins[3], 1);
        assert_int_equal(d.bins[4], 2);
        assert_int_equal(d.bins[5], 1);
        dist_range(&d, &first, &last);
        assert_int_equal(first, 0);
        assert_int_equal(last, 5);
        dist_of(values, 8, &d);
        assert_int_equal(d.bins[127], 1);
        dist_of(NULL, 0, &d);
        assert_int_equal(d.n, 0);
}

TEST(test_requests)
{
        struct analysis a = {0};
        struct trace t;

        parse(FIRST SECOND THIRD, &t);
        assert_int_equal(analyze_requests(&t.sim, &a), 0);
        assert_int_equal(a.duration_msec, 5000);
        assert_int_equal(a.repeats.input_tokens, 104);
        assert_int_equal(a.repeats.output_tokens, 40);
        assert_int_equal(a.repeats.repeated_tokens, 16 + 32);
        assert_int_equal(a.repeats.repeated_requests, 2);
        assert_int_equal(a.repeats.blocks, 7);
        assert_int_equal(a.repeats.repeated_blocks, 3);
        assert_int_equal(a.repeats.continued, 1);
        assert_int_equal(a.sessions.n, 2);
        check_dist(&a.input_tokens, 3, 104.0 / 3, 32, 40);
        check_dist(&a.sessions.turns, 2, 1.5, 1, 2);
        check_dist(&a.sessions.gap_msec, 1, 5000, 5000, 5000);
        check_dist(&a.sessions.duration_msec, 1, 5000, 5000, 5000);
        check_dist(&a.first_reuse_msec, 2, 3000, 1000, 5000);
        check_dist(&a.reuse_msec, 3, 10000.0 / 3, 4000, 5000);
        trace_free(&t);
}

static void check_sessions(const char *text, const uint32_t *expected)
{
        _cleanup_free_ uint32_t *continued = NULL;
        struct trace t;

        parse(text, &t);
        continued = find_sessions(&t.sim);
        assert_memory_equal(continued, expected, t.sim.n_requests * sizeof(*expected));
        trace_free(&t);
}

#define REQUEST(input, ids)                                                                        \
        "{\"timestamp\":0,\"input_length\":" #input ",\"output_length\":1,\"hash_ids\":[" ids "]}" \
        "\n"

TEST(test_sessions)
{
        const uint32_t none = UINT32_MAX;

        /* The last block was partial: another one stands in its place. And a third turn. */
        check_sessions(REQUEST(40, "1,2,3") REQUEST(60, "1,2,4,5") REQUEST(70, "1,2,4,5,6"),
                (const uint32_t[]){none, 0, 1});
        /* Two continue one: the second is a session of its own. */
        check_sessions(REQUEST(32, "1,2") REQUEST(48, "1,2,3") REQUEST(48, "1,2,4"),
                (const uint32_t[]){none, 0, none});
        /* No longer than the one before; a system prompt that all have. */
        check_sessions(REQUEST(48, "1,2,3") REQUEST(48, "1,2,3") REQUEST(20, "1,9")
                               REQUEST(40, "1,8,7"),
                (const uint32_t[]){none, none, none, none});
        /* Nothing at all. */
        check_sessions(REQUEST(0, "") REQUEST(5, ""), (const uint32_t[]){none, none});
}

TEST(test_page_sizes)
{
        struct page_sizes p;
        struct trace t;

        parse(FIRST SECOND THIRD, &t);
        assert_int_equal(analyze_page_sizes(&t.sim, &p), 0);
        /* Texts of 48 tokens each; 16 and 32 of the inputs are hits. */
        assert_int_equal(p.sizes[0].tokens, 16);
        assert_int_equal(p.sizes[0].wasted_tokens, 0);
        assert_int_equal(p.sizes[0].hit_tokens, 48);
        assert_false(p.sizes[0].estimated);
        assert_int_equal(p.sizes[1].tokens, 32);
        assert_int_equal(p.sizes[1].wasted_tokens, 3 * 16);
        assert_int_equal(p.sizes[1].page_tokens, 3 * 64);
        assert_int_equal(p.sizes[1].hit_tokens, 32);
        assert_int_equal(p.sizes[2].hit_tokens, 0);
        assert_int_equal(p.long_tokens, 48);
        assert_int_equal(p.advised, 0);
        trace_free(&t);
}

/* Pages smaller than the trace's blocks: what is known of sessions counts, nothing else. */
TEST(test_small_pages)
{
        static const char text[] =
                "{\"timestamp\":0,\"input_length\":900,\"output_length\":0,\"hash_ids\":[1,2]}\n"
                "{\"timestamp\":1,\"input_length\":2000,\"output_length\":0,\"hash_ids\":[1,3,4,5]}"
                "\n"
                "{\"timestamp\":2,\"input_length\":2000,\"output_length\":0,\"hash_ids\":[1,6,7,8]}"
                "\n";
        struct page_sizes p;
        struct trace_error e;
        struct trace t;

        assert_int_equal(trace_parse(text, strlen(text), 0, 512, &t, &e), 0);
        assert_int_equal(analyze_page_sizes(&t.sim, &p), 0);
        assert_int_equal(p.sizes[0].hit_tokens, 896 + 512); /* 900 in whole pages of 16 */
        assert_true(p.sizes[0].estimated);
        assert_int_equal(p.sizes[4].hit_tokens, 768 + 512); /* of 256 */
        assert_int_equal(p.sizes[5].hit_tokens, 512 + 512);
        assert_false(p.sizes[5].estimated);
        trace_free(&t);
}

/* `n` requests of the same length that share nothing. */
static uint32_t advised_for(unsigned n, unsigned tokens)
{
        char *text = NULL;
        size_t len = 0;
        FILE *f = open_memstream(&text, &len);
        struct page_sizes p;
        struct trace t;

        assert_non_null(f);
        for (unsigned i = 0; i < n; i++)
                fprintf(f,
                        "{\"timestamp\":0,\"input_length\":%u,\"output_length\":0,\"hash_ids\":[]}"
                        "\n",
                        tokens);
        fclose(f);
        parse(text, &t);
        assert_int_equal(analyze_page_sizes(&t.sim, &p), 0);
        trace_free(&t);
        free(text);
        return p.sizes[p.advised].tokens;
}

TEST(test_page_advice)
{
        assert_int_equal(advised_for(4, 1000), 16);
        assert_int_equal(advised_for(4, 6400 - 10), 128);
        /* No waste at all, but not 32 pages of 256. */
        assert_int_equal(advised_for(4, 7936), 128);
        assert_int_equal(advised_for(4, 8192), 256);
        assert_int_equal(advised_for(4, 128 * 1024), 1024);
}

TEST(test_demand)
{
        struct demand d;
        struct trace t;

        parse(FIRST SECOND THIRD, &t);
        assert_int_equal(analyze_demand(&t.sim, 2000, &d), 0);
        /* From 0 s on 2 blocks and an output's: 3; from 1 s on 3 blocks and 2 outputs: 5; at 2 s
         * the first request ends: 3; at 3 s the second: 0; at 5 s the last. */
        assert_int_equal(d.p50_pages, 3);
        assert_int_equal(d.p99_pages, 5);
        assert_int_equal(d.max_pages, 5);
        assert_int_equal(d.requests, 3);
        assert_int_equal(d.unique_pages, 4);
        assert_int_equal(analyze_demand(&t.sim, 100, &d), 0);
        assert_int_equal(d.p50_pages, 0);
        assert_int_equal(d.max_pages, 3);
        trace_free(&t);
        /* All at one moment: no time to take quantiles of. */
        parse(FIRST FIRST, &t);
        assert_int_equal(analyze_demand(&t.sim, 2000, &d), 0);
        assert_int_equal(d.p99_pages, 4);
        trace_free(&t);
}

/* ---- replay ---------------------------------------------------------------------------------- */

static void check_hits(const struct curves *c, unsigned policy, unsigned capacity, uint64_t tokens)
{
        assert_int_equal(c->results[policy][capacity].hit_tokens, tokens);
        assert_int_equal(c->results[policy][capacity].input_tokens, 104);
}

TEST(test_curves)
{
        struct curves *c = calloc(1, sizeof(*c));
        struct trace t;
        char err[256];

        parse(FIRST SECOND THIRD, &t);
        assert_int_equal(curves_set_policies(c, "lru,optimum,lru", err, sizeof(err)), 0);
        assert_int_equal(c->n_policies, 2);
        assert_int_equal(
                curves_set_capacities(c, "2,100%,10%", t.sim.n_unique, err, sizeof(err)), 0);
        assert_int_equal(c->capacities[1].pages, 4);
        assert_int_equal(c->capacities[2].pages, 1);
        for (unsigned n_processes = 1; n_processes < 20; n_processes += 9) {
                assert_int_equal(curves_run(c, &t.sim, n_processes, NULL, NULL), 0);
                check_hits(c, 0, 0, 16 + 16); /* the second request takes block 2's place */
                check_hits(c, 0, 1, 16 + 32);
                check_hits(c, 1, 0, 16 + 32); /* it isn't let in */
                check_hits(c, 1, 1, 16 + 32);
                check_hits(c, 1, 2, 16 + 16);
                assert_true(curves_at(c, 0, 0) == 32.0 / 104);
        }
        trace_free(&t);
        free(c);
}

#define OF(tenant, time, ids)                                                    \
        "{\"tenant\":\"" tenant "\",\"timestamp\":" time ",\"input_length\":16," \
        "\"output_length\":0,\"hash_ids\":[" ids "]}\n"

/* A part for each tenant: the busy one can't take the other's page. */
TEST(test_split)
{
        static const char text[] = OF("a", "0", "1") OF("b", "1", "1") OF("b", "2", "2")
                OF("b", "3", "3") OF("a", "4", "1");
        struct curves *c = calloc(1, sizeof(*c));
        struct trace t;
        char err[256];

        parse(text, &t);
        assert_int_equal(curves_set_policies(c, "lru", err, sizeof(err)), 0);
        assert_int_equal(curves_set_capacities(c, "2,1", t.sim.n_unique, err, sizeof(err)), 0);
        assert_int_equal(curves_run(c, &t.sim, 2, NULL, NULL), 0);
        assert_int_equal(c->results[0][0].hit_tokens, 0);
        c->split = true;
        assert_int_equal(curves_run(c, &t.sim, 2, NULL, NULL), 0);
        assert_int_equal(c->results[0][0].hit_tokens, 16);
        assert_int_equal(c->results[0][0].requests, 5);
        trace_free(&t);
        free(c);
}

static void check_refused(const char *policies, const char *capacities, const char *expected)
{
        struct curves *c = calloc(1, sizeof(*c));
        char err[512];

        if (policies)
                assert_int_equal(curves_set_policies(c, policies, err, sizeof(err)), -EINVAL);
        else
                assert_int_equal(
                        curves_set_capacities(c, capacities, 100, err, sizeof(err)), -EINVAL);
        assert_memory_equal(err, expected, strlen(expected));
        free(c);
}

TEST(test_refuses_lists)
{
        char many[200];

        check_refused("lru,mru", NULL, "there is no policy 'mru': there are ");
        check_refused("", NULL, "there is no policy '': there are ");
        check_refused(NULL, "5%,", "'' is no capacity: allowed are pages (1000) and parts");
        check_refused(NULL, "0%", "'0%' is no capacity");
        check_refused(NULL, "101%", "'101%' is no capacity");
        check_refused(NULL, "1e3", "'1e3' is no capacity");
        check_refused(NULL, "1.5", "'1.5' is no capacity");
        check_refused(NULL, "0", "'0' is no capacity");
        check_refused(NULL, "4294967295", "'4294967295' is no capacity");
        check_refused(NULL, "-5%", "'-5%' is no capacity");
        for (size_t i = 0; i + 1 < sizeof(many); i += 2)
                memcpy(many + i, "1,", 2);
        many[sizeof(many) - 1] = '\0';
        check_refused(NULL, many, "more than 64 capacities");
}

static bool stop(uint64_t done, uint64_t total, void *data)
{
        assert_true(done <= total);
        return false;
}

TEST(test_cancel)
{
        struct replay_job job = {
                .options = {.policy = &evict_lru, .capacity_pages = 1, .tenant = SIM_ALL_TENANTS}};
        struct trace t;

        parse(FIRST SECOND THIRD, &t);
        assert_int_equal(replay_run(&t.sim, &job, 1, 1, stop, NULL), -ECANCELED);
        /* The process of a simulation returns its refusal. */
        job.options.policy = &evict_optimum;
        assert_int_equal(replay_run(&t.sim, &job, 1, 1, NULL, NULL), -EINVAL);
        assert_int_equal(replay_run(&t.sim, &job, 0, 4, NULL, NULL), 0);
        trace_free(&t);
}

/* ---- all of it ------------------------------------------------------------------------------- */

TEST(test_analyze)
{
        struct analysis_options o = {
                .n_processes = 2, .policies = "lru,optimum", .capacities = "2,4"};
        struct analysis *a = calloc(1, sizeof(*a));
        struct trace t;
        char err[256];
        json_t *j;

        parse(FIRST SECOND THIRD, &t);
        assert_int_equal(analyze(&t, &o, a, err, sizeof(err)), 0);
        assert_int_equal(a->hold_msec, 5000); /* the only gap */
        assert_int_equal(a->demands[0].p99_pages, 5);
        assert_int_equal(a->demands[0].at_p99[a->demands[0].best].hit_tokens, 48);
        check_hits(&a->curves, 0, 0, 32);
        j = report_json(a);
        assert_non_null(j);
        assert_int_equal(json_array_size(json_object_get(j, "curves")), 4);
        json_decref(j);
        analysis_free(a);
        o.hold_msec = 2000;
        assert_int_equal(analyze(&t, &o, a, err, sizeof(err)), 0);
        assert_int_equal(a->hold_msec, 2000);
        analysis_free(a);
        o.policies = "none";
        assert_int_equal(analyze(&t, &o, a, err, sizeof(err)), -EINVAL);
        trace_free(&t);
        free(a);
}

TEST(test_words)
{
        char buf[32];

        assert_string_equal(report_count(0, buf), "0");
        assert_string_equal(report_count(999, buf), "999");
        assert_string_equal(report_count(1000, buf), "1,000");
        assert_string_equal(report_count(UINT64_MAX, buf), "18,446,744,073,709,551,615");
        assert_string_equal(report_time(999, buf), "999 ms");
        assert_string_equal(report_time(1500, buf), "1.5 s");
        assert_string_equal(report_time(59000, buf), "59 s");
        assert_string_equal(report_time(90 * 60000, buf), "1.5 h");
}

/* LRU, but for what depends on the first page's id: where that is odd nothing is ever evicted. */
static struct {
        uint64_t first_id;
        bool has_first;
} by_id;

static int by_id_new(const struct evict_params *params, void **ret_policy)
{
        by_id.has_first = false;
        return evict_lru.new(params, ret_policy);
}

static void by_id_insert(
        void *policy, uint32_t node, const struct evict_insert *what, uint64_t now_nsec)
{
        if (!by_id.has_first)
                by_id.first_id = what->id;
        by_id.has_first = true;
        evict_lru.insert(policy, node, what, now_nsec);
}

static uint32_t by_id_victim(void *policy, uint32_t tier, enum evict_how how, uint64_t now_nsec)
{
        return by_id.first_id & 1 ? NODE_NONE : evict_lru.victim(policy, tier, how, now_nsec);
}

/* 32 tokens are found if the first id is even, 48 if it is odd, in any process. */
TEST(test_seeds)
{
        struct curves *c = calloc(1, sizeof(*c));
        struct evict_ops policy = evict_lru;
        const struct hit_spread *s = &c->spreads[0][0];
        struct trace t;
        char err[256];
        double n_odd, variance;

        parse(FIRST SECOND THIRD, &t);
        policy.new = by_id_new;
        policy.insert = by_id_insert;
        policy.victim = by_id_victim;
        c->policies[0] = &policy;
        c->n_policies = 1;
        c->n_seeds = 16;
        assert_int_equal(curves_set_capacities(c, "2", t.sim.n_unique, err, sizeof(err)), 0);
        for (unsigned n_processes = 1; n_processes <= 3; n_processes++) {
                assert_int_equal(curves_run(c, &t.sim, n_processes, NULL, NULL), 0);
                assert_true(s->least == 32.0 / 104);
                assert_true(s->most == 48.0 / 104);
                assert_int_equal(c->results[0][0].requests, 3 * 16);
                n_odd = (double)(c->results[0][0].hit_tokens - 16 * 32) / 16;
                assert_float_equal(s->mean, (32 + n_odd) / 104, 1e-12);
                /* Each value is one of two that differ by 16 tokens. */
                variance = (16.0 / 104) * (16.0 / 104) * n_odd * (16 - n_odd) / 16 / 15;
                assert_float_equal(s->stddev * s->stddev, variance, 1e-12);
        }
        trace_free(&t);
        free(c);
}

/* A job adds up to its number; one in `dies` ends its process, one in `fails` says so. */
struct job_plan {
        size_t dies, fails;
};

static int run_planned(void *data, size_t i, void *result, _Atomic uint64_t *n_done)
{
        const struct job_plan *plan = data;

        if (i == plan->dies)
                _exit(1);
        if (i == plan->fails)
                return -EDOM;
        *(uint32_t *)result += (uint32_t)i + 7;
        atomic_fetch_add(n_done, 1);
        return 0;
}

TEST(test_jobs)
{
        struct job_plan plan = {SIZE_MAX, SIZE_MAX};
        const struct jobs jobs = {
                .n = 5, .result_bytes = 4, .run = run_planned, .data = &plan, .total = 5};
        uint32_t results[5] = {0};

        for (unsigned n = 1; n <= 8; n += 7) {
                assert_int_equal(jobs_run(&jobs, results, n, NULL, NULL), 0);
                for (uint32_t i = 0; i < 5; i++)
                        assert_int_equal(results[i], i + 7);
        }
        plan.fails = 4;
        assert_int_equal(jobs_run(&jobs, results, 2, NULL, NULL), -EDOM);
        plan.dies = 1;
        assert_int_equal(jobs_run(&jobs, results, 2, NULL, NULL), -ECHILD);
}
