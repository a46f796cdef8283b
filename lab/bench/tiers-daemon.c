/* Cost of tiers through the daemon: bytes moved down and up by lookups of texts in the lower tier,
 * and leases of other clients meanwhile. */
#include "lab/bench/tiers-daemon.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/macros.h"
#include "lab/bench/tiers.h"
#include "tests/integration/pattern.h"

#define DEVICE_BYTES  ((uint64_t)64 << 20)
#define QUICK_BYTES   ((uint64_t)24 << 20)
#define DEVICES_TEXTS 3 /* as much as so many devices hold */
#define DEVICES_BELOW 4

#define MAX_BUSY_RATIO 1.5 /* specification */
#define LEASE_PAGES    8
#define N_SAMPLES      2000 /* of a round: 20 beyond the 99th percentile */
#define QUICK_SAMPLES  100
#define PAUSE_NSEC     200000 /* between leases; not tuned */

/* ---- texts ----------------------------------------------------------------------------------- */

int cold_open_daemon(struct fixture *f, uint64_t page_bytes, uint64_t device_bytes)
{
        uint64_t n = device_bytes / page_bytes;

        *f = FIXTURE_INIT;
        return fixture_open_tiers(f, n, page_bytes, DEVICES_BELOW * n);
}

static uint8_t *keys_of(const struct cold *c, uint32_t text)
{
        return c->keys + (size_t)text * c->text_pages * KVL_KEY_BYTES;
}

/*
 * Publishes pages first .. text_pages - 1 of a text; writes them if that is all of it. Otherwise
 * old bytes may remain, which saves the processor for the measurement. A page still in the lower
 * tier is found there: our page is given back then.
 */
static int publish_rest(struct cold *c, uint32_t text, uint32_t first)
{
        struct kvl_ns *ns = c->client.ns;
        uint8_t *keys = keys_of(c, text);
        uint32_t *own = c->pages + c->text_pages, n;
        struct kvl_publish p = {.size = sizeof(p),
                .pages = own + first,
                .keys = keys + (size_t)first * KVL_KEY_BYTES,
                .parent_key = first > 0 ? keys + (size_t)(first - 1) * KVL_KEY_BYTES : NULL,
                .n_pages = c->text_pages - first,
                .last_tokens = FIXTURE_PAGE_TOKENS};
        int r = kvl_lease(ns, 0, p.n_pages, own + first);

        if (r)
                return r;
        for (uint32_t i = 0; i < c->text_pages && first == 0; i++)
                memset(kvl_page_ptr(ns, own[i], 0), (int)(text + i), c->page_bytes);
        r = kvl_publish(ns, &p, c->pages + first, &n);
        if (r != KVL_DUPLICATE)
                return r;
        r = 0;
        for (uint32_t i = first; i < c->text_pages && r == 0; i++)
                if (c->pages[i] != own[i])
                        r = kvl_free(ns, &own[i], 1);
        return r;
}

/* Publishes from `first` on, the pages before it being held. Releases all. */
static int publish(struct cold *c, uint32_t text, uint32_t first)
{
        int r = first < c->text_pages ? publish_rest(c, text, first) : 0;

        if (r == 0)
                r = kvl_release(c->client.ns, c->pages, c->text_pages);
        return r ? bench_fail(kvl_last_error(), r) : 0;
}

int cold_fill(struct cold *c, const struct fixture *f, uint64_t device_bytes)
{
        int r;

        *c = (struct cold){.page_bytes = f->page_bytes,
                .text_pages = (uint32_t)(COLD_TEXT_BYTES / f->page_bytes),
                .n_texts = (uint32_t)(DEVICES_TEXTS * device_bytes / COLD_TEXT_BYTES)};
        c->pages = calloc(2 * (size_t)c->text_pages, sizeof(*c->pages));
        c->keys = calloc((size_t)c->n_texts * c->text_pages, KVL_KEY_BYTES);
        if (!c->pages || !c->keys)
                return bench_fail("texts", -ENOMEM);
        for (uint32_t i = 0; i < c->n_texts * c->text_pages; i++)
                pattern_key(7, i, c->keys + (size_t)i * KVL_KEY_BYTES);
        r = fixture_connect(f, 0, &c->client);
        for (uint32_t i = 0; i < c->n_texts && r == 0; i++) {
                r = publish(c, i, 0);
                sleep_msec(10); /* so that cold pages are demoted instead of evicted */
        }
        return r;
}

