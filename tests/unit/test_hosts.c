/* Hosts over one store: traces that are checked by hand, and what must hold for any. */
#include <errno.h>
#include <string.h>

#include "policy/hosts/hosts.h"
#include "policy/sim/policies.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/random-trace.h"
#include "tests/unit/test-support.h"

#define A_SECOND UINT64_C(1000000000)
#define TOKENS   16
#define RATE     1600 /* tokens a second: 10 ms a block */

static struct random_trace random_trace;

/* Texts 0 1 2, 0 1 3 and 4, all of whole blocks: two conversations and a question. The fourth
 * request asks for the first text again, the fifth for the second one. */
static const uint32_t few_blocks[] = {0, 1, 2, 0, 1, 3, 4, 0, 1, 2, 0, 1, 3};
static const uint32_t few_parents[] = {NODE_NONE, 0, 1, 1, NODE_NONE};
static const struct sim_request few_requests[] = {
        {.time_nsec = 0 * A_SECOND, .first = 0, .n_blocks = 3, .input_tokens = 48},
        {.time_nsec = 1 * A_SECOND, .first = 3, .n_blocks = 3, .input_tokens = 48},
        {.time_nsec = 2 * A_SECOND, .first = 6, .n_blocks = 1, .input_tokens = 16},
        {.time_nsec = 3 * A_SECOND, .first = 7, .n_blocks = 3, .input_tokens = 48},
        {.time_nsec = 4 * A_SECOND, .first = 10, .n_blocks = 3, .input_tokens = 48},
};
static const uint32_t few_continued[] = {UINT32_MAX, UINT32_MAX, UINT32_MAX, 0, 1};
static const struct sim_trace few = {
        .requests = few_requests,
        .blocks = few_blocks,
        .parents = few_parents,
        .n_blocks = ARRAY_SIZE(few_blocks),
        .n_requests = ARRAY_SIZE(few_requests),
        .n_unique = ARRAY_SIZE(few_parents),
        .n_tenants = 1,
        .block_tokens = TOKENS,
};

/* A store that takes all that leaves a device, costs nothing and forgets nothing. */
static struct hosts_options options_of(
        const struct evict_ops *policy, uint32_t pages, uint32_t n_hosts)
{
        return (struct hosts_options){
                .cache = {.policy = policy, .capacity_pages = pages, .tenant = SIM_ALL_TENANTS},
                .n_hosts = n_hosts,
                .group = n_hosts,
                .prefill_tokens_per_sec = RATE,
                .store = {.values = {.capacity = UINT32_MAX},
                        .export = HOSTS_EXPORT_DEMOTION,
                        .block_bytes = 1000,
                        .keys_per_block = 1},
        };
}

static struct hosts_result run(const struct sim_trace *trace, const struct hosts_options *options)
{
        struct hosts_result result;
        struct hosts *h = NULL;
        int64_t left;

        assert_int_equal(hosts_new(trace, options, &h), 0);
        left = (int64_t)hosts_n_requests(h);
        while (left > 0) {
                assert_int_equal(hosts_run(h, 1), --left);
                assert_null(hosts_check(h));
        }
        assert_int_equal(hosts_run(h, 1), 0);
        hosts_result(h, &result);
        hosts_free(h);
        return result;
}

static struct sim_result run_one_cache(
        const struct sim_trace *trace, const struct evict_ops *policy, uint32_t pages)
{
        const struct sim_options options = {
                .policy = policy, .capacity_pages = pages, .tenant = SIM_ALL_TENANTS};
        struct sim_result result;
        struct sim *s = NULL;

        assert_int_equal(sim_new(trace, &options, &s), 0);
        assert_int_equal(sim_run(s, trace->n_requests), 0);
        sim_result(s, &result);
        sim_free(s);
        return result;
}

/* ---- by hand -------------------------------------------------------------------------------- */

