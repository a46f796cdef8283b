/*
 * qos: what is promised to a pinned tenant, and how the others share the rest. Rounds alternate:
 * the pinned tenant's client beside 8 burners that don't use the daemon ("alone"), and beside 8
 * dynamic tenants ("loaded"). Both compete for the cores, and go through as much memory; so the
 * difference is the daemon's.
 */
#include "tests/bench/qos.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/macros.h"

#define MIB (UINT64_C(1) << 20)

/* Specification. */
#define MAX_ALLOC_RATIO 2.0
#define MAX_HIT_RATIO   1.3
#define MIN_USED        0.95
#define MAX_SHARE_ERROR 0.05

#define N_STEPS    1500  /* of a round: 1.5 s; not tuned */
#define WARM_STEPS 6000  /* until the pinned tenant's cache is full; not tuned */
#define WARM_MSEC  30000 /* at most, until the others share the pool; not tuned */
#define ALONE_NAME "8 burners"
#define CTL_MSEC   60000
#define MAX_ROUNDS 1000

const unsigned qos_weights[QOS_DYNAMIC] = {100, 100, 100, 100, 200, 200, 300, 500};

enum what { ALLOC, HIT, N_WHATS };

struct bench_qos {
        struct qos q;
        struct qos_pinned *pinned;
        struct series series[N_WHATS][QOS_N_PHASES];
        struct series copied[QOS_N_PHASES]; /* bytes a second */
        struct series used, share_error;
        double converged_msec;
};

/* ---- setup ---------------------------------------------------------------------------------- */

uint64_t qos_fair(const struct qos *q, unsigned tenant)
{
        uint64_t sum = 0;

        for (unsigned i = 0; i < QOS_DYNAMIC; ++i)
                sum += qos_weights[i];
        return qos_pool(q) * qos_weights[tenant] / sum;
}

int qos_connect(const struct private_daemon *d, const char *tenant, unsigned flags,
        struct kvl_conn **ret_conn, struct kvl_ns **ret_ns)
{
        char socket[PRIVATE_PATH_MAX];
        struct kvl_connect_options o = {.size = sizeof(o),
                .socket_path = private_daemon_socket(d, tenant, socket),
                .client_name = "kvlease-bench",
                .flags = flags};
        struct kvl_layout layout = {.size = sizeof(layout),
                .model = "bench",
                .version = "1",
                .dtype = KVL_DTYPE_F16,
                .n_layers = 1,
                .n_kv_heads = 1,
                .head_size = 64,
                .page_tokens = QOS_PAGE_TOKENS,
                .n_planes = 1,
                .plane_page_bytes = QOS_PAGE_BYTES,
                .tp_size = 1};
        int r = kvl_connect(&o, ret_conn);

        if (r == 0)
                r = kvl_ns_open(*ret_conn, "bench", &layout, NULL, 0, ret_ns);
        return r ? bench_fail(kvl_last_error(), r) : 0;
}

static int start_daemon(struct qos *q, bool quick)
{
        struct private_tenant tenants[QOS_DYNAMIC + 2] = {{NULL, NULL}};
        char names[QOS_DYNAMIC][8], lines[QOS_DYNAMIC + 1][96], device[96];
        struct private_options o = {.tenants = tenants, .device_lines = device};
        int r;

        q->budget = (quick ? 96 : 512) * MIB;
        q->reserve = (quick ? 32 : 64) * MIB;
        snprintf(device, sizeof(device), "memory = %llu\nextent = %llu\n",
                (unsigned long long)q->budget, (unsigned long long)QOS_EXTENT_BYTES);
        for (unsigned i = 0; i < QOS_DYNAMIC; ++i) {
                snprintf(names[i], sizeof(names[i]), "t%u", i);
                snprintf(lines[i], sizeof(lines[i]),
                        "weight = %u\nwhen_full = queue\nmax_wait = 100ms\n", qos_weights[i]);
                tenants[i] = (struct private_tenant){names[i], lines[i]};
        }
        snprintf(lines[QOS_DYNAMIC], sizeof(lines[QOS_DYNAMIC]),
                "class = pinned\nreserve = %llu\nburst = none\nwhen_full = queue\n",
                (unsigned long long)q->reserve);
        tenants[QOS_DYNAMIC] = (struct private_tenant){"pinned", lines[QOS_DYNAMIC]};
        tenants[QOS_DYNAMIC + 1] = (struct private_tenant){NULL, NULL};
        r = private_daemon_init(&q->daemon, &o);
        if (r == 0)
                r = private_daemon_start(&q->daemon);
        return r < 0 ? bench_fail("private kvleased", r) : 0;
}

