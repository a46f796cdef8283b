/*
 * Effects of a store that is stopped, slow, dead or cut off. Measures hits of a cached text while
 * another client asks for texts that aren't cached. Measures how late a request with a deadline is,
 * and how long it takes until the store isn't asked any more.
 */
#include "lab/bench/remote-ill.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/macros.h"
#include "tests/integration/pattern.h"
#include "tests/unit/child.h"

#define MAX_HIT_RATIO 1.1 /* of the 99th percentile */
#define MAX_LATE_MSEC 10
#define MAX_OPEN_MSEC 1000
#define N_BLOCKS      20 /* of hits, in each state and round */
#define BLOCK         400
#define SOCKET_BLOCK  20
#define PAUSE_MSEC    5 /* between blocks */
#define ASKING_MSEC   50
#define PATIENCE_NSEC (60 * NSEC_PER_SEC)
#define REQUESTS      3 /* whose deadline is measured, in each state and round */
#define REQUEST_MSEC  100
#define MIDWAY_MSEC   5
#define REQUEST_CHAIN 90

enum way { BY_SHM, BY_SOCKET, N_WAYS };

/* No client asks; the other states are those of hosts_state. */
enum { ILL_IDLE = N_HOSTS_STATES, N_ILL_STATES };

/* State of the store while a request waits. */
enum lateness { LATE_STOPPED, LATE_MIDWAY, LATE_SLOW, N_LATE };
static const char *const late_names[N_LATE] = {"stopped", "stopped-midway", "slow"};

/* The process that asks for texts all the time shares this. */
struct asking {
        _Atomic bool is_on;
        _Atomic uint64_t n_pages, n_asked;
};

/* How late this machine wakes a sleeping thread: no deadline can be more exact. */
struct oversleep {
        pthread_t thread;
        int core;
        _Atomic bool is_over;
        double worst_msec;
};

struct ill {
        struct hosts *h;
        struct asking *asking;
        pid_t asker;
        uint32_t n_held; /* pages of the text that is here, held */
        uint32_t held[ILL_HIT_PAGES];
        unsigned n_blocks;
        struct series hits[N_WAYS][N_ILL_STATES];
        double opened_msec[N_HOSTS_STATES]; /* the worst; NAN: not measured */
        double late_msec[N_LATE], machine_msec;
        unsigned n_waited[N_LATE]; /* requests that took a fifth of their time limit or more */
};

/* ---- a client that asks for missing texts ---------------------------------------------------- */

/* Client of another engine. Never returns. */
static void ask_all_the_time(struct hosts *h, struct asking *a)
{
        struct fixture_client own = {0};
        struct hosts_answer answer;
        uint32_t n_found;
        int r;

        if (h->cores[CORE_OTHER] >= 0)
                (void)bench_pin(0, h->cores[CORE_OTHER]);
        r = hosts_connect(&h->here, "bench-other", 0, &own);
        h->asker = own;
        while (r == 0) {
                if (!atomic_load(&a->is_on)) {
                        sleep_msec(1);
                        continue;
                }
                n_found = 0;
                for (unsigned i = 0; i < ILL_TEXTS && r == 0; i++) {
                        r = hosts_ask(h, (struct hosts_text){ILL_CHAIN + i, ILL_TEXT_PAGES},
                                ASKING_MSEC, &answer);
                        atomic_fetch_add(&a->n_asked, 1);
                        if (r == 0)
                                n_found += answer.n_pages;
                        if (r == 0)
                                atomic_fetch_add(&a->n_pages, answer.n_pages);
                        sleep_msec(1);
                }
                if (r == 0 && n_found > 0)
                        r = hosts_empty(h, h->asker.ns);
        }
        _exit(1);
}