int cold_find(struct cold *c, uint32_t *ret_n)
{
        uint64_t tokens;
        int r = kvl_lookup(
                c->client.ns, 0, keys_of(c, c->next), c->text_pages, c->pages, ret_n, &tokens);

        if (r == KVL_MISS)
                *ret_n = r = 0;
        return r ? bench_fail(kvl_last_error(), r) : 0;
}

int cold_end(struct cold *c, uint32_t n_found)
{
        int r = publish(c, c->next, n_found);

        c->next = (c->next + 1) % c->n_texts;
        return r;
}

void cold_close(struct cold *c)
{
        if (c->client.conn)
                fixture_disconnect(&c->client);
        free(TAKE(c->pages));
        free(TAKE(c->keys));
}

/* ---- bytes, down and up again ---------------------------------------------------------------- */

enum { MOVED, MEMCPY, N_WHATS };

struct traffic {
        struct fixture fixture;
        struct cold cold;
        struct contest contest; /* memcpy()'s memory */
        struct series series[N_WHATS];
        uint64_t n_found, n_wanted;
};

/* GB/s; bytes moved down and up are counted each. */
static void add_rate(struct series *s, uint64_t bytes, uint64_t start_nsec)
{
        series_add(s, 2.0 * (double)bytes / (double)(now_nsec() - start_nsec));
}

static void copy_text(struct traffic *t, size_t at)
{
        uint8_t *plain = t->contest.plain + at, *stored = t->contest.stored + at;
        uint64_t start = now_nsec();

        for (uint64_t i = 0; i < COLD_TEXT_BYTES; i += t->cold.page_bytes)
                memcpy(stored + i, plain + i, t->cold.page_bytes);
        for (uint64_t i = 0; i < COLD_TEXT_BYTES; i += t->cold.page_bytes)
                memcpy(plain + i, stored + i, t->cold.page_bytes);
        add_rate(&t->series[MEMCPY], COLD_TEXT_BYTES, start);
}

/* Finds and republishes all texts, with a copy of a text after each. */
static int traffic_round(struct traffic *t)
{
        int r = 0;

        for (uint32_t i = 0; i < t->cold.n_texts && r == 0; i++) {
                uint64_t start = now_nsec();
                uint32_t n = 0;

                r = cold_find(&t->cold, &n);
                if (n > 0)
                        add_rate(&t->series[MOVED], n * t->cold.page_bytes, start);
                if (r == 0)
                        r = cold_end(&t->cold, n);
                t->n_found += n;
                t->n_wanted += t->cold.text_pages;
                copy_text(t, i * COLD_TEXT_BYTES % t->contest.bytes);
        }
        for (unsigned w = 0; w < N_WHATS; w++)
                series_close_round(&t->series[w]);
        return r;
}

static int measure_traffic(struct traffic *t, struct bench_run *run, uint64_t page_bytes)
{
        uint64_t device_bytes = run->quick ? QUICK_BYTES : DEVICE_BYTES;
        struct bench_result *result;
        int r = cold_open_daemon(&t->fixture, page_bytes, device_bytes);

        for (unsigned w = 0; w < N_WHATS && r == 0; w++)
                r = series_init(
                        &t->series[w], DEVICES_TEXTS * device_bytes / COLD_TEXT_BYTES, run->rounds);
        if (r == 0)
                r = cold_fill(&t->cold, &t->fixture, device_bytes);
        for (unsigned i = 0; i < run->rounds && r == 0; i++)
                r = traffic_round(t);
        if (r < 0)
                return r;
        result = bench_add(
                run, "GB/s", "demote-promote-daemon-%lluKiB", (unsigned long long)page_bytes >> 10);
        series_report(result, &t->series[MOVED], &t->series[MEMCPY], "memcpy");
        result->p99 = result->baseline_p99 = NAN;
        result = bench_add(
                run, "%", "demote-promote-found-%lluKiB", (unsigned long long)page_bytes >> 10);
        result->median = 100.0 * (double)t->n_found / (double)t->n_wanted;
        return 0;
}

