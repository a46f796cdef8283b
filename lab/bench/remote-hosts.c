/*
 * remote-hosts: pages through the daemon with two hosts that share a store: two kvleased and a
 * redis-server, all on this host. Measures the effect of an ill store on this host's clients
 * (remote-ill.c), and whether loading pages is faster than computing them. Also measures how long a
 * second host takes for a prefix of 32 k tokens computed by the first one. docs/measure/REMOTE.md
 * gives the expected time: a round trip, and the bytes over the bandwidth. That is the bandwidth of
 * the client of daemon/remote alone, measured between the loads. All again with pages stored as
 * int8.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/exchange/format/envelope.h"
#include "lab/bench/hosts.h"
#include "lab/bench/remote-ill.h"
#include "lab/bench/remote-plain.h"

#define MAX_LOAD_RATIO 1.2
#define MAX_LOST_PART  1 /* % of the loads: fewer */
#define MIX_REPEATS    4 /* of each text in a round: with 9 rounds some 1,000 loads */
#define LONG_CHAIN     200
#define QUICK_PAGES    64
#define MIX_CHAIN      300
#define ANSWER_MSEC    30000
#define MAX_REFUSED    128 /* texts after which the store's speed is measured again */
#define AGAIN_FACTOR   8
#define N_PROBES       64
#define N_PLAIN_VALUES 256 /* of which the mix's rates are made */
#define VALUE_BYTES    (ENVELOPE_BYTES + HOSTS_PAGE_BYTES)
#define BYTES_PER_NSEC (1048576.0 / NSEC_PER_SEC) /* MiB a second */

/* Pages of a text of the mix: 256 to 2,048 tokens. */
static const uint32_t mix_pages[] = {8, 10, 12, 16, 20, 24, 32, 40, 48, 64};

/* Time to compute in the mix, relative to the time to read the bytes. */
static const double mix_factors[] = {0.5, 1, 1.5, 2, 4, 8};

struct mix {
        unsigned n_decisions, n_loads, n_lost; /* n_lost: of the loads */
};

struct bench_state {
        struct hosts hosts;
        struct plain plain;
        uint32_t long_pages;
        struct mix mix[ARRAY_SIZE(mix_factors)];
        unsigned n_refused; /* in a store that is well again, until one was loaded */
        struct series load, formula, speed; /* ms; ms; MiB/s */
        struct series coded;                /* ms */
        struct series probe;                /* us */
};

static uint32_t mix_total(void)
{
        uint32_t n = 0;

        for (unsigned i = 0; i < ARRAY_SIZE(mix_pages); i++)
                n += mix_pages[i];
        return n;
}

/* ---- whether loading is sooner --------------------------------------------------------------- */

/* Asks for an uncached text, which is loaded or not. */
static int decide(struct bench_state *b, unsigned text, double token_nsec, struct mix *m)
{
        const struct hosts_text t = {MIX_CHAIN + text, mix_pages[text]};
        struct hosts_answer a;
        int r = hosts_remove(&b->hosts, t);

        if (r == 0)
                r = hosts_ask(&b->hosts, t, ANSWER_MSEC, &a);
        if (r != 0)
                return r;
        m->n_decisions++;
        m->n_loads += a.n_pages > 0;
        m->n_lost += a.n_pages > 0 &&
                     (double)a.nsec > a.n_pages * (double)HOSTS_PAGE_TOKENS * token_nsec;
        return 0;
}

/* Asks for all texts, with engines of each speed. */
static int mix_round(struct bench_state *b, unsigned n_repeats)
{
        uint64_t nsec;
        int r = plain_read(&b->plain, N_PLAIN_VALUES, &nsec);
        double read_nsec = (double)nsec / N_PLAIN_VALUES / HOSTS_PAGE_TOKENS; /* of a token */

        for (unsigned i = 0; i < ARRAY_SIZE(mix_factors) && r == 0; i++) {
                double token_nsec = read_nsec * mix_factors[i];

                r = hosts_say_prefill(&b->hosts, (double)NSEC_PER_SEC / token_nsec);
                for (unsigned n = 0; n < n_repeats * ARRAY_SIZE(mix_pages) && r == 0; n++)
                        r = decide(b, n % ARRAY_SIZE(mix_pages), token_nsec, &b->mix[i]);
        }
        return r == 0 ? hosts_say_prefill(&b->hosts, 1) : r;
}

/*
 * Loads texts at any price while the store is slow; then it is healthy again, and loads would pay.
 */