/* With exports of what is found or published the second host finds what the first has computed. */
TEST(test_on_finding)
{
        struct hosts_options options = options_of(&evict_lru, 5, 2);
        struct hosts_result r;

        options.store.export = HOSTS_EXPORT_FOUND;
        r = run(&few, &options);
        assert_int_equal(r.local_tokens, 2 * 32);
        assert_int_equal(r.remote_tokens, 32 + 16 + 16); /* 0 1; 2; 3 */
        assert_int_equal(r.loads, 3);
        assert_int_equal(r.load_bytes, 4 * 1000);
        assert_int_equal(r.writes, 5);
        assert_int_equal(r.write_bytes, 5 * 1000);
        assert_int_equal(r.values.most, 5);
        assert_int_equal(r.known_writes, 0);
        assert_int_equal(r.peak_bytes, 9 * 1000);
        /* Writes at the second use. A host uses 0 1 for the second time in request 3 (the second
         * host) and 4, and finds them there at that time. */
        options.store.filter.min_uses = 2;
        r = run(&few, &options);
        assert_int_equal(r.remote_tokens, 0);
        assert_int_equal(r.writes, 2);
        assert_int_equal(r.known_writes, 2);
        /* All texts are long. */
        options.store.filter.long_tokens = 16;
        r = run(&few, &options);
        assert_int_equal(r.writes, 5);
        options.store.filter.long_tokens = 48;
        assert_int_equal(run(&few, &options).writes, 4);
}

/* One host with room for 3: 2 leaves for 3, 3 for 4, 4 for 2, and 2 for 3. Request 3 loads 2, and
 * request 4 loads 3. */
TEST(test_on_demotion)
{
        struct hosts_options options = options_of(&evict_lru, 3, 1);
        struct hosts_result r = run(&few, &options);

        assert_int_equal(r.local_tokens, 3 * 32);
        assert_int_equal(r.remote_tokens, 16 + 16);
        assert_int_equal(r.writes, 3);
        assert_int_equal(r.known_writes, 1);
        assert_int_equal(r.refused_writes, 0);
        assert_int_equal(r.probes, 3 + 1 + 1 + 1 + 1 + 4); /* and each write asks first */
        /* A block that was used once isn't worth a write. */
        options.store.filter.min_uses = 2;
        r = run(&few, &options);
        assert_int_equal(r.remote_tokens, 0);
        assert_int_equal(r.refused_writes, 4);
        /* A tier below is the host's own: what goes down there is exported nevertheless. */
        options.store.filter.min_uses = 1;
        options.cache.below_pages = 2;
        r = run(&few, &options);
        assert_int_equal(r.local_tokens, 3 * 32 + 2 * 16);
        assert_int_equal(r.remote_tokens, 0);
        assert_true(r.writes > 0);
}

#define N_MANY (HOSTS_TEXTS_MAX + 44)

/* So many blocks at once: a text, or texts of a block each. */
static const struct sim_trace *many_trace(bool as_one)
{
        static struct sim_request requests[N_MANY];
        static uint32_t blocks[N_MANY], parents[N_MANY];
        static struct sim_trace many;

        for (uint32_t i = 0; i < N_MANY; i++) {
                requests[i] =
                        (struct sim_request){.first = i, .n_blocks = 1, .input_tokens = TOKENS};
                blocks[i] = i;
                parents[i] = as_one && i > 0 ? i - 1 : NODE_NONE;
        }
        if (as_one)
                requests[0] =
                        (struct sim_request){.n_blocks = N_MANY, .input_tokens = N_MANY * TOKENS};
        many = few;
        many.requests = requests;
        many.blocks = blocks;
        many.parents = parents;
        many.n_blocks = many.n_unique = N_MANY;
        many.n_requests = as_one ? 1 : N_MANY;
        return &many;
}

/* A write of a block takes 2.5 s, on a host with room for 3. 0 is written at once. The text that
 * begins with 1 waits until 3 takes the place of its end. Then 3 is written, as it is newer. Of the
 * text only 1 is written, its part before it grew. */