int tiers_traffic(struct bench_run *run)
{
        static const uint64_t sizes[] = {256 << 10, 1 << 20};
        struct contest contest;
        int r = contest_open(&contest, run->quick);

        for (unsigned i = 0; r == 0 && i < ARRAY_SIZE(sizes); i++) {
                struct traffic t = {.fixture = FIXTURE_INIT, .contest = contest};

                r = measure_traffic(&t, run, sizes[i]);
                cold_close(&t.cold);
                fixture_close(&t.fixture);
                for (unsigned w = 0; w < N_WHATS; w++)
                        series_deinit(&t.series[w]);
        }
        contest_close(&contest);
        return r;
}

/* ---- leases of others meanwhile -------------------------------------------------------------- */

enum { IDLE, BUSY, N_LOADS };
enum {
        BY_RING,
        BY_SOCKET,
        BY_REALTIME, /* over the socket, of a loop that is scheduled in real time */
        N_WAYS
};

struct leases {
        struct fixture fixture;
        struct fixture_client clients[N_WAYS];
        pid_t mover;          /* process that turns texts; 0: none */
        atomic_bool *is_busy; /* shared with it */
        uint32_t n_samples;
        unsigned n_ways; /* BY_REALTIME is the last: not every user may */
        struct series series[N_WAYS][N_LOADS];
};

/* Client of another engine: turns texts while it is told to. Never returns. */
static void turn_texts(const struct fixture *f, const atomic_bool *is_busy, uint64_t device_bytes)
{
        struct cold c;
        int r;

        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (f->cores[CORE_OTHER] >= 0)
                (void)bench_pin(0, f->cores[CORE_OTHER]);
        r = cold_fill(&c, f, device_bytes);
        while (r == 0) {
                uint32_t n;

                if (!atomic_load(is_busy)) {
                        sleep_msec(1);
                        continue;
                }
                r = cold_find(&c, &n);
                if (r == 0)
                        r = cold_end(&c, n);
        }
        _exit(1);
}

static int time_leases(struct leases *l, unsigned way, unsigned load)
{
        static const struct timespec pause = {.tv_nsec = PAUSE_NSEC};
        struct fixture_client *c = &l->clients[way];
        uint32_t pages[LEASE_PAGES];
        int r = 0;

        for (uint32_t i = 0; i < l->n_samples && r == 0; i++) {
                uint64_t start;

                nanosleep(&pause, NULL);
                kvl_dispatch(c->conn);
                start = now_nsec();
                r = kvl_lease(c->ns, 0, LEASE_PAGES, pages);
                series_add(&l->series[way][load], bench_usec_since(start));
                if (r == 0)
                        r = kvl_free(c->ns, pages, LEASE_PAGES);
        }
        return r ? bench_fail(kvl_last_error(), r) : 0;
}

/* The mover must still turn texts: else the figures mean nothing. */
static int check_mover(const struct leases *l)
{
        return waitpid(l->mover, NULL, WNOHANG) == 0 ? 0 : bench_fail("who turns texts", -ECHILD);
}

/* The loop's thread alone, as docs/operate/configure.md has systemd do it. 0 or -errno. */
static int schedule(const struct leases *l, unsigned way)
{
        const struct sched_param priority = {.sched_priority = way == BY_REALTIME ? 1 : 0};
        int policy = way == BY_REALTIME ? SCHED_RR | SCHED_RESET_ON_FORK : SCHED_OTHER;

        return sched_setscheduler(l->fixture.daemon.pid, policy, &priority) < 0 ? -errno : 0;
}

