/*
 * throughput: hits a second of 1 to 4 client processes together, against as many processes that
 * each look up a table of their own. Not pinned: more processes than cores share them.
 */
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"
#include "tests/bench/bench.h"
#include "tests/bench/hit.h"

#define MAX_CLIENTS 4
#define N_KEYS      128
#define RUN_MSEC    300 /* not tuned */

enum side { OWN, TABLE, N_SIDES };

struct words {
        _Atomic unsigned n_ready;
        _Atomic bool go, stop, failed;
        _Atomic uint64_t n_hits;
};

struct throughput {
        struct hit_site *site;
        struct words *words; /* mapped, shared */
        struct series series[MAX_CLIENTS][N_SIDES];
};

static void unpin(void)
{
        cpu_set_t all;

        CPU_ZERO(&all);
        for (int i = 0; i < CPU_SETSIZE; ++i)
                CPU_SET(i, &all);
        sched_setaffinity(0, sizeof(all), &all);
}

static int one_hit(struct hit_site *site, unsigned side)
{
        struct hit_times t;

        hit_move_window(site, N_KEYS);
        return side == OWN ? hit_time(site, 0, N_KEYS, &t) : hit_time_table(site, N_KEYS, &t);
}

static void client(struct throughput *b, unsigned side, unsigned number)
{
        struct hit_site *site = b->site;
        uint64_t n = 0;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        unpin();
        site->random += number;
        if (side == OWN && fixture_connect(&site->fixture, 0, &site->client) < 0)
                atomic_store(&b->words->failed, true);
        for (unsigned i = 0; !atomic_load(&b->words->failed) && i < 2000; ++i) /* warm */
                if (one_hit(site, side) < 0)
                        atomic_store(&b->words->failed, true);
        atomic_fetch_add(&b->words->n_ready, 1);
        while (!atomic_load(&b->words->go))
                sleep_msec(1);
        while (!atomic_load(&b->words->stop) && !atomic_load(&b->words->failed))
                if (one_hit(site, side) < 0)
                        atomic_store(&b->words->failed, true);
                else
                        n++;
        atomic_fetch_add(&b->words->n_hits, n);
        _exit(0);
}

static int time_clients(struct throughput *b, unsigned side, unsigned n_clients, unsigned msec)
{
        pid_t pids[MAX_CLIENTS];
        uint64_t start, nsec;
        int status, r = 0;

        *b->words = (struct words){0};
        for (unsigned i = 0; i < n_clients; ++i) {
                pids[i] = fork();
                if (pids[i] == 0)
                        client(b, side, i);
                if (pids[i] < 0)
                        return bench_fail("fork", -errno);
        }
        while (atomic_load(&b->words->n_ready) < n_clients)
                sleep_msec(1);
        start = now_nsec();
        atomic_store(&b->words->go, true);
        sleep_msec(msec);
        atomic_store(&b->words->stop, true);
        nsec = now_nsec() - start;
        for (unsigned i = 0; i < n_clients; ++i)
                if (waitpid(pids[i], &status, 0) < 0 || status != 0)
                        r = -ECHILD;
        if (r < 0 || atomic_load(&b->words->failed))
                return bench_fail("a client", -EIO);
        series_add(&b->series[n_clients - 1][side],
                (double)atomic_load(&b->words->n_hits) * 1e9 / (double)nsec);
        return 0;
}

static int one_round(struct throughput *b, unsigned msec)
{
        int r = 0;

        for (unsigned n = 1; r == 0 && n <= MAX_CLIENTS; ++n)
                for (unsigned side = 0; r == 0 && side < N_SIDES; ++side) {
                        r = time_clients(b, side, n, msec);
                        series_close_round(&b->series[n - 1][side]);
                }
        return r;
}

static void report(struct throughput *b, struct bench_run *run)
{
        for (unsigned n = 1; n <= MAX_CLIENTS; ++n) {
                struct bench_result *r = bench_add(run, "1/s", "hits-128-%u-clients", n);

                series_report(r, &b->series[n - 1][OWN], &b->series[n - 1][TABLE], "tables");
                r->p99 = r->baseline_p99 = NAN;
        }
}

static int run_throughput(struct bench_run *run)
{
        static struct hit_site site;
        struct throughput b = {.site = &site};
        int r = hit_site_open(&site, run->quick ? 10240 : HIT_OTHERS_PAGES);

        /* Clients connect by themselves. */
        fixture_disconnect(&site.client);
        b.words = mmap(
                NULL, sizeof(*b.words), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (r == 0 && b.words == MAP_FAILED)
                r = bench_fail("memory", -errno);
        for (unsigned n = 0; r == 0 && n < MAX_CLIENTS; ++n)
                for (unsigned side = 0; r == 0 && side < N_SIDES; ++side)
                        r = series_init(&b.series[n][side], 1, run->rounds);
        for (unsigned i = 0; r == 0 && i < run->rounds; ++i)
                r = one_round(&b, run->quick ? 20 : RUN_MSEC);
        if (r == 0)
                report(&b, run);
        for (unsigned n = 0; n < MAX_CLIENTS; ++n)
                for (unsigned side = 0; side < N_SIDES; ++side)
                        series_deinit(&b.series[n][side]);
        hit_site_close(&site);
        return r;
}

const struct bench bench_throughput = {
        "throughput", "hits of 128 pages a second, of 1 to 4 processes", 7, run_throughput};
