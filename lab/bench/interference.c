/*
 * interference: hits of 128 pages of one client, each timed, while another floods the daemon. It
 * floods with requests on the socket, or with publishes and frees through its ring. The flood and
 * the daemon have the other core. It publishes pages that are published already, so that none is
 * evicted.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"
#include "tests/bench/bench.h"
#include "tests/bench/hit.h"
#include "tests/integration/pattern.h"

#define N_KEYS    128
#define BATCH     128
#define IN_FLIGHT 8    /* requests of the socket's flood */
#define N_SAMPLES 5000 /* of a round and kind */

enum flood { NONE, SOCKET, RINGS, N_FLOODS };

struct words {
        _Atomic bool on, failed, ready;
        _Atomic uint64_t n_ops; /* of the flood: batches */
};

struct flooder {
        struct words *words; /* mapped, shared */
        pid_t pid;
};

struct interference {
        struct hit_site *site;
        struct flooder flooders[N_FLOODS]; /* of SOCKET, RINGS */
        struct series hit[N_FLOODS], rate[N_FLOODS];
};

/* ---- the flood ------------------------------------------------------------------------------ */

struct load {
        struct fixture_client client;
        const uint8_t *keys; /* cached; borrowed */
        uint8_t own_keys[BATCH * KVL_KEY_BYTES];
        unsigned n_running;
        bool failed;
};

static void on_done(
        struct kvl_ns *ns, int code, const uint32_t *pages, uint32_t n, uint64_t tokens, void *data)
{
        struct load *l = data;

        l->n_running--;
        l->failed |= code != 0;
}

static void on_found(
        struct kvl_ns *ns, int code, const uint32_t *pages, uint32_t n, uint64_t tokens, void *data)
{
        struct load *l = data;

        l->n_running--;
        l->failed |= code != 0 || kvl_release_start(ns, pages, n, on_done, l) != 0;
        l->n_running++;
}

static int flood_socket(struct load *l)
{
        struct pollfd p = {.fd = kvl_fd(l->client.conn), .events = POLLIN};

        for (unsigned i = 0; i < IN_FLIGHT; ++i) {
                if (kvl_lookup_start(l->client.ns, 0, l->keys, N_KEYS, on_found, l) != 0)
                        return -EIO;
                l->n_running++;
        }
        while (l->n_running > 0 && !l->failed) {
                if (kvl_dispatch(l->client.conn) < 0)
                        return -EIO;
                poll(&p, l->n_running > 0, 1);
        }
        return l->failed ? -EIO : 0;
}

static int flood_rings(struct load *l)
{
        uint32_t pages[BATCH], carriers[BATCH];
        struct kvl_publish p = {.size = sizeof(p),
                .pages = pages,
                .keys = l->own_keys,
                .n_pages = BATCH,
                .last_tokens = FIXTURE_PAGE_TOKENS};
        int r = kvl_lease(l->client.ns, 0, BATCH, pages);

        if (r)
                return r;
        r = kvl_publish(l->client.ns, &p, carriers, NULL);
        if (r == 0)
                return kvl_release(l->client.ns, pages, BATCH);
        if (r != KVL_DUPLICATE)
                return r;
        r = kvl_free(l->client.ns, pages, BATCH);
        return r ? r : kvl_release(l->client.ns, carriers, BATCH);
}

static void flood_main(struct interference *b, unsigned kind)
{
        struct words *w = b->flooders[kind].words;
        static struct load l;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        l.keys = b->site->keys;
        for (unsigned i = 0; i < BATCH; ++i)
                pattern_key(UINT64_MAX, i, l.own_keys + i * KVL_KEY_BYTES);
        if (bench_pin(0, b->site->fixture.cores[CORE_OTHER]) < 0 ||
                fixture_connect(
                        &b->site->fixture, kind == SOCKET ? KVL_CONNECT_NO_SHM : 0, &l.client) < 0)
                atomic_store(&w->failed, true);
        atomic_store(&w->ready, true);
        while (!atomic_load(&w->failed)) {
                if (!atomic_load(&w->on))
                        sleep_msec(1);
                else if ((kind == SOCKET ? flood_socket(&l) : flood_rings(&l)) != 0)
                        atomic_store(&w->failed, true);
                else
                        atomic_fetch_add(&w->n_ops, 1);
        }
        bench_fail(kvl_last_error(), -EIO);
        _exit(1);
}

