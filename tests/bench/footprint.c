/* footprint: daemon memory for a cached page, and wakeups of an idle daemon. Pages are published
 * and released. Their memory is never touched, so that only the daemon's own grows. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/macros.h"
#include "client/lib/kvlease.h"
#include "tests/bench/bench.h"
#include "tests/bench/fixture.h"
#include "tests/integration/pattern.h"

#define N_PAGES 1048576 /* specification: 1 M pages resident */
#define BATCH   1024    /* a text of so many pages; protocol */
/* docs/measure/PERFORMANCE.md names every byte. 192 was specified for pages with key, state, pins
 * and place in an LRU. Data of pgi, expiry and explanations was added. */
#define MAX_BYTES 224
/* The device has little more room than for these pages, like a full cache. The index is sized for
 * what the device could hold, 24 bytes for each such page. */
#define SPARE_PARTS 64
#define IDLE_MSEC   5000 /* specification: an idle daemon makes no wakeups; not tuned */
/* After two seconds leased pages aren't kept ready any more (prealloc.c), and periodic work has
 * run. */
#define SETTLE_MSEC 3500

struct footprint {
        struct fixture fixture;
        struct fixture_client client;
};

/* Leases, publishes and releases one text. */
static int publish_text(struct footprint *b, unsigned text)
{
        static uint32_t pages[BATCH];
        static uint8_t keys[BATCH * KVL_KEY_BYTES];
        struct kvl_publish p = {.size = sizeof(p),
                .pages = pages,
                .keys = keys,
                .n_pages = BATCH,
                .last_tokens = 16};
        int r = kvl_lease(b->client.ns, 0, BATCH, pages);

        for (unsigned i = 0; i < BATCH; ++i)
                pattern_key(text, i, keys + i * KVL_KEY_BYTES);
        if (r == 0)
                r = kvl_publish(b->client.ns, &p, NULL, NULL);
        if (r == 0)
                r = kvl_release(b->client.ns, pages, BATCH);
        return r ? bench_fail(kvl_last_error(), r) : 0;
}

/* KiB: private memory, and segments (the daemon maps no page memory). Negative errno. */
static int64_t daemon_memory(pid_t pid)
{
        int64_t private = proc_status_value(pid, "RssAnon");
        int64_t shared = proc_status_value(pid, "RssShmem");

        return private < 0 ? private : shared < 0 ? shared : private + shared;
}

static int measure_pages(struct footprint *b, unsigned n_pages, double *ret_bytes)
{
        int64_t before = daemon_memory(b->fixture.daemon.pid), after;
        int r = 0;

        for (unsigned text = 0; r == 0 && text < n_pages / BATCH; ++text)
                r = publish_text(b, text);
        if (r < 0)
                return r;
        sleep_msec(SETTLE_MSEC);
        after = daemon_memory(b->fixture.daemon.pid);
        if (before < 0 || after < 0)
                return bench_fail("memory of kvleased", -ENOENT);
        *ret_bytes = (double)(after - before) * 1024 / n_pages;
        return 0;
}

/* How often the daemon's threads went to sleep, which equals their wakeups. */
static int64_t count_switches(pid_t pid)
{
        int64_t sum = 0;
        char path[64];
        DIR *dir;

        snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
        dir = opendir(path);
        if (!dir)
                return -errno;
        for (struct dirent *e; (e = readdir(dir));)
                if (e->d_name[0] != '.')
                        sum += proc_status_value(
                                (pid_t)strtol(e->d_name, NULL, 10), "voluntary_ctxt_switches");
        closedir(dir);
        return sum;
}

/* A client is connected, the cache is full, and no request comes. There is no watchdog here. */
static int measure_idle(struct footprint *b, unsigned msec, double *ret_wakeups)
{
        int64_t before = count_switches(b->fixture.daemon.pid), after;

        sleep_msec(msec);
        after = count_switches(b->fixture.daemon.pid);
        if (before < 0 || after < 0)
                return bench_fail("switches of kvleased", -ENOENT);
        *ret_wakeups = (double)(after - before);
        return 0;
}

static int one_round(unsigned n_pages, unsigned idle_msec, double *ret_bytes, double *ret_wakeups)
{
        struct footprint b = {.fixture = FIXTURE_INIT};
        int r = fixture_open(&b.fixture, n_pages + n_pages / SPARE_PARTS, FIXTURE_PAGE_BYTES);

        if (r == 0)
                r = fixture_connect(&b.fixture, 0, &b.client);
        if (r == 0)
                r = measure_pages(&b, n_pages, ret_bytes);
        if (r == 0)
                r = measure_idle(&b, idle_msec, ret_wakeups);
        fixture_disconnect(&b.client);
        fixture_close(&b.fixture);
        return r;
}

static void report(struct bench_run *run, double *bytes, double *wakeups)
{
        struct bench_result *r = bench_add(run, "bytes", "page");

        r->median = bench_quantile(bytes, run->rounds, 0.5);
        r->max_value = MAX_BYTES;
        r = bench_add(run, "1", "idle-wakeups");
        r->median = bench_quantile(wakeups, run->rounds, 0.5);
        r->max_value = 0;
}

static int run_footprint(struct bench_run *run)
{
        double *bytes = calloc(run->rounds, sizeof(double));
        double *wakeups = calloc(run->rounds, sizeof(double));
        int r = bytes && wakeups ? 0 : bench_fail("rounds", -ENOMEM);

        for (unsigned i = 0; r == 0 && i < run->rounds; ++i)
                r = one_round(run->quick ? 16 * BATCH : N_PAGES, run->quick ? 200 : IDLE_MSEC,
                        &bytes[i], &wakeups[i]);
        if (r == 0)
                report(run, bytes, wakeups);
        free(bytes);
        free(wakeups);
        return r;
}

const struct bench bench_footprint = {"footprint",
        "the daemon's memory for each of 1 M cached pages, and its wakeups while idle", 1,
        run_footprint};
