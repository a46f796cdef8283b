/* data: a page of 64 KiB written and made findable, and found and read whole. Compared with SET and
 * GET of as many bytes in redis-server on a Unix socket. */
#include <errno.h>
#include <string.h>

#include "base/macros.h"
#include "tests/bench/bench.h"
#include "tests/bench/data.h"
#include "tests/bench/fixture.h"
#include "tests/bench/redis.h"
#include "tests/integration/pattern.h"

#define PAGE_BYTES 65536
#define N_PAGES    4096 /* room: 256 MiB */
#define N_KEYS     256  /* kept in redis */

enum what { PUT, GET, REDIS_SET, REDIS_GET, N_WHATS };

struct data {
        struct fixture fixture;
        struct fixture_client client;
        struct redis redis;
        bool has_redis;
        struct redis_request request;
        uint64_t n_put, n_set;
        uint8_t content[PAGE_BYTES];
        struct series series[N_WHATS];
};

static int put(struct data *b, const uint8_t *key)
{
        uint32_t page;
        struct kvl_publish p = {.size = sizeof(p),
                .pages = &page,
                .keys = key,
                .n_pages = 1,
                .last_tokens = FIXTURE_PAGE_TOKENS};
        int r = kvl_lease(b->client.ns, 0, 1, &page);

        if (r)
                return r;
        memcpy(kvl_page_ptr(b->client.ns, page, 0), b->content, PAGE_BYTES);
        r = kvl_publish(b->client.ns, &p, NULL, NULL);
        return r ? r : kvl_release(b->client.ns, &page, 1);
}

static int get(struct data *b, const uint8_t *key)
{
        uint32_t page, n;
        uint64_t tokens;
        int r = kvl_lookup(b->client.ns, 0, key, 1, &page, &n, &tokens);

        if (r)
                return r;
        if (memcmp(kvl_page_ptr(b->client.ns, page, 0), b->content, PAGE_BYTES) != 0)
                r = -EBADMSG;
        return r ? r : kvl_release(b->client.ns, &page, 1);
}

/* Redis: the request is built before the clock runs. */
static int time_redis(struct data *b, unsigned what, const uint8_t *key)
{
        uint64_t start;
        int r;

        redis_request_reset(&b->request);
        (what == REDIS_SET ? redis_add_set : redis_add_get)(
                &b->request, key, b->content, PAGE_BYTES);
        start = now_nsec();
        r = redis_call(&b->redis, &b->request);
        series_add(&b->series[what], bench_usec_since(start));
        return r;
}

static int one_op(struct data *b, unsigned what)
{
        uint8_t key[KVL_KEY_BYTES];
        uint64_t start;
        int r;

        if (what == PUT || what == REDIS_SET)
                pattern_key(what, what == PUT ? b->n_put++ : b->n_set++ % N_KEYS, key);
        else
                pattern_key(what - 1, what == GET ? b->n_put - 1 : (b->n_set - 1) % N_KEYS, key);
        if (what >= REDIS_SET)
                return time_redis(b, what, key);
        start = now_nsec();
        r = what == PUT ? put(b, key) : get(b, key);
        series_add(&b->series[what], bench_usec_since(start));
        return r;
}

static int drop_last(struct data *b)
{
        uint8_t key[KVL_KEY_BYTES];

        pattern_key(PUT, b->n_put - 1, key);
        return fixture_drop(b->client.ns, key, 1, 1);
}

static int one_round(struct data *b, unsigned n, bool warm)
{
        int r = 0;

        for (unsigned i = 0; r == 0 && i < n; ++i) {
                for (unsigned w = 0; r == 0 && w < N_WHATS; ++w)
                        if (w < REDIS_SET || b->has_redis)
                                r = one_op(b, w);
                if (r == 0)
                        r = drop_last(b);
        }
        for (unsigned w = 0; w < N_WHATS; ++w)
                (warm ? series_drop_round : series_close_round)(&b->series[w]);
        return r ? bench_fail("a page", r) : 0;
}

static void report(struct data *b, struct bench_run *run)
{
        series_report(bench_add(run, "us", "put-64KiB"), &b->series[PUT],
                b->has_redis ? &b->series[REDIS_SET] : NULL, "redis SET");
        series_report(bench_add(run, "us", "get-64KiB"), &b->series[GET],
                b->has_redis ? &b->series[REDIS_GET] : NULL, "redis GET");
}

static int setup(struct data *b, unsigned n, unsigned rounds)
{
        int r = 0;

        memset(b->content, 0x5a, PAGE_BYTES);
        for (unsigned w = 0; r == 0 && w < N_WHATS; ++w)
                r = series_init(&b->series[w], n, rounds);
        if (r == 0)
                r = fixture_open(&b->fixture, N_PAGES, PAGE_BYTES);
        if (r == 0)
                r = fixture_connect(&b->fixture, 0, &b->client);
        if (r < 0)
                return r;
        r = redis_start(&b->redis, b->fixture.cores[CORE_OTHER]);
        b->has_redis = r == 0;
        return r == -ENOENT ? 0 : r;
}

static int run_data(struct bench_run *run)
{
        static struct data b;
        unsigned n = run->quick ? 50 : 1000;
        int r;

        b.fixture = FIXTURE_INIT;
        b.redis = REDIS_INIT;
        r = setup(&b, n, run->rounds);
        for (unsigned i = 0; r == 0 && i <= run->rounds; ++i)
                r = one_round(&b, n, i == 0);
        if (r == 0)
                report(&b, run);
        fixture_disconnect(&b.client);
        fixture_close(&b.fixture);
        redis_stop(&b.redis);
        redis_request_free(&b.request);
        for (unsigned w = 0; w < N_WHATS; ++w)
                series_deinit(&b.series[w]);
        return r == 0 ? run_data_fresh(run) : r;
}

const struct bench bench_data = {"data", "a page of 64 KiB written and published, found and read",
        7, run_data, .uses_cpu = true};