TEST(test_end_is_gone)
{
        static const uint32_t blocks[] = {0, 1, 2, 4, 3, 1};
        static const uint32_t parents[] = {NODE_NONE, NODE_NONE, 1, NODE_NONE, 2};
        static const struct sim_request requests[] = {
                {.time_nsec = 0, .first = 0, .n_blocks = 1, .input_tokens = 16},
                {.time_nsec = 0, .first = 1, .n_blocks = 3, .input_tokens = 48},
                {.time_nsec = 1 * A_SECOND, .first = 4, .n_blocks = 1, .input_tokens = 16},
                {.time_nsec = 9 * A_SECOND, .first = 5, .n_blocks = 1, .input_tokens = 16},
        };
        struct hosts_options options = options_of(&evict_lru, 3, 1);
        struct sim_trace trace = few;
        struct hosts_result r;

        trace.blocks = blocks;
        trace.parents = parents;
        trace.requests = requests;
        trace.n_blocks = ARRAY_SIZE(blocks);
        trace.n_unique = ARRAY_SIZE(parents);
        trace.n_requests = ARRAY_SIZE(requests);
        options.store.export = HOSTS_EXPORT_FOUND;
        options.store.block_bytes = 4 * 4096;
        options.store.write_bytes_per_sec = 2 * 4096;
        r = run(&trace, &options);
        assert_int_equal(r.writes, 3);
        assert_int_equal(r.dropped_writes, 2);
}

/* One is written, and others wait until there are too many; but what is published block after block
 * is one text, which grows. */
TEST(test_many_texts)
{
        struct hosts_options options = options_of(&evict_lru, N_MANY, 1);
        struct hosts_result r;

        options.store.export = HOSTS_EXPORT_FOUND;
        options.store.write_bytes_per_sec = 4096;
        r = run(many_trace(false), &options);
        assert_int_equal(r.writes, 1);
        assert_int_equal(r.dropped_writes, N_MANY - 1 - HOSTS_TEXTS_MAX);
        r = run(many_trace(true), &options);
        assert_int_equal(r.writes, 1);
        assert_int_equal(r.dropped_writes, 0);
}

/* 10 ms a block to compute; a round trip and 1.25 times the bytes to load. */
TEST(test_what_loses)
{
        struct hosts_options options = options_of(&evict_lru, 5, 2);
        struct hosts_result r;

        options.store.export = HOSTS_EXPORT_FOUND;
        /* One node: 8 ms for the bytes of a block are 10 with the margin; so a block takes as long
         * as to compute it, and computing is chosen. */
        options.store.lanes = (struct lanes_options){.n_nodes = 1, .node_bytes_per_sec = 125000};
        r = run(&few, &options);
        assert_int_equal(r.remote_tokens, 0);
        assert_int_equal(r.lost_loads, 3);
        assert_int_equal(r.lost_tokens, 32 + 16 + 16);
        options.store.lanes.node_bytes_per_sec = 126000;
        r = run(&few, &options);
        assert_int_equal(r.loads, 3);
        assert_in_range(r.load_nsec, 39 * A_SECOND / 1000, 40 * A_SECOND / 1000);
        /* A round trip of 10 ms is too much for one block, and not for two. */
        options.store.lanes = (struct lanes_options){.rtt_nsec = A_SECOND / 100};
        r = run(&few, &options);
        assert_int_equal(r.remote_tokens, 32);
        assert_int_equal(r.lost_tokens, 16 + 16);
        assert_int_equal(r.load_nsec, A_SECOND / 100);
        /* The host's own link. */
        options.store.lanes = (struct lanes_options){.host_bytes_per_sec = 125000};
        assert_int_equal(run(&few, &options).lost_loads, 3);
}

/* One node, which takes 2 s for a block: what it can't begin with within 5 s is dropped, which is
 * 4, as 0 1 2 and 3 come before. Where it takes 6 s that is 1, and 2 behind it, and the host tries
 * nothing else for 5 s. */
