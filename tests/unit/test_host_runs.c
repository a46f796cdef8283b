/* Several hosts over one store, from a trace: what is given, and how many nodes are needed. */
#include "tests/unit/test-support.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/parse.h"
#include "client/trace/report-hosts.h"
#include "client/trace/trace.h"
#include "daemon/exchange/exchange-impl.h"
#include "daemon/server/config/options.h"

#define BLOCK_TOKENS 512
#define TOKEN_BYTES  1024
#define BLOCK_BYTES  (BLOCK_TOKENS * TOKEN_BYTES)

/* 1 2, 1 3 and 1 2 4. */
static const char text[] =
        "{\"timestamp\":0,\"input_length\":1024,\"output_length\":1,\"hash_ids\":[1,2]}\n"
        "{\"timestamp\":1000,\"input_length\":1024,\"output_length\":1,\"hash_ids\":[1,3]}\n"
        "{\"timestamp\":5000,\"input_length\":1536,\"output_length\":1,\"hash_ids\":[1,2,4]}\n";

static int init(void **state)
{
        struct host_runs *h = calloc(1, sizeof(*h));
        struct trace *t = calloc(1, sizeof(*t));
        struct trace_error e;

        assert_non_null(h);
        assert_int_equal(trace_parse(text, strlen(text), 0, BLOCK_TOKENS, t, &e), 0);
        *h = (struct host_runs){.policy = &evict_lru,
                .cache_bytes = 16 * BLOCK_BYTES,
                .token_bytes = TOKEN_BYTES,
                .prefill_tokens_per_sec = 1000,
                .group = 2};
        store_model_init(&h->store);
        state[0] = h;
        state[1] = t;
        return 0;
}

static void set_lists(
        struct host_runs *h, const char *counts, const char *affinities, const char *store)
{
        char err[512];

        assert_int_equal(host_runs_set_counts(h, counts, err, sizeof(err)), 0);
        assert_int_equal(host_runs_set_affinities(h, affinities, err, sizeof(err)), 0);
        assert_int_equal(store_model_parse(&h->store, store, err, sizeof(err)), 0);
}

static void run(struct host_runs *h, const struct trace *t)
{
        char err[512];

        assert_int_equal(host_runs_run(h, &t->sim, 2, NULL, NULL, err, sizeof(err)), 0);
}

/* The second host loads 1; the first has 1 2 when it is asked for 1 2 4. */
static void test_runs(void **unused)
{
        void *state[2];
        struct host_runs *h;
        const struct host_run *r;

        init(state);
        h = state[0];
        set_lists(h, "2,4,1", "round-robin,session,prefix", "uses=1,page=64");
        run(h, state[1]);
        r = &h->runs[0][0];
        assert_int_equal(r->result.input_tokens, 3584);
        assert_int_equal(r->result.local_tokens, 1024);
        assert_int_equal(r->result.remote_tokens, 512);
        assert_int_equal(r->result.writes, 4 * 8);
        assert_int_equal(r->result.probes, (2 + 2 + 1) * 8);
        assert_int_equal(r->result.touches, 4 * 8);
        assert_int_equal(r->n_nodes, 1);
        assert_true(host_run_rate(r, 10) == 2);
        /* At 64 KiB a second a host writes its first block at once, and the next one 8 s later. */
        h->store.write_rate = 64 << 10;
        run(h, state[1]);
        assert_int_equal(r->result.writes, 2 * 8);
        h->store.write_rate = 0;
        run(h, state[1]);
        assert_int_equal(r->result.writes, 4 * 8);
        /* Two copies, of hosts that share nothing. */
        assert_int_equal(h->runs[1][0].result.local_tokens, 2 * 1024);
        assert_int_equal(h->runs[1][0].result.remote_tokens, 2 * 512);
        assert_int_equal(h->runs[1][0].result.values.most, 2 * 4);
        /* The third request goes where the first one was, or most of it is. */
        assert_int_equal(h->runs[0][1].result.local_tokens, 1024);
        assert_int_equal(h->runs[0][2].result.local_tokens, 512 + 1024);
        assert_int_equal(h->runs[2][0].result.local_tokens, 512 + 1024);
        assert_int_equal(h->runs[2][0].result.remote_tokens, 0);
        free(h);
        trace_free(state[1]);
        free(state[1]);
}