/* ---- what the daemon says ------------------------------------------------------------------- */

json_t *qos_ctl(const struct private_daemon *d, const char *words)
{
        const char *argv[16] = {program_ctl(), "--socket", d->admin, "--json"};
        struct proc_output out;
        json_t *reply = NULL;
        char line[128], *save = NULL;
        unsigned n = 4;

        snprintf(line, sizeof(line), "%s", words);
        for (char *w = strtok_r(line, " ", &save); w && n + 1 < ARRAY_SIZE(argv);
                w = strtok_r(NULL, " ", &save))
                argv[n++] = w;
        if (proc_run(argv, NULL, CTL_MSEC, &out) < 0) {
                fprintf(stderr, "kvlease-bench: kvleasectl %s: doesn't run\n", words);
                return NULL;
        }
        if (WIFEXITED(out.status) && WEXITSTATUS(out.status) == 0)
                reply = json_loads(out.out, 0, NULL);
        if (!reply)
                fprintf(stderr, "kvlease-bench: kvleasectl %s: %s%s\n", words, out.out, out.err);
        proc_output_free(&out);
        return reply;
}

double qos_tenant(const json_t *reply, const char *tenant, const char *number)
{
        const json_t *row, *value;
        size_t i;

        json_array_foreach(json_object_get(reply, "tenants"), i, row)
        {
                const char *is = json_string_value(json_object_get(row, "name"));

                value = json_object_get(row, number);
                if (is && strcmp(is, tenant) == 0 && value)
                        return json_number_value(value);
        }
        return NAN;
}

/* How the dynamic tenants share the pool now. */
struct sharing {
        double held[QOS_DYNAMIC], sum; /* bytes */
        double error; /* the largest distance from a share, relative to the allowed one */
};

static int look(const struct qos *q, struct sharing *ret)
{
        json_t *reply = qos_ctl(&q->daemon, "tenants list");
        char name[8];

        if (!reply)
                return -EIO;
        *ret = (struct sharing){.sum = 0};
        for (unsigned i = 0; i < QOS_DYNAMIC; ++i) {
                snprintf(name, sizeof(name), "t%u", i);
                ret->held[i] = qos_tenant(reply, name, "charged_bytes");
                ret->sum += ret->held[i];
        }
        json_decref(reply);
        if (isnan(ret->sum))
                return bench_fail("kvleasectl tenants list: a tenant is missing", -EIO);
        for (unsigned i = 0; i < QOS_DYNAMIC; ++i) {
                double fair = ret->sum * (double)qos_fair(q, i) / (double)qos_pool(q);
                double most = MAX(MAX_SHARE_ERROR * fair, (double)QOS_EXTENT_BYTES);

                ret->error = fmax(ret->error, fabs(ret->held[i] - fair) / most);
        }
        return 0;
}

static void show(const struct qos *q)
{
        struct sharing s;

        for (unsigned i = 0; look(q, &s) == 0 && i < QOS_DYNAMIC; ++i)
                fprintf(stderr, "  t%u weight %u: %.0f MiB, its share is %.1f MiB\n", i,
                        qos_weights[i], s.held[i] / MIB, (double)qos_fair(q, i) / MIB);
}

/* ---- rounds --------------------------------------------------------------------------------- */

