/*
 * replay TRACE: hit ratio of a real daemon under recorded traffic, or a synthetic one of
 * tests/traffic/. Beside it, that of the simulator with the same policy and capacity, in percent of
 * the input tokens. The daemon's clock is the trace's; pages are small and never touched. Clients
 * use the socket, so that no page is in a magazine and no TOUCH is lost. Each begins when the
 * daemon has read all of the last one. So only the policy and everything around it are compared.
 * The simulator's figure is the mean over several seeds of page ids; the daemon's keys are one more
 * such draw.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "client/trace/trace.h"
#include "tests/bench/bench.h"
#include "tests/bench/fixture.h"
#include "lab/bench/replay.h"
#include "tests/integration/pattern.h"
#include "tests/traffic/traffic.h"

#define MAX_DIFFERENCE 0.2 /* points; specification */
#define N_CLIENTS      4   /* by turns: one policy sees several clients */
#define EXTENT_BYTES   ((uint64_t)REPLAY_SET_PAGES * FIXTURE_PAGE_BYTES)
#define QUICK_REQUESTS 12000u
#define N_SEEDS        10u /* of the simulator's page ids */
#define TRAFFIC_SEED   1
#define START_NSEC     (1000 * NSEC_PER_SEC) /* of the trace's time 0 */

static const char *const policies[] = {"lru", "pgi"};
static const uint32_t percents[] = {1, 5, 20};

struct replay {
        const struct sim_trace *trace;
        uint32_t n_requests;
        struct private_daemon daemon;
        struct fixture_client clients[N_CLIENTS];
        uint8_t *keys;   /* of the longest request, as the next two */
        uint32_t *pages; /* first those found, then those leased */
        uint64_t input_tokens, hit_tokens;
};

/* ---- the clock ------------------------------------------------------------------------------- */

static char clock_variable[PATH_MAX + 32];
static _Atomic uint64_t *clock_word;

static int clock_open(void)
{
        char path[] = "/tmp/kvlease-clock-XXXXXX";
        int fd = mkstemp(path), r = 0;
        void *word;

        if (fd < 0)
                return bench_fail(path, -errno);
        word = ftruncate(fd, sizeof(uint64_t)) == 0
                       ? mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                       : MAP_FAILED;
        if (word == MAP_FAILED)
                r = bench_fail(path, -errno);
        else
                clock_word = word;
        close(fd);
        snprintf(clock_variable, sizeof(clock_variable), "KVLEASE_TEST_CLOCK=%s", path);
        return r;
}

static void clock_close(void)
{
        if (clock_word)
                munmap((void *)(uintptr_t)clock_word, sizeof(*clock_word));
        clock_word = NULL;
        unlink(strchr(clock_variable, '=') + 1);
}

static void clock_set(uint64_t trace_nsec)
{
        atomic_store_explicit(clock_word, START_NSEC + trace_nsec, memory_order_release);
}

/* ---- the daemon ------------------------------------------------------------------------------ */

static int connect_client(struct replay *b, struct fixture_client *c, const char *socket)
{
        struct kvl_connect_options o = {.size = sizeof(o),
                .socket_path = socket,
                .client_name = "kvlease-bench",
                .flags = KVL_CONNECT_NO_SHM | KVL_CONNECT_METADATA_ONLY};
        struct kvl_layout layout = {.size = sizeof(layout),
                .model = "replay",
                .version = "1",
                .dtype = KVL_DTYPE_F16,
                .n_layers = 1,
                .n_kv_heads = 1,
                .head_size = 64,
                .page_tokens = b->trace->block_tokens,
                .n_planes = 1,
                .plane_page_bytes = FIXTURE_PAGE_BYTES,
                .tp_size = 1};
        int r = kvl_connect(&o, &c->conn);

        if (r == 0)
                r = kvl_ns_open(c->conn, "replay", &layout, NULL, 0, &c->ns);
        return r ? bench_fail(kvl_last_error(), r) : 0;
}

static int start(struct replay *b, const struct replay_cache *cache)
{
        static const struct private_tenant tenants[] = {{"a", NULL}, {NULL, NULL}};
        static const char *env[2];
        char device_lines[128], daemon_lines[96], socket[PRIVATE_PATH_MAX];
        struct private_options options = {.tenants = tenants,
                .device_lines = device_lines,
                .daemon_lines = daemon_lines,
                .env = env};
        int r;

        env[0] = clock_variable;
        snprintf(device_lines, sizeof(device_lines),
                "memory = %llu\nextent = %llu\nhost_memory = %llu\n",
                (unsigned long long)cache->device_pages * FIXTURE_PAGE_BYTES,
                (unsigned long long)EXTENT_BYTES,
                (unsigned long long)cache->host_pages * FIXTURE_PAGE_BYTES);
        snprintf(daemon_lines, sizeof(daemon_lines), "evict = %s\ncompact = off\n", cache->policy);
        b->daemon = (struct private_daemon){.notify_fd = -1};
        clock_set(0);
        r = private_daemon_init(&b->daemon, &options);
        if (r == 0)
                r = private_daemon_start(&b->daemon);
        if (r < 0) {
                private_daemon_show_log(&b->daemon);
                return bench_fail("private kvleased", r);
        }
        private_daemon_socket(&b->daemon, "a", socket);
        for (unsigned i = 0; r == 0 && i < N_CLIENTS; ++i)
                r = connect_client(b, &b->clients[i], socket);
        return r;
}

