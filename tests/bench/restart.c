/*
 * restart: kvleased is killed under a worker that continues, and recovers everything. Measures the
 * time until it is READY again, beside an empty one. Measures the longest hit, lease and publish
 * meanwhile, beside an equally long time without a restart. Counts missing pages. Pages' memory is
 * never touched.
 */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/clock.h"
#include "base/macros.h"
#include "tests/bench/bench.h"
#include "tests/bench/fixture.h"
#include "tests/integration/pattern.h"

#define HIT_KEYS    16   /* of a lookup */
#define WINDOW_MSEC 1500 /* that is looked at without a restart, and after one was READY */
#define READY_MSEC  500  /* promised at 1 M pages */
#define SEED        1

enum { PAUSE_HIT, PAUSE_LEASE, PAUSE_PUBLISH, N_PAUSES };
static const char *const pause_names[N_PAUSES] = {"hit", "lease", "publish"};

struct traffic {
        struct kvl_ns *ns;
        const uint8_t *keys;
        uint32_t n_pages;
        _Atomic bool stop;
        _Atomic int code;
        _Atomic uint64_t n_missed, n_published;
        _Atomic uint64_t longest_nsec[N_PAUSES];
};

static void note(struct traffic *t, unsigned what, uint64_t begin_nsec)
{
        uint64_t nsec = clock_now_nsec() - begin_nsec;

        if (nsec > atomic_load(&t->longest_nsec[what]))
                atomic_store(&t->longest_nsec[what], nsec);
}

static const uint8_t *text_keys(const struct traffic *t, uint64_t text)
{
        return t->keys + text * FIXTURE_TEXT * KVL_KEY_BYTES;
}

static void *hit(void *data)
{
        struct traffic *t = data;
        uint32_t pages[HIT_KEYS];
        uint64_t random = SEED;
        int r = 0;

        while (r == 0 && !atomic_load(&t->stop)) {
                uint64_t n_tokens, begin_nsec = clock_now_nsec();
                uint64_t text = pattern_next(&random) % (t->n_pages / FIXTURE_TEXT);
                uint32_t n = 0;

                r = kvl_lookup(t->ns, 0, text_keys(t, text), HIT_KEYS, pages, &n, &n_tokens);
                note(t, PAUSE_HIT, begin_nsec);
                if (r == KVL_MISS)
                        r = 0;
                atomic_fetch_add(&t->n_missed, HIT_KEYS - n);
                if (r == 0 && n > 0)
                        r = kvl_release(t->ns, pages, n);
                usleep(50); /* the daemon needs a core, too */
        }
        if (r != 0)
                atomic_store(&t->code, bench_fail(kvl_last_error(), r));
        return NULL;
}

/* Leases a page, publishes it under a cached key (DUPLICATE), and frees it: the cache doesn't
 * change. */
static int publish_one(struct traffic *t, uint64_t text)
{
        uint64_t begin_nsec = clock_now_nsec();
        uint32_t page, found, n_done;
        struct kvl_publish p = {.size = sizeof(p),
                .pages = &page,
                .keys = text_keys(t, text),
                .n_pages = 1,
                .last_tokens = FIXTURE_PAGE_TOKENS};
        int r = kvl_lease(t->ns, 0, 1, &page);

        if (r != 0)
                return r;
        note(t, PAUSE_LEASE, begin_nsec);
        begin_nsec = clock_now_nsec();
        r = kvl_publish(t->ns, &p, &found, &n_done);
        note(t, PAUSE_PUBLISH, begin_nsec);
        if (r == KVL_DUPLICATE)
                r = 0;
        if (r == 0)
                r = kvl_release(t->ns, &found, 1);
        if (r == 0 && found != page)
                r = kvl_free(t->ns, &page, 1);
        atomic_fetch_add(&t->n_published, 1);
        return r;
}

static void *publish(void *data)
{
        struct traffic *t = data;
        uint64_t random = SEED + 1;
        int r = 0;

        while (r == 0 && !atomic_load(&t->stop)) {
                r = publish_one(t, pattern_next(&random) % (t->n_pages / FIXTURE_TEXT));
                usleep(200);
        }
        if (r != 0)
                atomic_store(&t->code, bench_fail(kvl_last_error(), r));
        return NULL;
}

/* Pid of the daemon itself, not of its keeper. Negative errno. */
static pid_t daemon_pid(const struct private_daemon *d)
{
        const char *const argv[] = {program_ctl(), "--socket", d->admin, "--json", "status", NULL};
        struct proc_output out;
        pid_t pid = -ENOENT;
        json_t *status;

        if (proc_run(argv, NULL, 60000, &out) < 0)
                return -EIO;
        status = json_loads(out.out, 0, NULL);
        if (json_object_get(status, "pid"))
                pid = (pid_t)json_integer_value(json_object_get(status, "pid"));
        json_decref(status);
        proc_output_free(&out);
        return pid;
}

/* Kills it and waits; *ret_msec: milliseconds until READY. */
static int kill_and_await(struct private_daemon *d, double *ret_msec)
{
        pid_t pid = daemon_pid(d);
        uint64_t begin_nsec;
        int r;

        if (pid < 0)
                return bench_fail("kvleasectl status", pid);
        begin_nsec = clock_now_nsec();
        kill(pid, SIGKILL);
        r = private_daemon_await(d);
        *ret_msec = (double)(clock_now_nsec() - begin_nsec) / NSEC_PER_MSEC;
        return r < 0 ? bench_fail("kvleased after it was killed", r) : 0;
}

struct found {
        double ready_msec, empty_msec, n_lost;
        double pause_msec[N_PAUSES], calm_msec[N_PAUSES];
};