static int one_round(struct bench_qos *b, unsigned phase, unsigned n_steps)
{
        struct qos_work before, after;
        int r = qos_load_switch(&b->q, (int)phase);

        if (r < 0)
                return r;
        before = qos_load_work(&b->q, phase);
        r = qos_pinned_run(b->pinned, n_steps, &b->series[ALLOC][phase], &b->series[HIT][phase]);
        after = qos_load_work(&b->q, phase);
        if (phase == QOS_LOADED)
                qos_load_burn_like(&b->q, before);
        series_add(&b->copied[phase], (double)(after.n_copied - before.n_copied) * QOS_PAGE_BYTES *
                                              1e9 / (double)(after.at_nsec - before.at_nsec));
        series_close_round(&b->copied[phase]);
        for (unsigned w = 0; w < N_WHATS; ++w)
                series_close_round(&b->series[w][phase]);
        if (r == 0 && phase == QOS_LOADED) {
                struct sharing s;

                r = look(&b->q, &s);
                series_add(&b->used, s.sum);
                series_add(&b->share_error, s.error);
                series_close_round(&b->used);
                series_close_round(&b->share_error);
        }
        return r;
}

/* Runs until the pinned tenant's cache is full and the others have their shares, or long enough. */
static int warm_up(struct bench_qos *b, bool quick)
{
        struct series nowhere = {0};
        struct sharing s = {.error = 0};
        struct qos_work before;
        uint64_t start = now_nsec();
        int r = qos_load_switch(&b->q, QOS_LOADED);

        while (r == 0 && bench_usec_since(start) / 1000 < WARM_MSEC) {
                r = look(&b->q, &s);
                if (r == 0 && s.error <= 1 && s.sum >= MIN_USED * (double)qos_pool(&b->q))
                        break;
                if (r == 0)
                        sleep_msec(20);
        }
        b->converged_msec = bench_usec_since(start) / 1000;
        before = qos_load_work(&b->q, QOS_LOADED);
        if (r == 0)
                r = qos_pinned_run(
                        b->pinned, quick ? WARM_STEPS / 20 : WARM_STEPS, &nowhere, &nowhere);
        qos_load_burn_like(&b->q, before);
        return r;
}

/* ---- results -------------------------------------------------------------------------------- */

/* Median over the rounds of loaded / alone, of the p99s. */
static double median_ratio(const struct series *s)
{
        double ratios[MAX_ROUNDS];
        unsigned n = MIN(s[QOS_ALONE].n_rounds, s[QOS_LOADED].n_rounds);

        for (unsigned i = 0; i < n; ++i)
                ratios[i] = s[QOS_LOADED].p99s[i] / s[QOS_ALONE].p99s[i];
        return n > 0 ? bench_quantile(ratios, n, 0.5) : NAN;
}

static void report_latencies(struct bench_qos *b, struct bench_run *run)
{
        static const char *const names[N_WHATS] = {"lease", "hit"};
        static const double bounds[N_WHATS] = {MAX_ALLOC_RATIO, MAX_HIT_RATIO};

        for (unsigned w = 0; w < N_WHATS; ++w) {
                struct bench_result *r = bench_add(run, "1", "%s-p99-per-round", names[w]);

                r->median = median_ratio(b->series[w]); /* before a report sorts the rounds */
                r->max_value = bounds[w];
                r = bench_add(run, "ns", "pinned-%s", names[w]);
                series_report(r, &b->series[w][QOS_LOADED], &b->series[w][QOS_ALONE], ALONE_NAME);
        }
}

static void add_value(
        struct bench_run *run, const char *unit, const char *name, double value, double max)
{
        struct bench_result *r = bench_add(run, unit, "%s", name);

        r->median = value;
        r->max_value = max;
}