TEST(test_slow_writes)
{
        struct hosts_options options = options_of(&evict_lru, 5, 1);
        struct hosts_result r;

        options.store.export = HOSTS_EXPORT_FOUND;
        options.store.lanes = (struct lanes_options){.n_nodes = 1, .node_bytes_per_sec = 500};
        r = run(&few, &options);
        assert_int_equal(r.writes, 4);
        assert_int_equal(r.dropped_writes, 1);
        options.store.lanes.node_bytes_per_sec = 166;
        r = run(&few, &options);
        assert_int_equal(r.writes, 1);
        assert_int_equal(r.dropped_writes, 2);
        /* A block that leaves the device waits for 1 s: 2 and 3 are written, and not 4. */
        options.store.export = HOSTS_EXPORT_DEMOTION;
        options.store.lanes.node_bytes_per_sec = 500;
        options.cache.capacity_pages = 3;
        r = run(&few, &options);
        assert_int_equal(r.writes, 2);
        assert_int_equal(r.dropped_writes, 1);
}

/* Two hosts with a copy of the trace each find what one would, twice, and nothing of each other. */
TEST(test_copies)
{
        struct hosts_options options = options_of(&evict_lru, 3, 1);
        struct hosts_result one = run(&few, &options), two;

        options.n_hosts = 2;
        two = run(&few, &options);
        assert_int_equal(two.requests, 2 * one.requests);
        assert_int_equal(two.local_tokens, 2 * one.local_tokens);
        assert_int_equal(two.remote_tokens, 2 * one.remote_tokens);
        assert_int_equal(two.writes, 2 * one.writes);
        assert_int_equal(two.duration_nsec, one.duration_nsec + HOSTS_SPREAD_NSEC / 2);
}

/* ---- for any trace -------------------------------------------------------------------------- */

/* One host without a store is the simulator. */
TEST(test_one_host_is_the_simulator)
{
        random_start(__func__);
        for (int i = 0; i < 20; i++) {
                uint32_t pages = 1 + random_below(200);

                random_trace_make(&random_trace, 200, 12, 400);
                for (const struct evict_ops *const *p = sim_policies; *p; p++) {
                        struct hosts_options options = options_of(*p, pages, 1);
                        struct sim_result one;
                        struct hosts_result r;

                        if (*p == &evict_optimum)
                                continue;
                        options.affinity = random_below(2) ? HOSTS_PREFIX : HOSTS_RANDOM;
                        if (random_below(2))
                                options.store.values.capacity = 0;
                        r = run(&random_trace.trace, &options);
                        one = run_one_cache(&random_trace.trace, *p, pages);
                        assert_int_equal(r.requests, one.requests);
                        assert_int_equal(r.input_tokens, one.input_tokens);
                        assert_int_equal(r.local_tokens, one.hit_tokens);
                }
        }
}

/* A store that has all, at once and for nothing, makes one cache that has all of any hosts. */
TEST(test_free_store_is_one_cache)
{
        random_start(__func__);
        for (int i = 0; i < 40; i++) {
                struct hosts_options options = options_of(random_below(2) ? &evict_lru : &evict_pgi,
                        12 + random_below(60), 1 + random_below(5)); /* all of a path is cached */
                struct sim_result one;
                struct hosts_result r;

                random_trace_make(&random_trace, 200, 12, 400);
                one = run_one_cache(&random_trace.trace, &evict_lru, random_trace.trace.n_unique);
                options.affinity = i % 2 ? HOSTS_ROUND_ROBIN : i % 4 ? HOSTS_RANDOM : HOSTS_PREFIX;
                options.store.export = HOSTS_EXPORT_FOUND;
                r = run(&random_trace.trace, &options);
                assert_int_equal(r.local_tokens + r.remote_tokens, one.hit_tokens);
                assert_int_equal(r.writes, random_trace.trace.n_unique);
                /* One host: what left its device is there, so that it is the same again. */
                options.store.export = HOSTS_EXPORT_DEMOTION;
                options.n_hosts = options.group = 1;
                r = run(&random_trace.trace, &options);
                assert_int_equal(r.local_tokens + r.remote_tokens, one.hit_tokens);
        }
}