/* In the busiest ten seconds, which are all: 4 blocks are written and one is loaded, 9 are asked
 * for; 4 are there, and take a quarter more. */
static void test_nodes(void **unused)
{
        void *state[2];
        struct host_runs *h;
        const struct host_run *r;

        init(state);
        h = state[0];
        set_lists(h, "2", "round-robin",
                "uses=1,page=4,keys=30,memory=1MiB,bandwidth=1MiB,link=1TiB,size=1GiB");
        run(h, state[1]);
        r = &h->runs[0][0];
        assert_int_equal(r->needed.by_memory, 3);    /* 2 MiB + 1/4 */
        assert_int_equal(r->needed.by_bandwidth, 1); /* 2.5 MiB in 10 s */
        assert_int_equal(r->needed.by_keys, 4);      /* 9 * 128 / 10 s: 115.2 */
        assert_int_equal(r->n_nodes, 4);
        /* A block takes 512 ms to compute. One node takes 500 ms to send it, and a quarter more is
         * expected; four of them, which have a part each, take less. */
        assert_int_equal(r->result.loads, 1);
        h->store.n_nodes = 1;
        run(h, state[1]);
        assert_int_equal(r->n_nodes, 1);
        assert_int_equal(r->result.loads, 0);
        assert_int_equal(r->result.lost_loads, 1);
        /* Without a store there is nothing to need. */
        set_lists(h, "2", "round-robin", "size=0,nodes=0");
        run(h, state[1]);
        assert_int_equal(r->n_nodes, 0);
        assert_int_equal(r->result.remote_tokens, 0);
        assert_int_equal(r->result.local_tokens, 1024);
        free(h);
        trace_free(state[1]);
        free(state[1]);
}

static void check_refused(
        const char *counts, const char *affinities, const char *store, const char *why)
{
        struct host_runs *h = calloc(1, sizeof(*h));
        char err[512] = "";
        int r = 0;

        assert_non_null(h);
        h->group = 10;
        store_model_init(&h->store);
        if (counts)
                r = host_runs_set_counts(h, counts, err, sizeof(err));
        if (affinities)
                r = host_runs_set_affinities(h, affinities, err, sizeof(err));
        if (store)
                r = store_model_parse(&h->store, store, err, sizeof(err));
        free(h);
        assert_int_equal(r, -EINVAL);
        if (!strstr(err, why))
                fail_msg("'%s' isn't in '%s'", why, err);
}

static void test_refused(void **state)
{
        check_refused("0", NULL, NULL, "'0' is no number of hosts: that is 1 to 10000");
        check_refused("10,", NULL, NULL, "'' is no number of hosts");
        check_refused("10001", NULL, NULL, "'10001' is no number");
        check_refused("15", NULL, NULL, "15 hosts: a copy of the trace is for 10, so");
        check_refused("1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", NULL, NULL, "more than 16 numbers");
        check_refused(NULL, "prefix,none", NULL, "there is no affinity 'none': there are round");
        check_refused(NULL, NULL, "size", "a store has no 'size': it has size=, evict=, expire=");
        check_refused(NULL, NULL, "=1", "a store has no ''");
        check_refused(NULL, NULL, "evict=arc", "'arc' is no evict of a store: that is lru or lfu");
        check_refused(NULL, NULL, "export=never", "that is found or demotion");
        check_refused(
                NULL, NULL, "uses=0", "'0' is no uses of a store: that is a number of 1 to 100");
        check_refused(
                NULL, NULL, "rtt=1us", "'1us' is no rtt of a store: that is a time of up to 17 s");
        check_refused(NULL, NULL, "size=1MiB,bandwidth=1KiB",
                "'1KiB' is no bandwidth of a store: that is a size of 1 MiB to 1 TiB");
}

