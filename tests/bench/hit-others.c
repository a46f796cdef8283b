/* A hit of 128 pages against caches that ask another process (echo), a thread (futex) or
 * redis-server, and with kvleased stopped. A lookup of one page against the table's. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <string.h>

#include "base/macros.h"
#include "tests/bench/baseline.h"
#include "tests/bench/hit.h"
#include "tests/bench/redis.h"
#include "tests/integration/pattern.h"

#define N_KEYS             128
#define MIN_TIMES_REDIS    15  /* specification */
#define MAX_TABLE_RATIO    2.5 /* one page, warm */
#define MAX_STOPPED_RATIO  1.1 /* "the same cost"; not tuned */
#define WARM_KEYS          8   /* a few, as one request after another has */
#define BLOCK              50
#define REDIS_VALUE        "page1234" /* place of a page, as a table in redis would have it */
#define REDIS_LOAD_AT_ONCE 1000

enum what { HIT, STOPPED, ECHO, FUTEX, EXISTS, MGET, N_BIG };

/* One page, looked up HIT_BATCH times: without a request, in one, each in one of its own. */
enum small { LOOKUP, LOOKUP_REQUEST, LOOKUP_REQUESTS, LOOKUP_STOPPED, TABLE, N_SMALL };

struct others {
        struct hit_site *site;
        struct echo echo;
        struct pingpong pingpong;
        struct redis redis;
        struct redis_request requests[2]; /* of the window: EXISTS, MGET */
        bool has_redis;
        struct series big[N_BIG], small[N_SMALL];
};

static int load_redis(struct others *o)
{
        struct redis_request q = {0};
        int r = 0;

        for (uint32_t i = 0; r == 0 && i < o->site->n_pages; ++i) {
                redis_add_set(&q, o->site->keys + (size_t)i * KVL_KEY_BYTES, REDIS_VALUE,
                        strlen(REDIS_VALUE));
                if ((i + 1) % REDIS_LOAD_AT_ONCE == 0 || i + 1 == o->site->n_pages) {
                        r = redis_call(&o->redis, &q);
                        redis_request_reset(&q);
                }
        }
        redis_request_free(&q);
        return r < 0 ? bench_fail("loading redis", r) : 0;
}

static int start_redis(struct others *o)
{
        int r = redis_start(&o->redis, o->site->fixture.cores[CORE_OTHER]);

        if (r == -ENOENT)
                return 0;
        o->has_redis = true;
        return r < 0 ? r : load_redis(o);
}

static int time_redis(struct others *o, unsigned what, double *ret_nsec)
{
        struct redis_request *q = &o->requests[what - EXISTS];
        uint64_t start;
        int r;

        redis_request_reset(q);
        for (uint32_t i = 0; what == EXISTS && i < N_KEYS; ++i)
                redis_add_exists(q, o->site->window + i * KVL_KEY_BYTES);
        if (what == MGET)
                redis_add_mget(q, o->site->window, N_KEYS, REDIS_VALUE, strlen(REDIS_VALUE));
        start = now_nsec();
        r = redis_call(&o->redis, q);
        *ret_nsec = (double)(now_nsec() - start);
        return r < 0 ? bench_fail("redis", r) : 0;
}

static int time_big(struct others *o, unsigned what, double *ret_nsec)
{
        struct hit_times t;
        uint64_t start = now_nsec();
        int r = 0;

        switch (what) {
        case ECHO:
                r = echo_call(&o->echo);
                break;
        case FUTEX:
                pingpong_call(&o->pingpong);
                break;
        case EXISTS:
        case MGET:
                return time_redis(o, what, ret_nsec);
        default:
                r = hit_time(o->site, 0, N_KEYS, &t);
                *ret_nsec = t.lookup + t.release;
                return r;
        }
        *ret_nsec = (double)(now_nsec() - start);
        return r < 0 ? bench_fail("echo", r) : 0;
}

static int big_block(struct others *o, unsigned what, unsigned n)
{
        double nsec;
        int r = 0;

        for (unsigned i = 0; r == 0 && i < n; ++i) {
                hit_move_window(o->site, N_KEYS);
                r = time_big(o, what, &nsec);
                series_add(&o->big[what], nsec);
        }
        return r;
}

static double per_lookup(uint64_t start)
{
        return (double)(now_nsec() - start) / HIT_BATCH;
}

static int small_batch(struct others *o, unsigned what)
{
        struct hit_site *site = o->site;
        struct kvl_ns *ns = site->client.ns;
        uint64_t request = what == LOOKUP_REQUEST ? kvl_request_begin(ns) : 0, tokens;
        uint64_t start = now_nsec();
        uint32_t n;
        int r = 0;

        for (uint32_t i = 0; i < HIT_BATCH; ++i) {
                if (what == LOOKUP_REQUESTS)
                        request = kvl_request_begin(ns);
                r |= kvl_lookup(ns, request, site->window + i % WARM_KEYS * KVL_KEY_BYTES, 1,
                        &site->found[i], &n, &tokens);
        }
        series_add(&o->small[what], per_lookup(start));
        for (uint32_t i = 0; i < HIT_BATCH; ++i)
                r |= kvl_release(ns, &site->found[i], 1);
        return r ? bench_fail("hits of one page", -EIO) : 0;
}