static int leases_round(struct leases *l, bool is_warm_up)
{
        int r = 0;

        for (unsigned load = 0; load < N_LOADS && r == 0; load++) {
                atomic_store(l->is_busy, load == BUSY);
                sleep_msec(20); /* until it has begun, or its last text is done */
                for (unsigned way = 0; way < l->n_ways && r == 0; way++) {
                        r = schedule(l, way);
                        r = r < 0 ? bench_fail("scheduling", r) : time_leases(l, way, load);
                }
                if (r == 0)
                        r = check_mover(l);
        }
        for (unsigned way = 0; way < l->n_ways; way++)
                for (unsigned load = 0; load < N_LOADS; load++)
                        (is_warm_up ? series_drop_round : series_close_round)(
                                &l->series[way][load]);
        return r;
}

static int open_leases(struct leases *l, const struct bench_run *run)
{
        uint64_t device_bytes = run->quick ? QUICK_BYTES : DEVICE_BYTES;
        int r = cold_open_daemon(&l->fixture, 256 << 10, device_bytes);

        l->n_samples = run->quick ? QUICK_SAMPLES : N_SAMPLES;
        for (unsigned way = 0; way < N_WAYS; way++)
                for (unsigned load = 0; load < N_LOADS && r == 0; load++)
                        r = series_init(&l->series[way][load], l->n_samples, run->rounds);
        if (r < 0)
                return r;
        l->is_busy = mmap(NULL, sizeof(*l->is_busy), PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (l->is_busy == MAP_FAILED)
                return bench_fail("memory", -errno);
        l->mover = fork();
        if (l->mover == 0)
                turn_texts(&l->fixture, l->is_busy, device_bytes);
        if (l->mover < 0)
                return bench_fail("who turns texts", -errno);
        l->n_ways = schedule(l, BY_REALTIME) == 0 ? N_WAYS : BY_REALTIME;
        for (unsigned way = 0; way < l->n_ways && r == 0; way++)
                r = fixture_connect(
                        &l->fixture, way == BY_RING ? 0 : KVL_CONNECT_NO_SHM, &l->clients[way]);
        return r;
}

static void close_leases(struct leases *l)
{
        if (l->mover > 0) {
                (void)kill(l->mover, SIGKILL);
                (void)waitpid(l->mover, NULL, 0);
        }
        for (unsigned way = 0; way < N_WAYS; way++)
                if (l->clients[way].conn)
                        fixture_disconnect(&l->clients[way]);
        fixture_close(&l->fixture);
        for (unsigned way = 0; way < N_WAYS; way++)
                for (unsigned load = 0; load < N_LOADS; load++)
                        series_deinit(&l->series[way][load]);
}

/* The median of the rounds' 99th percentiles. */
static void report_p99(struct bench_run *run, const char *name, struct series loads[N_LOADS])
{
        struct bench_result *r = bench_add(run, "us", "%s", name);

        series_report(r, &loads[BUSY], &loads[IDLE], "idle");
        r->median = r->p99;
        r->baseline_median = r->baseline_p99;
        r->p99 = r->baseline_p99 = NAN;
        r->max_ratio = MAX_BUSY_RATIO;
}

int tiers_leases(struct bench_run *run)
{
        struct leases l = {.fixture = FIXTURE_INIT};
        int r = open_leases(&l, run);

        for (unsigned i = 0; i <= run->rounds && r == 0; i++)
                r = leases_round(&l, i == 0);
        if (r == 0) {
                report_p99(run, "alloc-p99-busy", l.series[BY_RING]);
                report_p99(run, "alloc-p99-busy-socket", l.series[BY_SOCKET]);
                if (l.n_ways > BY_REALTIME)
                        report_p99(run, "alloc-p99-busy-realtime", l.series[BY_REALTIME]);
                else
                        fprintf(stderr,
                                "kvlease-bench: alloc-p99-busy-realtime is left out: that scheduling needs CAP_SYS_NICE\n");
        }
        close_leases(&l);
        return r;
}