static int measure_again(struct bench_state *b)
{
        struct mix m = {0};
        struct hosts_answer a;
        uint64_t nsec;
        int r = plain_read(&b->plain, N_PLAIN_VALUES, &nsec), e;
        double token_nsec = AGAIN_FACTOR * (double)nsec / N_PLAIN_VALUES / HOSTS_PAGE_TOKENS;

        if (r == 0)
                r = hosts_enter(&b->hosts, HOSTS_SLOW);
        if (r != 0)
                return r;
        for (unsigned i = 0; i < ARRAY_SIZE(mix_pages) && r == 0; i++) {
                const struct hosts_text t = {MIX_CHAIN + i, mix_pages[i]};

                r = hosts_remove(&b->hosts, t);
                if (r == 0)
                        r = hosts_ask(&b->hosts, t, ANSWER_MSEC, &a);
        }
        e = hosts_leave(&b->hosts, HOSTS_SLOW);
        if (r == 0)
                r = e;
        if (r == 0)
                r = hosts_say_prefill(&b->hosts, (double)NSEC_PER_SEC / token_nsec);
        while (r == 0 && m.n_loads == 0 && m.n_decisions <= 2 * MAX_REFUSED)
                r = decide(b, m.n_decisions % ARRAY_SIZE(mix_pages), token_nsec, &m);
        b->n_refused = m.n_decisions - m.n_loads;
        return r == 0 ? hosts_say_prefill(&b->hosts, 1) : r;
}

static double percent(unsigned n, unsigned of)
{
        return of > 0 ? 100.0 * n / of : 0;
}

static void report_mix(struct bench_state *b, struct bench_run *run)
{
        struct mix all = {0};
        struct bench_result *r;

        for (unsigned i = 0; i < ARRAY_SIZE(mix_factors); i++) {
                const struct mix *m = &b->mix[i];

                all.n_decisions += m->n_decisions;
                all.n_loads += m->n_loads;
                all.n_lost += m->n_lost;
                r = bench_add(run, "%", "loaded-%g", mix_factors[i]);
                r->median = percent(m->n_loads, m->n_decisions);
                r = bench_add(run, "%", "lost-%g", mix_factors[i]);
                r->median = percent(m->n_lost, m->n_loads);
        }
        r = bench_add(run, "1", "decisions");
        r->median = all.n_decisions;
        r = bench_add(run, "1", "loads");
        r->median = all.n_loads;
        r = bench_add(run, "%", "lost");
        r->median = percent(all.n_lost, all.n_loads);
        r->max_value = MAX_LOST_PART;
        r->is_below = true;
        r = bench_add(run, "1", "refused-after-slow");
        r->median = b->n_refused;
        r->max_value = MAX_REFUSED;
}

static int measure_mix(struct bench_state *b, struct bench_run *run)
{
        struct hosts_text texts[ARRAY_SIZE(mix_pages)];
        int r;

        for (unsigned i = 0; i < ARRAY_SIZE(mix_pages); i++)
                texts[i] = (struct hosts_text){MIX_CHAIN + i, mix_pages[i]};
        r = hosts_share(&b->hosts, texts, ARRAY_SIZE(texts));
        for (unsigned i = 0; i < run->rounds && r == 0; i++)
                r = mix_round(b, run->quick ? 1 : MIX_REPEATS);
        if (r == 0)
                r = measure_again(b);
        if (r == 0)
                report_mix(b, run);
        return r;
}

/* ---- a long prefix --------------------------------------------------------------------------- */

/* Measures what the formula predicts now. */
static int time_formula(struct bench_state *b, double *ret_msec)
{
        uint64_t read_nsec, nsec;
        int r = plain_read(&b->plain, b->long_pages, &read_nsec);

        for (unsigned i = 0; i < N_PROBES && r == 0; i++) {
                r = plain_probe(&b->plain, &nsec);
                series_add(&b->probe, (double)nsec / NSEC_PER_USEC);
        }
        series_close_round(&b->probe);
        series_add(&b->speed,
                (double)(b->long_pages * VALUE_BYTES) / (double)read_nsec / BYTES_PER_NSEC);
        series_close_round(&b->speed);
        *ret_msec =
                (double)read_nsec / NSEC_PER_MSEC + b->probe.medians[b->probe.n_rounds - 1] / 1e3;
        return r;
}