static int flooder_start(struct interference *b, unsigned kind)
{
        struct flooder *f = &b->flooders[kind];

        f->words = mmap(
                NULL, sizeof(*f->words), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (f->words == MAP_FAILED)
                return bench_fail("memory", -errno);
        f->pid = fork();
        if (f->pid == 0)
                flood_main(b, kind);
        if (f->pid < 0)
                return bench_fail("fork", -errno);
        while (!atomic_load(&f->words->ready))
                sleep_msec(1);
        return 0;
}

static void flooder_stop(struct flooder *f)
{
        if (f->pid <= 0)
                return;
        kill(f->pid, SIGKILL);
        waitpid(f->pid, NULL, 0);
        munmap(f->words, sizeof(*f->words));
}

/* ---- the hits ------------------------------------------------------------------------------- */

static int time_hits(struct interference *b, unsigned kind, unsigned n)
{
        struct words *w = b->flooders[kind].words;
        uint64_t start, n_before = 0;
        int r = 0;

        if (w) {
                atomic_store(&w->on, true);
                sleep_msec(5);
                n_before = atomic_load(&w->n_ops);
        }
        start = now_nsec();
        for (unsigned i = 0; r == 0 && i < n; ++i) {
                struct hit_times t;

                hit_move_window(b->site, N_KEYS);
                r = hit_time(b->site, 0, N_KEYS, &t);
                series_add(&b->hit[kind], t.lookup + t.release);
        }
        if (!w)
                return r;
        series_add(&b->rate[kind], (double)(atomic_load(&w->n_ops) - n_before) * BATCH * 1e9 /
                                           (double)(now_nsec() - start));
        atomic_store(&w->on, false);
        sleep_msec(5);
        return atomic_load(&w->failed) ? bench_fail("the flood", -EIO) : r;
}

static void report(struct interference *b, struct bench_run *run)
{
        static const char *const names[N_FLOODS] = {"", "socket", "rings"};

        series_report(bench_add(run, "ns", "hit-128-quiet"), &b->hit[NONE], NULL, NULL);
        for (unsigned k = SOCKET; k < N_FLOODS; ++k) {
                struct bench_result *r = bench_add(run, "ns", "hit-128-flood-%s", names[k]);

                series_report(r, &b->hit[k], &b->hit[NONE], "quiet");
                r = bench_add(run, "1/s", "flood-%s-pages", names[k]);
                series_report(r, &b->rate[k], NULL, NULL);
        }
}

static int run_all(struct interference *b, struct bench_run *run)
{
        unsigned n = run->quick ? 100 : N_SAMPLES;
        int r = hit_site_open(b->site, run->quick ? 10240 : HIT_OTHERS_PAGES);

        if (r < 0)
                return r;
        if (b->site->fixture.cores[CORE_OTHER] < 0)
                return bench_fail("interference needs two cores", -ENODEV);
        for (unsigned k = 0; r == 0 && k < N_FLOODS; ++k) {
                r = series_init(&b->hit[k], n, run->rounds);
                if (r == 0)
                        r = series_init(&b->rate[k], 1, run->rounds);
                if (r == 0 && k != NONE)
                        r = flooder_start(b, k);
        }
        for (unsigned i = 0; r == 0 && i < run->rounds; ++i)
                for (unsigned k = 0; r == 0 && k < N_FLOODS; ++k) {
                        r = time_hits(b, k, n);
                        series_close_round(&b->hit[k]);
                        series_close_round(&b->rate[k]);
                }
        if (r == 0)
                report(b, run);
        return r;
}

static int run_interference(struct bench_run *run)
{
        static struct hit_site site;
        struct interference b = {.site = &site};
        int r = run_all(&b, run);

        for (unsigned k = 0; k < N_FLOODS; ++k) {
                flooder_stop(&b.flooders[k]);
                series_deinit(&b.hit[k]);
                series_deinit(&b.rate[k]);
        }
        hit_site_close(&site);
        return r;
}

const struct bench bench_interference = {"interference",
        "hits of 128 pages of one client while another floods the daemon", 11, run_interference};