/* Sizes that don't fit the trace. */
static void test_sizes(void **unused)
{
        void *state[2];
        struct host_runs *h;
        struct trace *t;
        char err[512];

        init(state);
        h = state[0];
        t = state[1];
        set_lists(h, "2", "random", "page=48");
        assert_int_equal(host_runs_run(h, &t->sim, 1, NULL, NULL, err, sizeof(err)), -EINVAL);
        assert_non_null(strstr(err, "pages of 48 tokens: blocks of this trace have 512, "));
        set_lists(h, "2", "random", "page=2");
        assert_int_equal(host_runs_run(h, &t->sim, 1, NULL, NULL, err, sizeof(err)), -EINVAL);
        set_lists(h, "2", "random", "page=4");
        h->cache_bytes = BLOCK_BYTES / 2;
        assert_int_equal(host_runs_run(h, &t->sim, 1, NULL, NULL, err, sizeof(err)), -EINVAL);
        assert_string_equal(err,
                "256 KiB on each host are no blocks of 512 tokens of this trace: one takes 512 KiB");
        free(h);
        trace_free(t);
        free(t);
}

/* Default of an option of kvleased. */
static uint64_t default_of(enum option_section section, const char *key)
{
        const struct option *o = option_find(section, key);
        uint64_t value = 0;

        assert_non_null(o);
        if (o->type == OPTION_BYTES)
                assert_int_equal(parse_bytes(o->default_text, &value), 0);
        else
                assert_int_equal(parse_duration(o->default_text, &value), 0);
        return value;
}

/* Defaults are as documented, and equal kvleased's. */
static void test_defaults(void **state)
{
        struct store_model m, same;
        char list[1024] = "", err[512];

        store_model_init(&m);
        assert_int_equal(m.host_size, UINT64_C(256) << 30);
        assert_int_equal(m.expiry_nsec, default_of(SECTION_REMOTE, "expiry"));
        assert_int_equal(m.write_rate, default_of(SECTION_TENANT, "remote_write"));
        assert_int_equal(m.min_uses, EXCHANGE_MIN_USES);
        assert_int_equal(m.export, HOSTS_EXPORT_FOUND);
        assert_int_equal(HOST_LONG_TOKENS, EXCHANGE_LONG_TOKENS);
        assert_int_equal(HOSTS_TOUCH_NSEC, EXCHANGE_AGAIN_SEC * NSEC_PER_SEC);
        memset(&same, 0xff, sizeof(same));
#define X(key, kind, field, otherwise, least, most, meaning) strcat(list, key "=" otherwise ",");
        STORE_MODEL_TABLE(X)
#undef X
        list[strlen(list) - 1] = '\0';
        assert_int_equal(store_model_parse(&same, list, err, sizeof(err)), 0);
        assert_memory_equal(&m, &same, sizeof(m));
        /* All at their bounds. */
        assert_int_equal(
                store_model_parse(&m, "size=0,expire=0,uses=100,nodes=100000,rtt=0,page=65536", err,
                        sizeof(err)),
                0);
}

static void test_json(void **unused)
{
        void *state[2];
        struct host_runs *h;
        json_t *j, *one;

        init(state);
        h = state[0];
        set_lists(h, "2,4", "round-robin,prefix", "uses=1");
        run(h, state[1]);
        j = report_hosts_json(h, &((struct trace *)state[1])->sim);
        assert_non_null(j);
        assert_int_equal(json_array_size(json_object_get(j, "runs")), 4);
        one = json_array_get(json_object_get(j, "runs"), 3);
        assert_int_equal(json_integer_value(json_object_get(one, "hosts")), 4);
        assert_string_equal(json_string_value(json_object_get(one, "affinity")), "prefix");
        assert_int_equal(json_integer_value(json_object_get(one, "local_tokens")), 2 * 1536);
        assert_int_equal(json_integer_value(json_object_get(j, "cache_blocks")), 16);
        json_decref(j);
        free(h);
        trace_free(state[1]);
        free(state[1]);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST_ROW(test_runs),
                TEST_ROW(test_nodes),
                TEST_ROW(test_refused),
                TEST_ROW(test_sizes),
                TEST_ROW(test_defaults),
                TEST_ROW(test_json),
        };

        return RUN_TESTS(tests);
}