/* Times the batch in the table. */
static int table_batch(struct others *o)
{
        struct hit_site *site = o->site;
        uint64_t tokens, start = now_nsec();
        uint32_t n = 0;

        for (uint32_t i = 0; i < HIT_BATCH; ++i)
                n += table_lookup(site->table, site->window + i % WARM_KEYS * KVL_KEY_BYTES, 1,
                        &site->found[i], &tokens);
        series_add(&o->small[TABLE], per_lookup(start));
        for (uint32_t i = 0; i < n; ++i)
                table_release(site->table, &site->found[i], 1);
        return n == HIT_BATCH ? 0 : bench_fail("the table", -ENOENT);
}

static int small_block(struct others *o, unsigned what, unsigned n)
{
        int r = 0;

        hit_move_window(o->site, WARM_KEYS);
        for (unsigned i = 0; r == 0 && i < n; ++i)
                r = what == TABLE ? table_batch(o) : small_batch(o, what);
        return r;
}

static int stopped_blocks(struct others *o, unsigned n)
{
        pid_t pid = o->site->fixture.daemon.pid;
        int r;

        kill(pid, SIGSTOP);
        r = big_block(o, STOPPED, n);
        if (r == 0)
                r = small_block(o, LOOKUP_STOPPED, n);
        kill(pid, SIGCONT);
        return r;
}

static int one_round(struct others *o, unsigned n_blocks)
{
        int r = 0;

        for (unsigned i = 0; r == 0 && i < n_blocks; ++i) {
                for (unsigned w = 0; r == 0 && w < N_BIG; ++w)
                        if (w != STOPPED && (w < EXISTS || o->has_redis))
                                r = big_block(o, w, BLOCK);
                for (unsigned w = 0; r == 0 && w < N_SMALL; ++w)
                        if (w != LOOKUP_STOPPED)
                                r = small_block(o, w, BLOCK);
                if (r == 0)
                        r = stopped_blocks(o, BLOCK);
        }
        for (unsigned w = 0; w < N_BIG; ++w)
                series_close_round(&o->big[w]);
        for (unsigned w = 0; w < N_SMALL; ++w)
                series_close_round(&o->small[w]);
        return r;
}

static void report_redis(struct others *o, struct bench_run *run)
{
        struct bench_result *rows[2];

        if (!o->has_redis)
                return;
        for (unsigned w = 0; w < 2; ++w) {
                rows[w] = bench_add(run, "ns", w ? "hit-128-mget" : "hit-128-exists");
                series_report(rows[w], &o->big[HIT], &o->big[EXISTS + w],
                        w ? "redis MGET" : "redis EXISTS");
        }
        /* The bound applies to the better of both. */
        rows[rows[1]->baseline_median < rows[0]->baseline_median]->max_ratio =
                1.0 / MIN_TIMES_REDIS;
}

static void report(struct others *o, struct bench_run *run)
{
        static const char *const names[] = {
                "lookup-1-few-keys", "lookup-1-in-request", "lookup-1-own-request"};
        struct bench_result *r;

        report_redis(o, run);
        series_report(bench_add(run, "ns", "hit-128-echo"), &o->big[HIT], &o->big[ECHO], "echo");
        series_report(bench_add(run, "ns", "hit-128-futex"), &o->big[HIT], &o->big[FUTEX], "futex");
        r = bench_add(run, "ns", "hit-128-stopped");
        series_report(r, &o->big[STOPPED], &o->big[HIT], "daemon running");
        r->max_ratio = MAX_STOPPED_RATIO;
        for (unsigned w = 0; w <= LOOKUP_REQUESTS; ++w) {
                r = bench_add(run, "ns", "%s", names[w]);
                series_report(r, &o->small[w], &o->small[TABLE], "table");
                if (w == LOOKUP)
                        r->max_ratio = MAX_TABLE_RATIO;
        }
        r = bench_add(run, "ns", "lookup-1-stopped");
        series_report(r, &o->small[LOOKUP_STOPPED], &o->small[LOOKUP], "daemon running");
        r->max_ratio = MAX_STOPPED_RATIO;
}

static int setup(struct others *o, unsigned n_samples, unsigned rounds)
{
        struct echo_sizes sizes[2];
        int other = o->site->fixture.cores[CORE_OTHER], r = 0;

        for (unsigned w = 0; r == 0 && w < N_BIG; ++w)
                r = series_init(&o->big[w], n_samples, rounds);
        for (unsigned w = 0; r == 0 && w < N_SMALL; ++w)
                r = series_init(&o->small[w], n_samples, rounds);
        if (r < 0)
                return r;
        echo_frame_sizes(sizes);
        r = echo_open(&o->echo, sizes);
        if (r == 0 && other >= 0)
                r = bench_pin(o->echo.pid, other);
        if (r == 0)
                r = pingpong_open(
                        &o->pingpong, other >= 0 ? other : o->site->fixture.cores[CORE_CLIENT]);
        return r < 0 ? bench_fail("baselines", r) : start_redis(o);
}

int hit_run_others(struct hit_site *site, struct bench_run *run)
{
        unsigned n_blocks = run->quick ? 1 : 5;
        struct others o = {.site = site, .echo = {.fd = -1}, .redis = REDIS_INIT};
        int r = setup(&o, n_blocks * BLOCK, run->rounds);

        for (unsigned i = 0; r == 0 && i < run->rounds; ++i)
                r = one_round(&o, n_blocks);
        if (r == 0)
                report(&o, run);
        redis_stop(&o.redis);
        redis_request_free(&o.requests[0]);
        redis_request_free(&o.requests[1]);
        pingpong_close(&o.pingpong);
        echo_close(&o.echo);
        for (unsigned w = 0; w < N_BIG; ++w)
                series_deinit(&o.big[w]);
        for (unsigned w = 0; w < N_SMALL; ++w)
                series_deinit(&o.small[w]);
        return r;
}