static int start_asker(struct ill *ill)
{
        ill->asking = mmap(NULL, sizeof(*ill->asking), PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (ill->asking == MAP_FAILED)
                return bench_fail("memory", -errno);
        ill->asker = child_fork();
        if (ill->asker == 0)
                ask_all_the_time(ill->h, ill->asking);
        return ill->asker < 0 ? bench_fail("who asks for texts", -errno) : 0;
}

static int check_asker(const struct ill *ill)
{
        return waitpid(ill->asker, NULL, WNOHANG) == 0 ? 0
                                                       : bench_fail("who asks for texts", -ECHILD);
}

/* The asker continues; with a healthy store it finds its texts. */
static int await_asker(struct ill *ill, bool finds)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;
        const _Atomic uint64_t *what = finds ? &ill->asking->n_pages : &ill->asking->n_asked;
        uint64_t n = atomic_load(what);
        int r = 0;

        while (r == 0 && atomic_load(what) < n + 1) {
                r = check_asker(ill);
                if (r == 0 && clock_now_nsec() > until)
                        r = bench_fail("who asks for texts", -ETIMEDOUT);
                sleep_msec(1);
        }
        return r;
}

/* ---- hits meanwhile -------------------------------------------------------------------------- */

static const struct hosts_text hit_text = {ILL_CHAIN + ILL_TEXTS, ILL_HIT_PAGES};

/* Holds the text on the device. A busy daemon may have moved up only a part of it: asks again. */
static int hold_text(struct ill *ill)
{
        struct hosts *h = ill->h;
        uint64_t n_tokens, until = clock_now_nsec() + PATIENCE_NSEC;
        int r;

        for (;;) {
                r = kvl_lookup_wait(h->asker.ns, 0, hosts_keys(h, hit_text), ILL_HIT_PAGES, 10000,
                        ill->held, &ill->n_held, &n_tokens, NULL);
                if (r == 0 && ill->n_held == ILL_HIT_PAGES)
                        return 0;
                if (r == 0)
                        r = kvl_release(h->asker.ns, ill->held, ill->n_held);
                ill->n_held = 0;
                if ((r != 0 && r != KVL_MISS) || clock_now_nsec() > until)
                        return bench_fail("a text that is here", r == 0 ? KVL_MISS : r);
                sleep_msec(100);
        }
}

static int time_hit(struct ill *ill, const uint8_t *keys, enum way way, unsigned state)
{
        struct kvl_ns *ns = way == BY_SHM ? ill->h->asker.ns : ill->h->socket.ns;
        uint64_t n_tokens, began = clock_now_nsec();
        uint32_t pages[ILL_HIT_PAGES], n = 0;
        int r = kvl_lookup(ns, 0, keys, ILL_HIT_PAGES, pages, &n, &n_tokens);

        series_add(&ill->hits[way][state], bench_usec_since(began));
        if (r == 0)
                r = kvl_release(ns, pages, n);
        if (r == 0 && n < ILL_HIT_PAGES)
                r = KVL_MISS;
        return r ? bench_fail(kvl_last_error(), r) : 0;
}

static int time_hits(struct ill *ill, unsigned state)
{
        const uint8_t *keys = hosts_keys(ill->h, hit_text);
        int r = 0;

        for (unsigned b = 0; b < ill->n_blocks && r == 0; b++) {
                sleep_msec(PAUSE_MSEC);
                for (unsigned i = 0; i < BLOCK && r == 0; i++)
                        r = time_hit(ill, keys, BY_SHM, state);
                for (unsigned i = 0; i < SOCKET_BLOCK && r == 0; i++)
                        r = time_hit(ill, keys, BY_SOCKET, state);
        }
        for (unsigned way = 0; way < N_WAYS; way++)
                series_close_round(&ill->hits[way][state]);
        return r;
}

/* The store has just failed: waits until the daemon leaves it alone. */
static int time_breaker(struct ill *ill, enum hosts_state state)
{
        uint64_t began = clock_now_nsec();
        double msec;

        while (hosts_figure(&ill->h->here, "n_nodes_open") < 1)
                if (clock_now_nsec() - began > PATIENCE_NSEC)
                        return bench_fail("a breaker that opens", -ETIMEDOUT);
        msec = bench_usec_since(began) / 1e3;
        ill->opened_msec[state] = fmax(ill->opened_msec[state], msec);
        return 0;
}