/* Any store: no more hits than one cache of all, no fewer local hits than without a store. */
TEST(test_any_store)
{
        random_start(__func__);
        for (int i = 0; i < 100; i++) {
                struct hosts_options options =
                        options_of(&evict_pgi, 12 + random_below(60), 1 + random_below(4));
                struct sim_result one;
                struct hosts_result r, without;

                random_trace_make(&random_trace, 200, 12, 400);
                one = run_one_cache(&random_trace.trace, &evict_lru, random_trace.trace.n_unique);
                options.affinity = random_below(2) ? HOSTS_ROUND_ROBIN : HOSTS_PREFIX;
                options.store.export = (enum hosts_export)random_below(2);
                options.store.write_bytes_per_sec = random_below(2) * (1 + random_below(4000));
                options.store.values.capacity = random_below(200);
                options.store.values.evict = random_below(2) ? VALUES_LRU : VALUES_LFU;
                options.store.values.expiry_nsec = random_below(60) * A_SECOND;
                options.store.filter.min_uses = random_below(3);
                options.store.min_tokens = random_below(40);
                options.store.keys_per_block = 1 + random_below(3);
                options.store.lanes = (struct lanes_options){.n_nodes = random_below(3),
                        .node_bytes_per_sec = random_below(2) * 1000 * (1 + random_below(1000)),
                        .rtt_nsec = random_below(20) * A_SECOND / 1000};
                r = run(&random_trace.trace, &options);
                options.store.values.capacity = 0;
                options.affinity =
                        options.affinity == HOSTS_PREFIX ? HOSTS_PREFIX : HOSTS_ROUND_ROBIN;
                without = run(&random_trace.trace, &options);
                assert_true(r.local_tokens + r.remote_tokens <= one.hit_tokens);
                assert_int_equal(without.remote_tokens, 0);
                if (options.affinity == HOSTS_ROUND_ROBIN) /* the same requests come to each */
                        assert_int_equal(r.local_tokens, without.local_tokens);
        }
}

/* ---- refused -------------------------------------------------------------------------------- */

static void check_refused(struct hosts_options options)
{
        struct hosts *h = NULL;

        assert_int_equal(hosts_new(&few, &options, &h), -EINVAL);
        assert_null(h);
}

TEST(test_refused)
{
        const struct hosts_options good = options_of(&evict_lru, 3, 4);
        struct hosts_options options = good;

        options.n_hosts = 0;
        check_refused(options);
        options.n_hosts = HOSTS_MAX + 1;
        options.group = 1;
        check_refused(options);
        options = good;
        options.group = 3;
        check_refused(options);
        options = good;
        options.cache.policy = &evict_optimum;
        check_refused(options);
        options.cache.may_bypass = true;
        check_refused(options);
        options = good;
        options.cache.engine.max_running = 1;
        check_refused(options);
        options = good;
        options.cache.tenant = 0;
        check_refused(options);
        options = good;
        options.affinity = HOSTS_SESSION; /* without the continued texts */
        check_refused(options);
        options = good;
        options.prefill_tokens_per_sec = 0;
        check_refused(options);
        options = good;
        options.store.keys_per_block = HOSTS_PROBE_KEYS + 1;
        check_refused(options);
        options.store.values.capacity = 0; /* without a store it isn't checked */
        assert_int_equal(run(&few, &options).requests, 5);
}

TEST(test_out_of_memory)
{
        struct hosts_options options = options_of(&evict_lru, 3, 2);

        options.affinity = HOSTS_SESSION;
        options.continued = few_continued;
        options.store.export = HOSTS_EXPORT_FOUND;
        alloc_fail_each(n)
        {
                struct hosts *h = NULL;
                int64_t r = hosts_new(&few, &options, &h);

                if (r == 0)
                        r = hosts_run(h, UINT64_MAX);
                assert_int_equal(r, alloc_fail_happened() ? -ENOMEM : 0);
                hosts_free(h);
        }
}