static int report(struct bench_qos *b, struct bench_run *run)
{
        struct qos_pinned_counts c = qos_pinned_counts(b->pinned);
        json_t *reply = qos_ctl(&b->q.daemon, "tenants list");
        struct bench_result *r;

        if (!reply)
                return -EIO;
        report_latencies(b, run);
        add_value(run, "1", "pinned-refusals", qos_tenant(reply, "pinned", "refusals"), 0);
        add_value(run, "1", "pinned-waits", qos_tenant(reply, "pinned", "waits"), 0);
        add_value(run, "1", "pinned-refused-client", (double)c.refused, 0);
        add_value(run, "1", "pinned-waited-client", (double)c.waited, 0);
        add_value(run, "1", "pinned-missed", (double)c.missed, NAN);
        add_value(run, "1", "pinned-late", (double)c.late, NAN);
        r = bench_add(run, "bytes", "pinned-reserve-used");
        r->median = qos_tenant(reply, "pinned", "charged_bytes");
        r->baseline = "the reserve";
        r->baseline_median = (double)b->q.reserve;
        r = bench_add(run, "bytes", "dynamic-pool-used");
        series_report(r, &b->used, NULL, NULL);
        r->p99 = NAN;
        r->baseline = "the pool";
        r->baseline_median = (double)qos_pool(&b->q);
        r->min_ratio = MIN_USED;
        r = bench_add(run, "1", "share-error-of-allowed");
        series_report(r, &b->share_error, NULL, NULL);
        r->p99 = NAN;
        r->max_value = 1;
        if (!run->quick && !bench_reached(r))
                show(&b->q);
        add_value(run, "ms", "shares-converged", b->converged_msec, NAN);
        r = bench_add(run, "B/s", "competitors-copy");
        series_report(r, &b->copied[QOS_LOADED], &b->copied[QOS_ALONE], ALONE_NAME);
        r->p99 = r->baseline_p99 = NAN;
        add_value(run, "1", "dynamic-refused", (double)atomic_load(&b->q.words->n_refused), NAN);
        json_decref(reply);
        return 0;
}

/* ---- all ------------------------------------------------------------------------------------ */

static int setup(struct bench_qos *b, struct bench_run *run, unsigned n_steps)
{
        unsigned rounds = run->rounds;
        int r = bench_find_cores(b->q.cores);

        for (unsigned p = 0; r == 0 && p < QOS_N_PHASES; ++p) {
                for (unsigned w = 0; r == 0 && w < N_WHATS; ++w)
                        r = series_init(&b->series[w][p], n_steps, rounds);
                if (r == 0)
                        r = series_init(&b->copied[p], 1, rounds);
        }
        if (r == 0)
                r = series_init(&b->used, 1, rounds);
        if (r == 0)
                r = series_init(&b->share_error, 1, rounds);
        if (r == 0)
                r = start_daemon(&b->q, run->quick);
        if (r == 0)
                r = qos_load_start(&b->q);
        if (r == 0 && b->q.cores[CORE_OTHER] >= 0)
                r = bench_pin(b->q.daemon.pid, b->q.cores[CORE_OTHER]);
        if (r == 0)
                r = bench_pin(0, b->q.cores[CORE_CLIENT]);
        return r ? r : qos_pinned_open(&b->q, &b->pinned);
}

static void tear_down(struct bench_qos *b)
{
        qos_pinned_close(b->pinned);
        qos_load_stop(&b->q);
        private_daemon_deinit(&b->q.daemon);
        for (unsigned p = 0; p < QOS_N_PHASES; ++p) {
                for (unsigned w = 0; w < N_WHATS; ++w)
                        series_deinit(&b->series[w][p]);
                series_deinit(&b->copied[p]);
        }
        series_deinit(&b->used);
        series_deinit(&b->share_error);
}

static int run_qos(struct bench_run *run)
{
        static struct bench_qos b;
        unsigned n_steps = run->quick ? 100 : N_STEPS;
        int r;

        run->rounds = MIN(run->rounds, (unsigned)MAX_ROUNDS);
        b.q.daemon.notify_fd = -1;
        snprintf(run->device, sizeof(run->device),
                "host; the baseline has the same competition, by processes without the daemon");
        r = setup(&b, run, n_steps);
        if (r == 0)
                r = warm_up(&b, run->quick);
        for (unsigned i = 0; r == 0 && i < QOS_N_PHASES * run->rounds; ++i)
                r = one_round(&b, i % QOS_N_PHASES, n_steps);
        if (r == 0)
                r = report(&b, run);
        tear_down(&b);
        return r ? r : qos_run_queue(run);
}

const struct bench bench_qos = {"qos",
        "a pinned tenant beside 8 dynamic ones, and beside 8 processes without the daemon", 21,
        run_qos, .uses_cpu = true};