static void stop(struct replay *b)
{
        for (unsigned i = 0; i < N_CLIENTS; ++i) {
                if (b->clients[i].conn)
                        fixture_disconnect(&b->clients[i]);
        }
        private_daemon_deinit(&b->daemon);
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Tokens in block i: at least one, at most a block's, as a trace's figures needn't agree. */
static uint32_t tokens_of(const struct replay *b, const struct sim_request *r, uint32_t i)
{
        uint32_t block = b->trace->block_tokens;
        uint64_t before = (uint64_t)i * block;
        uint64_t left = r->input_tokens > before ? r->input_tokens - before : 1;

        return (uint32_t)MIN(left, block);
}

/* Computes the missing pages one by one: leases and publishes each. *ret_n: pages held then. One in
 * a million finds no place in the index (proto/shm.h): its continuation isn't computed. */
static int compute(struct replay *b, struct kvl_ns *ns, const struct sim_request *r,
        uint64_t request, uint32_t n_hit, uint32_t *ret_n)
{
        int c = 0;

        *ret_n = n_hit;
        for (uint32_t i = n_hit; c == 0 && i < r->n_blocks; ++i) {
                const uint8_t *key = b->keys + (size_t)i * KVL_KEY_BYTES;
                struct kvl_publish p = {.size = sizeof(p),
                        .pages = &b->pages[i],
                        .keys = key,
                        .n_pages = 1,
                        .parent_key = i ? key - KVL_KEY_BYTES : NULL,
                        .last_tokens = tokens_of(b, r, i),
                        .request = request};

                c = kvl_lease(ns, request, 1, &b->pages[i]);
                if (c == 0)
                        c = kvl_publish(ns, &p, NULL, NULL);
                if (c == KVL_NO_PARENT)
                        return kvl_free(ns, &b->pages[i], 1);
                *ret_n += c == 0;
        }
        return c;
}

static int replay_request(struct replay *b, uint32_t number)
{
        const struct sim_request *r = &b->trace->requests[number];
        struct kvl_ns *ns = b->clients[number % N_CLIENTS].ns;
        uint64_t request = kvl_request_begin(ns), n_tokens;
        uint32_t n_hit = 0, n_held, n_probed;
        int c;

        if (r->n_blocks == 0)
                return 0;
        clock_set(r->time_nsec);
        for (uint32_t i = 0; i < r->n_blocks; ++i)
                pattern_key(1, b->trace->blocks[r->first + i], b->keys + i * KVL_KEY_BYTES);
        c = kvl_lookup(ns, request, b->keys, r->n_blocks, b->pages, &n_hit, &n_tokens);
        if (c == KVL_MISS)
                c = n_hit = 0;
        b->input_tokens += r->input_tokens;
        b->hit_tokens += MIN((uint64_t)n_hit * b->trace->block_tokens, r->input_tokens);
        if (c == 0)
                c = compute(b, ns, r, request, n_hit, &n_held);
        if (c == 0)
                c = kvl_request_end_as(ns, request, r->ending);
        if (c == 0)
                c = kvl_release(ns, b->pages, n_held);
        if (c == 0) /* the earlier requests have no answer, but this one has */
                c = kvl_probe(ns, b->keys, 1, NULL, &n_probed);
        if (c == KVL_MISS)
                c = 0;
        return c ? bench_fail(kvl_last_error(), c) : 0;
}

static double percent(uint64_t hit, uint64_t all)
{
        return all ? 100.0 * (double)hit / (double)all : 0;
}

static int measure_daemon(struct replay *b, const struct replay_cache *cache, double *ret_percent)
{
        int r = start(b, cache);

        b->input_tokens = b->hit_tokens = 0;
        for (uint32_t i = 0; r == 0 && i < b->n_requests; ++i)
                r = replay_request(b, i);
        stop(b);
        *ret_percent = percent(b->hit_tokens, b->input_tokens);
        return r;
}

static int measure_simulator(
        struct replay *b, const char *policy, uint32_t capacity_pages, double *ret_percent)
{
        double sum = 0;

        for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
                struct sim_options options = {.policy = evict_find(policy),
                        .capacity_pages = capacity_pages,
                        .tenant = SIM_ALL_TENANTS,
                        .seed = seed};
                struct sim_result result;
                struct sim *s;
                int r = options.policy ? sim_new(b->trace, &options, &s) : -ENOENT;

                if (r < 0)
                        return bench_fail(policy, r);
                sim_run(s, b->n_requests);
                sim_result(s, &result);
                sim_free(s);
                sum += percent(result.hit_tokens, result.input_tokens);
        }
        *ret_percent = sum / N_SEEDS;
        return 0;
}