static int hits_round(struct ill *ill)
{
        int r = time_hits(ill, ILL_IDLE);

        for (unsigned state = 0; state < N_HOSTS_STATES && r == 0; state++) {
                if (!hosts_can(ill->h, state))
                        continue;
                atomic_store(&ill->asking->is_on, true);
                r = await_asker(ill, true);
                if (r == 0)
                        r = hosts_enter(ill->h, state);
                if (r == 0 && state != HOSTS_WELL && state != HOSTS_SLOW)
                        r = time_breaker(ill, state);
                if (r == 0)
                        r = await_asker(ill, state == HOSTS_WELL);
                if (r == 0)
                        r = time_hits(ill, state);
                atomic_store(&ill->asking->is_on, false);
                if (r == 0)
                        r = hosts_leave(ill->h, state);
                if (r == 0)
                        r = hosts_await_well(ill->h);
        }
        return r;
}

/* ---- deadlines ------------------------------------------------------------------------------- */

static void *sleep_often(void *data)
{
        struct oversleep *o = data;

        if (o->core >= 0)
                (void)bench_pin(0, o->core);
        while (!atomic_load(&o->is_over)) {
                uint64_t until = clock_now_nsec() + NSEC_PER_MSEC, now;

                sleep_msec(1);
                now = clock_now_nsec();
                if (now > until)
                        o->worst_msec = fmax(o->worst_msec, (double)(now - until) / NSEC_PER_MSEC);
        }
        return NULL;
}

static void *stop_midway(void *data)
{
        struct hosts *h = data;

        sleep_msec(MIDWAY_MSEC);
        (void)hosts_enter(h, HOSTS_STOPPED);
        return NULL;
}

/* Requests a text that the store has. */
static int time_request(struct ill *ill, enum lateness what)
{
        const struct hosts_text t = {REQUEST_CHAIN, ILL_REQUEST_PAGES};
        struct hosts_answer a;
        pthread_t stopper;
        double msec;
        int r = hosts_remove(ill->h, t);

        if (r == 0 && what == LATE_MIDWAY &&
                pthread_create(&stopper, NULL, stop_midway, ill->h) != 0)
                r = bench_fail("thread", -EAGAIN);
        if (r != 0)
                return r;
        r = hosts_ask(ill->h, t, REQUEST_MSEC, &a);
        if (what == LATE_MIDWAY) {
                pthread_join(stopper, NULL);
                (void)kill(ill->h->redis.servers[0].pid, SIGCONT);
        }
        msec = (double)a.nsec / NSEC_PER_MSEC;
        ill->n_waited[what] += msec >= REQUEST_MSEC / 5;
        ill->late_msec[what] = fmax(ill->late_msec[what], msec - REQUEST_MSEC);
        return r;
}