static void take_longest(struct traffic *t, double *ret_msec)
{
        for (unsigned i = 0; i < N_PAUSES; ++i)
                ret_msec[i] = (double)atomic_exchange(&t->longest_nsec[i], 0) / NSEC_PER_MSEC;
}

/* Measures with traffic: a calm window, then one with a restart in it. */
static int measure(
        struct traffic *t, struct private_daemon *d, unsigned window_msec, struct found *ret)
{
        uint64_t n;
        int r;

        sleep_msec(window_msec / 2); /* magazines fill, caches warm */
        take_longest(t, ret->calm_msec);
        sleep_msec(window_msec);
        take_longest(t, ret->calm_msec);
        r = kill_and_await(d, &ret->ready_msec);
        if (r < 0)
                return r;
        sleep_msec(window_msec);
        n = atomic_load(&t->n_published);
        while (atomic_load(&t->n_published) < n + 2 && atomic_load(&t->code) == 0)
                sleep_msec(1);
        take_longest(t, ret->pause_msec);
        return atomic_load(&t->code);
}

static int with_traffic(
        struct traffic *t, struct private_daemon *d, unsigned window_msec, struct found *ret)
{
        pthread_t hits, publishes;
        int r;

        if (pthread_create(&hits, NULL, hit, t) != 0)
                return bench_fail("thread", -EAGAIN);
        if (pthread_create(&publishes, NULL, publish, t) != 0) {
                atomic_store(&t->stop, true);
                pthread_join(hits, NULL);
                return bench_fail("thread", -EAGAIN);
        }
        r = measure(t, d, window_msec, ret);
        atomic_store(&t->stop, true);
        pthread_join(hits, NULL);
        pthread_join(publishes, NULL);
        return r;
}

/* Counts keys that aren't cached any more. */
static int count_lost(struct traffic *t, double *ret_n)
{
        uint64_t n_lost;
        int r = fixture_count_lost(t->ns, t->keys, t->n_pages, &n_lost);

        *ret_n = (double)(atomic_load(&t->n_missed) + n_lost);
        return r;
}

static int one_round(uint32_t n_pages, unsigned window_msec, struct found *ret)
{
        struct fixture f = FIXTURE_INIT;
        struct fixture_client client = {0};
        uint8_t *keys = malloc((size_t)n_pages * KVL_KEY_BYTES);
        uint32_t *pages = malloc(n_pages * sizeof(*pages));
        struct traffic t = {.keys = keys, .n_pages = n_pages};
        int r = keys && pages ? 0 : bench_fail("keys", -ENOMEM);

        if (r == 0)
                r = fixture_open_kept(&f, n_pages + n_pages / 16 + 4096, FIXTURE_PAGE_BYTES);
        if (r == 0)
                r = kill_and_await(&f.daemon, &ret->empty_msec);
        if (r == 0)
                r = fixture_connect(&f, 0, &client);
        t.ns = client.ns;
        if (r == 0)
                r = fixture_fill(client.ns, SEED, n_pages, keys, pages);
        if (r == 0)
                r = with_traffic(&t, &f.daemon, window_msec, ret);
        if (r == 0)
                r = count_lost(&t, &ret->n_lost);
        fixture_disconnect(&client);
        fixture_close(&f);
        free(keys);
        free(pages);
        return r;
}

/* A quantile of one figure over the rounds. */
static double quantile_of(const struct found *found, unsigned n, size_t offset, double q)
{
        double values[64];

        n = MIN(n, (unsigned)ARRAY_SIZE(values));
        for (unsigned i = 0; i < n; ++i)
                values[i] = *(const double *)((const char *)&found[i] + offset);
        return bench_quantile(values, n, q);
}

#define MEDIAN(field) quantile_of(found, run->rounds, offsetof(struct found, field), 0.5)
#define WORST(field)  quantile_of(found, run->rounds, offsetof(struct found, field), 1)

static void report(struct bench_run *run, const char *size, const struct found *found)
{
        struct bench_result *r = bench_add(run, "ms", "ready-%s", size);

        r->median = MEDIAN(ready_msec);
        r->baseline = "empty";
        r->baseline_median = MEDIAN(empty_msec);
        r->max_value = READY_MSEC;
        for (unsigned i = 0; i < N_PAUSES; ++i) {
                r = bench_add(run, "ms", "longest-%s-%s", pause_names[i], size);
                r->median = MEDIAN(pause_msec[i]);
                r->baseline = "no restart";
                r->baseline_median = MEDIAN(calm_msec[i]);
        }
        r = bench_add(run, "1", "lost-pages-%s", size);
        r->median = WORST(n_lost);
        r->max_value = 0;
}

static int run_restart(struct bench_run *run)
{
        static const uint32_t sizes[] = {10, 100, 1024}; /* texts */
        size_t n_sizes = run->quick ? 1 : ARRAY_SIZE(sizes);
        struct found *found = calloc(run->rounds, sizeof(*found));
        int r = found ? 0 : bench_fail("rounds", -ENOMEM);
        char name[16];

        for (size_t i = 0; r == 0 && i < n_sizes; ++i) {
                uint32_t n_pages = sizes[i] * FIXTURE_TEXT;

                for (unsigned k = 0; r == 0 && k < run->rounds; ++k)
                        r = one_round(n_pages, run->quick ? 50 : WINDOW_MSEC, &found[k]);
                if (r == 0)
                        report(run, fixture_count_name(n_pages, name), found);
        }
        free(found);
        return r;
}

const struct bench bench_restart = {
        .name = "restart",
        .help = "kvleased killed under traffic: time to READY, longest pauses, pages lost",
        .rounds = 3,
        .fn = run_restart,
};