static int time_load(struct bench_state *b, struct series *load)
{
        const struct hosts_text t = {LONG_CHAIN, b->long_pages};
        struct hosts_answer a = {.n_pages = 0};
        int r = hosts_remove(&b->hosts, t);

        if (r == 0)
                r = hosts_ask(&b->hosts, t, ANSWER_MSEC, &a);
        if (r == 0 && a.n_pages < b->long_pages)
                r = bench_fail("a long prefix of another host", -ENODATA);
        if (r != 0)
                return r;
        series_add(load, (double)a.nsec / NSEC_PER_MSEC);
        series_close_round(load);
        return 0;
}

static int long_round(struct bench_state *b)
{
        double msec;
        int r = time_formula(b, &msec);

        if (r == 0)
                r = time_load(b, &b->load);
        if (r != 0)
                return r;
        series_add(&b->formula, msec);
        series_close_round(&b->formula);
        return 0;
}

static void report_long(struct bench_state *b, struct bench_run *run)
{
        struct bench_result *r = bench_add(run, "MiB/s", "get-1MiB");

        series_report(r, &b->speed, NULL, NULL);
        r->p99 = NAN;
        r = bench_add(run, "us", "probe");
        series_report(r, &b->probe, NULL, NULL);
        r = bench_add(run, "ms", "load-%u", b->long_pages * HOSTS_PAGE_TOKENS);
        series_report(r, &b->load, &b->formula, "formula");
        r->p99 = r->baseline_p99 = NAN;
        r->max_ratio = MAX_LOAD_RATIO;
}

static int measure_long(struct bench_state *b, struct bench_run *run)
{
        const struct hosts_text text = {LONG_CHAIN, b->long_pages};
        int r = hosts_share(&b->hosts, &text, 1);

        for (unsigned i = 0; i < run->rounds && r == 0; i++)
                r = long_round(b);
        if (r == 0)
                report_long(b, run);
        return r;
}

/* Measures two hosts with a codec. */
static int measure_coded(struct bench_state *b, struct bench_run *run)
{
        const struct hosts_text text = {LONG_CHAIN, b->long_pages};
        struct bench_result *row;
        int r;

        hosts_close(&b->hosts);
        b->hosts = (struct hosts){0};
        r = hosts_open(&b->hosts, b->long_pages, "int8");
        if (r == 0)
                r = hosts_share(&b->hosts, &text, 1);
        for (unsigned i = 0; i < run->rounds && r == 0; i++)
                r = time_load(b, &b->coded);
        if (r != 0)
                return r;
        row = bench_add(run, "ms", "load-%u-int8", b->long_pages * HOSTS_PAGE_TOKENS);
        series_report(row, &b->coded, &b->load, "no codec");
        row->p99 = row->baseline_p99 = NAN;
        return 0;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int start(struct bench_state *b, const struct bench_run *run)
{
        int r = series_init(&b->load, 1, run->rounds);

        b->long_pages = run->quick ? QUICK_PAGES : HOSTS_LONG_PAGES;
        if (r == 0)
                r = series_init(&b->formula, 1, run->rounds);
        if (r == 0)
                r = series_init(&b->speed, 1, run->rounds);
        if (r == 0)
                r = series_init(&b->probe, N_PROBES, run->rounds);
        if (r == 0)
                r = series_init(&b->coded, 1, run->rounds);
        return r == 0 ? hosts_open(&b->hosts, b->long_pages + mix_total() + ILL_PAGES, "none") : r;
}

static void end(struct bench_state *b)
{
        plain_close(&b->plain);
        hosts_close(&b->hosts);
        series_deinit(&b->load);
        series_deinit(&b->formula);
        series_deinit(&b->speed);
        series_deinit(&b->probe);
        series_deinit(&b->coded);
}

static bool is_wanted(const struct bench_run *run, const char *part)
{
        return !run->argument || strcmp(run->argument, part) == 0;
}

static int run_remote_hosts(struct bench_run *run)
{
        static struct bench_state b;
        int r = start(&b, run);

        if (r == 0 && is_wanted(run, "ill"))
                r = remote_ill(&b.hosts, run);
        if (r == 0)
                r = plain_open(
                        &b.plain, b.hosts.redis.servers[0].address, HOSTS_CONNECTIONS, VALUE_BYTES);
        if (r == 0 && is_wanted(run, "mix"))
                r = measure_mix(&b, run);
        if (r == 0 && is_wanted(run, "long"))
                r = measure_long(&b, run);
        if (r == 0 && is_wanted(run, "long"))
                r = measure_coded(&b, run);
        end(&b);
        return r;
}

const struct bench bench_remote_hosts = {
        .name = "remote-hosts",
        .help = "texts of other hosts, in a store that is well, stopped, slow, dead",
        .rounds = 9,
        .fn = run_remote_hosts,
        .argument = "[PART]",
};