static int deadlines_round(struct ill *ill, unsigned n_requests)
{
        static const enum hosts_state states[N_LATE] = {HOSTS_STOPPED, HOSTS_WELL, HOSTS_SLOW};
        struct oversleep asleep[N_CORES] = {
                {.core = ill->h->cores[CORE_CLIENT]}, {.core = ill->h->cores[CORE_OTHER]}};
        double machine_msec = 0;
        int r = 0;

        for (unsigned i = 0; i < N_CORES; i++)
                if (pthread_create(&asleep[i].thread, NULL, sleep_often, &asleep[i]) != 0)
                        abort();
        for (unsigned what = 0; what < N_LATE && r == 0; what++) {
                r = hosts_enter(ill->h, states[what]);
                for (unsigned i = 0; i < n_requests && r == 0; i++) {
                        r = time_request(ill, what);
                        if (r == 0 && what == LATE_MIDWAY)
                                r = hosts_await_well(ill->h);
                }
                if (r == 0)
                        r = hosts_leave(ill->h, states[what]);
                if (r == 0)
                        r = hosts_await_well(ill->h);
        }
        for (unsigned i = 0; i < N_CORES; i++) {
                atomic_store(&asleep[i].is_over, true);
                pthread_join(asleep[i].thread, NULL);
                machine_msec += asleep[i].worst_msec;
        }
        ill->machine_msec = fmax(ill->machine_msec, machine_msec);
        return r;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* The median of the rounds' 99th percentiles. */
static void report_hits(
        struct ill *ill, struct bench_run *run, enum way way, unsigned state, unsigned baseline)
{
        struct bench_result *r = bench_add(run, "us", "hit-%sp99-%s",
                way == BY_SOCKET ? "socket-" : "", hosts_state_names[state]);

        series_report(r, &ill->hits[way][state], &ill->hits[way][baseline],
                baseline == ILL_IDLE ? "nobody asks" : "store well");
        r->median = r->p99;
        r->baseline_median = r->baseline_p99;
        r->p99 = r->baseline_p99 = NAN;
        if (baseline != ILL_IDLE)
                r->max_ratio = MAX_HIT_RATIO;
}

static void report(struct ill *ill, struct bench_run *run)
{
        struct bench_result *r;

        for (unsigned way = 0; way < N_WAYS; way++)
                for (unsigned state = 0; state < N_HOSTS_STATES; state++)
                        if (hosts_can(ill->h, state))
                                report_hits(ill, run, way, state,
                                        state == HOSTS_WELL ? (unsigned)ILL_IDLE : HOSTS_WELL);
        for (unsigned what = 0; what < N_LATE; what++) {
                r = bench_add(run, "ms", "late-%s", late_names[what]);
                r->median = fmax(0, ill->late_msec[what]);
                r->max_value = MAX_LATE_MSEC + ill->machine_msec;
                r = bench_add(run, "1", "late-%s-waited", late_names[what]);
                r->median = ill->n_waited[what];
        }
        r = bench_add(run, "ms", "late-machine");
        r->median = ill->machine_msec;
        for (unsigned state = 0; state < N_HOSTS_STATES; state++) {
                if (isnan(ill->opened_msec[state]))
                        continue;
                r = bench_add(run, "ms", "breaker-%s", hosts_state_names[state]);
                r->median = ill->opened_msec[state];
                r->max_value = MAX_OPEN_MSEC;
        }
}

static int init(struct ill *ill, struct hosts *h, const struct bench_run *run)
{
        int r = 0;

        *ill = (struct ill){.h = h, .n_blocks = run->quick ? 2 : N_BLOCKS};
        for (unsigned i = 0; i < N_HOSTS_STATES; i++)
                ill->opened_msec[i] = NAN;
        for (unsigned i = 0; i < N_LATE; i++)
                ill->late_msec[i] = -REQUEST_MSEC;
        for (unsigned i = 0; i < N_WAYS * N_ILL_STATES && r == 0; i++)
                r = series_init(&ill->hits[i / N_ILL_STATES][i % N_ILL_STATES],
                        (size_t)ill->n_blocks * BLOCK, run->rounds);
        return r == 0 ? start_asker(ill) : r;
}

static void deinit(struct ill *ill)
{
        if (ill->asker > 0) {
                (void)kill(ill->asker, SIGKILL);
                (void)waitpid(ill->asker, NULL, 0);
        }
        if (ill->n_held > 0)
                (void)kvl_release(ill->h->asker.ns, ill->held, ill->n_held);
        for (unsigned i = 0; i < N_WAYS * N_ILL_STATES; i++)
                series_deinit(&ill->hits[i / N_ILL_STATES][i % N_ILL_STATES]);
}

static int share(struct hosts *h)
{
        struct hosts_text texts[ILL_TEXTS + 2];

        for (unsigned i = 0; i < ILL_TEXTS; i++)
                texts[i] = (struct hosts_text){ILL_CHAIN + i, ILL_TEXT_PAGES};
        texts[ILL_TEXTS] = hit_text;
        texts[ILL_TEXTS + 1] = (struct hosts_text){REQUEST_CHAIN, ILL_REQUEST_PAGES};
        return hosts_share(h, texts, ARRAY_SIZE(texts));
}

int remote_ill(struct hosts *h, struct bench_run *run)
{
        static struct ill ill;
        int r = share(h);

        if (r == 0)
                r = hosts_save(h);
        if (r == 0)
                r = init(&ill, h, run);
        hosts_part(h);
        if (r == 0)
                r = hold_text(&ill);
        for (unsigned i = 0; i < run->rounds && r == 0; i++) {
                r = hits_round(&ill);
                if (r == 0)
                        r = deadlines_round(&ill, run->quick ? 1 : REQUESTS);
        }
        if (r == 0)
                report(&ill, run);
        deinit(&ill);
        hosts_spread(h);
        return r;
}