/* ---- the benchmark --------------------------------------------------------------------------- */

static int compare(struct replay *b, struct bench_run *run, const char *policy, uint32_t percent_of)
{
        uint64_t wanted = (uint64_t)b->trace->n_unique * percent_of / 100;
        uint32_t capacity =
                (uint32_t)MAX(wanted / REPLAY_SET_PAGES, UINT64_C(1)) * REPLAY_SET_PAGES;
        struct bench_result *hits = bench_add(run, "%", "%s, %u pages", policy, capacity);
        struct bench_result *off;
        int r = measure_daemon(b,
                &(struct replay_cache){.policy = policy, .device_pages = capacity}, &hits->median);

        if (r == 0)
                r = measure_simulator(b, policy, capacity, &hits->baseline_median);
        if (r < 0)
                return r;
        hits->baseline = "simulator";
        off = bench_add(run, "points", "%s, %u pages: off by", policy, capacity);
        off->median = fabs(hits->median - hits->baseline_median);
        off->max_value = MAX_DIFFERENCE;
        return 0;
}

static uint32_t longest_request(const struct sim_trace *t)
{
        uint32_t n = 0;

        for (uint32_t i = 0; i < t->n_requests; ++i)
                n = MAX(n, t->requests[i].n_blocks);
        return n;
}

static int init(struct replay *b, const struct sim_trace *trace, uint32_t n_requests)
{
        uint32_t n = longest_request(trace) + 1;

        *b = (struct replay){.trace = trace, .n_requests = n_requests};
        b->keys = malloc((size_t)n * KVL_KEY_BYTES);
        b->pages = malloc((size_t)n * sizeof(*b->pages));
        return b->keys && b->pages ? clock_open() : bench_fail("requests", -ENOMEM);
}

static void deinit(struct replay *b)
{
        if (clock_word)
                clock_close();
        free(b->keys);
        free(b->pages);
}

int replay_measure(const struct sim_trace *trace, uint32_t n_requests,
        const struct replay_cache *cache, double *ret_percent)
{
        struct replay b;
        int r = init(&b, trace, n_requests);

        if (r == 0)
                r = measure_daemon(&b, cache, ret_percent);
        deinit(&b);
        return r;
}

static int run_all(const struct sim_trace *trace, struct bench_run *run)
{
        uint32_t n = run->quick ? MIN(trace->n_requests, QUICK_REQUESTS) : trace->n_requests;
        struct replay b;
        int r = init(&b, trace, n);

        for (unsigned k = 0; r == 0 && k < (run->quick ? 1 : ARRAY_SIZE(percents)); ++k)
                for (unsigned i = 0; r == 0 && i < ARRAY_SIZE(policies); ++i)
                        r = compare(&b, run, policies[i], percents[k]);
        deinit(&b);
        return r;
}

static int run_recorded(const char *path, struct bench_run *run)
{
        struct trace trace = {0};
        struct trace_error error;
        int r = trace_read(&(struct trace_source){&path, 1, TRACE_SKIP_BAD}, &trace, &error);

        if (r < 0)
                return bench_fail(error.text[0] ? error.text : path, r);
        r = trace.sim.block_tokens <= 1024
                    ? run_all(&trace.sim, run)
                    : bench_fail("the trace's blocks are larger than pages may be (1024 tokens)",
                              -EINVAL);
        trace_free(&trace);
        return r;
}

static int run_synthetic(const struct traffic_kind *kind, struct bench_run *run)
{
        struct traffic traffic;
        int r;

        traffic_make(&traffic, kind, TRAFFIC_SEED);
        r = run_all(&traffic.trace, run);
        traffic_free(&traffic);
        return r;
}

static const struct traffic_kind *find_kind(const char *name)
{
        for (size_t i = 0; i < n_traffic_kinds; i++)
                if (strcmp(traffic_kinds[i].name, name) == 0)
                        return &traffic_kinds[i];
        return NULL;
}

static int run_replay(struct bench_run *run)
{
        const struct traffic_kind *kind = run->argument ? find_kind(run->argument) : NULL;

        if (kind)
                return run_synthetic(kind, run);
        if (run->argument)
                return run_recorded(run->argument, run);
        fprintf(stderr, "replay needs the path of a trace, or a kind of synthetic traffic:\n");
        for (size_t i = 0; i < n_traffic_kinds; i++)
                fprintf(stderr, "  %-16s  %s\n", traffic_kinds[i].name, traffic_kinds[i].what);
        return -EINVAL;
}

const struct bench bench_replay = {"replay",
        "hit ratio of the daemon under a trace, beside the simulator's", 1, run_replay,
        .argument = "TRACE, or a kind of synthetic traffic"};
