/* The verbs on trace files. They need no daemon. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/parse.h"
#include "client/ctl/ctl.h"
#include "client/ctl/option.h"
#include "client/ctl/verb.h"
#include "client/trace/curves.h"
#include "client/trace/recommend.h"
#include "client/trace/report-hosts.h"
#include "client/trace/report.h"
#include "client/trace/trace.h"
#include "policy/recompute.h"
#include "policy/sim/policies.h"

/* ---- parts of all trace verbs ---------------------------------------------------------------- */

/* A progress bar on stderr, if that is a terminal. */
struct bar {
        const char *label;
        bool is_terminal;
        int shown; /* percent, -1: nothing */
};

#define BAR_CELLS 40
#define JOBS_MAX  1024

/* ---- progress -------------------------------------------------------------------------------- */

static void bar_start(struct bar *b, const char *label)
{
        *b = (struct bar){.label = label, .is_terminal = isatty(STDERR_FILENO), .shown = -1};
}

static bool bar_step(uint64_t done, uint64_t total, void *data)
{
        struct bar *b = data;
        int percent = total > 0 ? (int)(MIN(done, total) * 100.0 / (double)total) : 0;
        char cells[BAR_CELLS + 1];

        if (!b->is_terminal || percent == b->shown)
                return true;
        b->shown = percent;
        for (int i = 0; i < BAR_CELLS; i++)
                cells[i] = i * 100 < percent * BAR_CELLS ? '#' : '.';
        cells[BAR_CELLS] = '\0';
        fprintf(stderr, "\r%s [%s] %3d %%", b->label, cells, percent);
        fflush(stderr);
        return true;
}

/* Wipes the line. */
static void bar_end(struct bar *b)
{
        if (b->shown >= 0)
                fputs("\r\033[K", stderr);
        b->shown = -1;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int fail_read(const struct ctl *ctl, int r, const struct trace_error *e)
{
        const char *path = ctl->args[MIN(e->file, ctl->n_args - 1)];

        if (r == -ENOMEM)
                need(NULL);
        if (e->line == 0)
                return fail(CTL_REFUSED, "cannot read %s: %s", path, e->text);
        return fail(CTL_REFUSED, "%s: line %" PRIu64 ": %s (%s)", path, e->line, e->text,
                ctl->options[CTL_OPTION_SKIP_BAD] ? "no line can be read"
                                                  : "--skip-bad skips such lines");
}

/* Reports skipped lines, which are no failure. */
static void warn_skipped(const struct ctl *ctl, const struct trace *t)
{
        const struct trace_error *e = &t->first_bad;

        if (t->n_bad > 0)
                (void)fail(CTL_OK,
                        "%" PRIu64 " line%s skipped, the first: %s: line %" PRIu64 ": %s", t->n_bad,
                        t->n_bad == 1 ? "" : "s", ctl->args[e->file], e->line, e->text);
}

/* "16, 32 or 64" */
static void list_sizes(uint32_t bits, char *buf, size_t size)
{
        unsigned left = (unsigned)__builtin_popcount(bits);
        int len = 0;

        buf[0] = '\0';
        for (; bits > 0 && len >= 0 && (size_t)len < size; bits &= bits - 1, left--)
                len += snprintf(buf + len, size - (size_t)len, "%" PRIu32 "%s", bits & -bits,
                        left > 2    ? ", "
                        : left == 2 ? " or "
                                    : "");
}

/* Warns of the block size: if it is wrong, all results are. */
static void warn_block_size(const struct trace *t)
{
        char sizes[160];

        if ((t->block_sizes & (t->block_sizes - 1)) == 0)
                return;
        list_sizes(t->block_sizes, sizes, sizeof(sizes));
        (void)fail(CTL_OK,
                "the lines don't show the size of a block: %s tokens fit all of them, and %" PRIu32
                " are assumed; --block-tokens sets it",
                sizes, t->sim.block_tokens);
}

/* Judges the times' unit: another one gives other gaps, ages and demands, and a useless
 * configuration. */
static int judge_times(const struct ctl *ctl, const struct trace *t)
{
        bool recommends = ctl->verb->run == verb_trace_recommend;
        enum trace_doubt doubt;
        char why[160];

        if (!t->has_times)
                return fail(recommends ? CTL_REFUSED : CTL_OK, "no line has a timestamp: %s",
                        recommends
                                ? "recommendations need demand over time"
                                : "requests are taken to come a second apart, so times, rates and demand mean nothing");
        if (ctl->options[CTL_OPTION_TIME_UNIT])
                return CTL_OK;
        if (trace_doubt_times(t, ctl->verb->run != verb_trace_hosts, &doubt, why, sizeof(why)) < 0)
                need(NULL);
        if (doubt == TRACE_DOUBT_NONE)
                return CTL_OK;
        return fail(doubt == TRACE_DOUBT_SURE && recommends ? CTL_REFUSED : CTL_OK,
                doubt == TRACE_DOUBT_SURE
                        ? "timestamps can't be milliseconds: %s; give --time-unit s, us or ns, or --time-unit ms if they are"
                        : "timestamps are taken as milliseconds, but %s: give --time-unit s, us or ns if that is wrong",
                why);
}

static int parse_unit(const struct ctl *ctl, enum trace_unit *ret)
{
        const char *text = ctl->options[CTL_OPTION_TIME_UNIT];

        *ret = TRACE_UNIT_MS;
        for (unsigned i = 0; text && i < TRACE_UNITS; i++)
                if (strcmp(text, trace_units[i].name) == 0) {
                        *ret = (enum trace_unit)i;
                        return CTL_OK;
                }
        return text ? fail(CTL_USAGE, "--time-unit is '%s': ms, s, us or ns", text) : CTL_OK;
}

/* Reads a whole number of 1 to max; *ret is unchanged if it isn't given. Returns CTL_OK or
 * CTL_USAGE, printed. */
static int trace_number(const struct ctl *ctl, enum ctl_option o, uint64_t max, uint64_t *ret)
{
        if (!ctl->options[o])
                return CTL_OK;
        if (parse_u64(ctl->options[o], ret) < 0 || *ret == 0 || *ret > max)
                return fail(CTL_USAGE, "--%s: '%s' is no number of 1 to %" PRIu64,
                        option_rows[o].name, ctl->options[o], max);
        return CTL_OK;
}

/* Reads the files of the arguments, as the options say. Returns CTL_OK: *ret is owned; else
 * printed. */
static int trace_open(const struct ctl *ctl, struct trace *ret)
{
        unsigned flags = (ctl->options[CTL_OPTION_CHAIN] ? TRACE_CHAIN : 0) |
                         (ctl->options[CTL_OPTION_SKIP_BAD] ? TRACE_SKIP_BAD : 0);
        uint64_t block_tokens = 0;
        struct trace_error e;
        enum trace_unit unit;
        struct bar bar;
        int r = trace_number(ctl, CTL_OPTION_BLOCK_TOKENS, TRACE_BLOCK_TOKENS_MAX, &block_tokens);

        if (r == CTL_OK)
                r = parse_unit(ctl, &unit);
        if (r != CTL_OK)
                return r;
        flags |= TRACE_UNIT_FLAG(unit);
        bar_start(&bar, "reading");
        r = trace_read(&(struct trace_source){(const char *const *)ctl->args, ctl->n_args, flags,
                               (uint32_t)block_tokens, bar_step, &bar},
                ret, &e);
        bar_end(&bar);
        if (r < 0)
                return fail_read(ctl, r, &e);
        warn_skipped(ctl, ret);
        warn_block_size(ret);
        r = judge_times(ctl, ret);
        if (r != CTL_OK)
                trace_free(ret);
        return r;
}

/* Returns --jobs, or the number of CPUs. CTL_OK or CTL_USAGE, printed. */
static int trace_jobs(const struct ctl *ctl, unsigned *ret)
{
        uint64_t n = replay_cpus();
        int r = trace_number(ctl, CTL_OPTION_JOBS, JOBS_MAX, &n);

        *ret = (unsigned)n;
        return r;
}

/* Prints the failure of a simulation; err: the sentence of -EINVAL. */
static int trace_fail(int r, const char *err)
{
        if (r == -ENOMEM)
                need(NULL);
        if (r == -EINVAL)
                return fail(CTL_USAGE, "%s", err);
        if (r == -ECHILD)
                return fail(CTL_REFUSED,
                        "a simulation was killed, probably for want of memory: fewer --jobs need less");
        return fail(CTL_REFUSED, "cannot simulate: %s", strerror(-r));
}

#define REPLAY_POLICIES "daemon,optimum"
#define LOCK_POLICIES   "daemon" /* others know one tier, and lock no pages */
#define BELOW_MAX       1000000
#define EXPECT_MAX      1000000
#define ENGINE_POLICIES "daemon" /* the optimum has no requests that take time, */
#define WINDOW_POLICIES "daemon" /* and no pages of windows */

/* Far above any engine. */
#define PREFILL_RATE_MAX      1000000000
#define OUTPUT_TOKEN_NSEC_MAX (60 * NSEC_PER_SEC)
#define RUNNING_MAX           1000000
#define WINDOW_GROUPS_MAX     64
#define WINDOW_TOKENS_MAX     (UINT64_C(1) << 24)
#define REPLAY_CAPACITIES     "1%,2%,5%,10%,20%,50%,100%"

static const char *option_or(const struct ctl *ctl, enum ctl_option o, const char *otherwise)
{
        return ctl->options[o] ? ctl->options[o] : otherwise;
}

/* ---- replay ---------------------------------------------------------------------------------- */

/* Refuses the option if a policy has no lock(). */
static int check_policies(const struct curves *c, const char *option, const char *why)
{
        for (unsigned p = 0; p < c->n_policies; p++)
                if (!c->policies[p]->lock)
                        return fail(CTL_USAGE, "--%s: %s %s; --policies daemon names those that do",
                                option, c->policies[p]->name, why);
        return CTL_OK;
}

static int set_below(const struct ctl *ctl, struct curves *c)
{
        uint64_t below = 0;
        int r = trace_number(ctl, CTL_OPTION_BELOW, BELOW_MAX, &below);

        if (r == CTL_OK && below > 0)
                r = check_policies(c, "below", "doesn't know more than one tier");
        c->below = (uint32_t)below;
        return r;
}

static int set_expect(const struct ctl *ctl, struct curves *c)
{
        uint64_t expect = 0, wrong = 0;
        int r = trace_number(ctl, CTL_OPTION_EXPECT, EXPECT_MAX, &expect);

        if (r == CTL_OK)
                r = trace_number(ctl, CTL_OPTION_EXPECT_WRONG, 100, &wrong);
        if (r == CTL_OK && wrong > 0 && expect == 0)
                r = fail(CTL_USAGE, "--expect-wrong says how many of --expect N are wrong");
        if (r == CTL_OK && expect > 0)
                r = check_policies(c, "expect", "can't protect single pages");
        c->expect = (uint32_t)expect;
        c->wrong_percent = (uint32_t)wrong;
        return r;
}

static int set_hints(const struct ctl *ctl, struct curves *c)
{
        const char *list = ctl->options[CTL_OPTION_HINTS];
        bool timed = ctl->options[CTL_OPTION_HINT_TIMES];
        char err[256];
        int r;

        if (!list)
                return timed ? fail(CTL_USAGE, "--hint-times is of --hints LIST") : CTL_OK;
        if (c->crossover > 0 || c->windows.groups > 0)
                return fail(CTL_USAGE,
                        "--hints doesn't go with --attention-crossover and --window-groups");
        r = curves_set_hints(c, list, timed, err, sizeof(err));
        return r < 0 ? trace_fail(r, err) : CTL_OK;
}

static bool says_engine(const struct ctl *ctl)
{
        return ctl->options[CTL_OPTION_PREFILL_RATE] ||
               ctl->options[CTL_OPTION_TIME_PER_OUTPUT_TOKEN] ||
               ctl->options[CTL_OPTION_MAX_RUNNING];
}

static int parse_output_time(const struct ctl *ctl, uint64_t *ret_nsec)
{
        const char *text = ctl->options[CTL_OPTION_TIME_PER_OUTPUT_TOKEN];

        if (text && (parse_duration(text, ret_nsec) < 0 || *ret_nsec == 0 ||
                            *ret_nsec > OUTPUT_TOKEN_NSEC_MAX))
                return fail(CTL_USAGE,
                        "--time-per-output-token: '%s' is not a time of up to 60s, such as 30ms",
                        text);
        return CTL_OK;
}

static int refuse_engine(const struct curves *c)
{
        if (c->below > 0)
                return fail(CTL_USAGE,
                        "--below: moves between tiers take no time here, so it doesn't go with "
                        "--prefill-rate, --time-per-output-token and --max-running");
        if (c->expect > 0)
                return fail(CTL_USAGE,
                        "--expect: requests are expected in the order in which they begin, so it "
                        "doesn't go with --prefill-rate, --time-per-output-token and --max-running");
        for (unsigned p = 0; p < c->n_policies; p++)
                if (c->policies[p] == &evict_optimum)
                        return fail(CTL_USAGE,
                                "--policies: optimum holds nothing, so it doesn't go with --prefill-rate, --time-per-output-token and --max-running");
        return CTL_OK;
}

static int set_engine(const struct ctl *ctl, struct curves *c)
{
        uint64_t running = 0;
        int r = trace_number(
                ctl, CTL_OPTION_PREFILL_RATE, PREFILL_RATE_MAX, &c->engine.prefill_tokens_per_sec);

        if (r == CTL_OK)
                r = parse_output_time(ctl, &c->engine.output_token_nsec);
        if (r == CTL_OK)
                r = trace_number(ctl, CTL_OPTION_MAX_RUNNING, RUNNING_MAX, &running);
        c->engine.max_running = (uint32_t)running;
        return r == CTL_OK && says_engine(ctl) ? refuse_engine(c) : r;
}

static int set_crossover(const struct ctl *ctl, struct curves *c)
{
        uint64_t crossover = 0;
        char err[256];
        int r = trace_number(
                ctl, CTL_OPTION_ATTENTION_CROSSOVER, RECOMPUTE_CROSSOVER_MOST, &crossover);

        if (r != CTL_OK || crossover == 0)
                return r;
        r = curves_set_crossover(c, (uint32_t)crossover, err, sizeof(err));
        return r < 0 ? trace_fail(r, err) : CTL_OK;
}

static int refuse_windows(const struct ctl *ctl, const struct curves *c, uint64_t n_pages)
{
        static const enum ctl_option others[] = {CTL_OPTION_BELOW, CTL_OPTION_EXPECT,
                CTL_OPTION_ATTENTION_CROSSOVER, CTL_OPTION_PREFILL_RATE,
                CTL_OPTION_TIME_PER_OUTPUT_TOKEN, CTL_OPTION_MAX_RUNNING};

        for (size_t i = 0; i < ARRAY_SIZE(others); i++)
                if (ctl->options[others[i]])
                        return fail(CTL_USAGE, "--window-groups doesn't go with --%s",
                                option_rows[others[i]].name);
        for (unsigned p = 0; p < c->n_policies; p++)
                if (c->policies[p] == &evict_optimum)
                        return fail(CTL_USAGE,
                                "--policies: optimum knows no pages of windows, so it doesn't go with --window-groups");
        return n_pages < NODE_NONE
                       ? CTL_OK
                       : fail(CTL_USAGE,
                                 "--window-groups: %" PRIu64
                                 " pages in all, and fewer than %" PRIu32 " are allowed",
                                 n_pages, NODE_NONE);
}

/* *ret_n_pages: different pages that the trace has. */
static int set_windows(
        const struct ctl *ctl, const struct trace *t, struct curves *c, uint64_t *ret_n_pages)
{
        uint64_t groups = 0, tokens = 0;
        char err[256];
        int r = trace_number(ctl, CTL_OPTION_WINDOW_GROUPS, WINDOW_GROUPS_MAX, &groups);

        if (r == CTL_OK)
                r = trace_number(ctl, CTL_OPTION_WINDOW_TOKENS, WINDOW_TOKENS_MAX, &tokens);
        if (r == CTL_OK && (groups > 0) != (tokens > 0))
                r = fail(CTL_USAGE, "--window-groups and --window-tokens go together");
        *ret_n_pages = t->sim.n_unique * (1 + groups);
        if (r != CTL_OK || groups == 0)
                return r;
        r = refuse_windows(ctl, c, *ret_n_pages);
        if (r != CTL_OK)
                return r;
        r = curves_set_windows(c, (uint32_t)groups, (uint32_t)tokens, err, sizeof(err));
        return r < 0 ? trace_fail(r, err) : CTL_OK;
}

static int set_seeds(const struct ctl *ctl, struct curves *c)
{
        uint64_t n = 1;
        int r = trace_number(ctl, CTL_OPTION_SEEDS, CURVES_SEEDS_MAX, &n);

        c->n_seeds = (unsigned)n;
        return r;
}

static int set_from(const struct ctl *ctl, const struct trace *t, struct curves *c)
{
        uint64_t percent = 0;
        int r = trace_number(ctl, CTL_OPTION_FROM, 99, &percent);

        c->count_from = (uint32_t)(t->sim.n_requests * percent / 100);
        return r;
}

static const char *default_policies(const struct ctl *ctl)
{
        if (ctl->options[CTL_OPTION_BELOW] || ctl->options[CTL_OPTION_EXPECT])
                return LOCK_POLICIES;
        if (ctl->options[CTL_OPTION_WINDOW_GROUPS])
                return WINDOW_POLICIES;
        return says_engine(ctl) ? ENGINE_POLICIES : REPLAY_POLICIES;
}

static int replay_curves(const struct ctl *ctl, const struct trace *t, struct curves *c)
{
        char err[512];
        struct bar bar;
        uint64_t n_pages;
        unsigned n_jobs;
        int r = trace_jobs(ctl, &n_jobs);

        if (r != CTL_OK)
                return r;
        c->split = ctl->options[CTL_OPTION_SPLIT];
        r = curves_set_policies(
                c, option_or(ctl, CTL_OPTION_POLICIES, default_policies(ctl)), err, sizeof(err));
        if (r < 0)
                return trace_fail(r, err);
        r = set_windows(ctl, t, c, &n_pages);
        if (r != CTL_OK)
                return r;
        r = curves_set_capacities(c, option_or(ctl, CTL_OPTION_CAPACITIES, REPLAY_CAPACITIES),
                (uint32_t)n_pages, err, sizeof(err));
        if (r < 0)
                return trace_fail(r, err);
        r = set_below(ctl, c);
        if (r == CTL_OK)
                r = set_expect(ctl, c);
        if (r == CTL_OK)
                r = set_crossover(ctl, c);
        if (r == CTL_OK)
                r = set_hints(ctl, c);
        if (r == CTL_OK)
                r = set_seeds(ctl, c);
        if (r == CTL_OK)
                r = set_from(ctl, t, c);
        if (r == CTL_OK)
                r = set_engine(ctl, c);
        if (r != CTL_OK)
                return r;
        bar_start(&bar, "simulating");
        r = curves_run(c, &t->sim, n_jobs, bar_step, &bar);
        bar_end(&bar);
        return r < 0 ? trace_fail(r, err) : CTL_OK;
}

static void print_replay(const struct ctl *ctl, const struct trace *t, const struct curves *c)
{
        if (ctl->format.json) {
                show_json(json_pack("{s:I, s:I, s:I, s:I, s:b, s:I, s:o}", "requests",
                        (json_int_t)t->sim.n_requests, "unique_blocks", (json_int_t)t->sim.n_unique,
                        "block_tokens", (json_int_t)t->sim.block_tokens, "tenants",
                        (json_int_t)t->sim.n_tenants, "split", (int)c->split, "seeds",
                        (json_int_t)c->n_seeds, "curves", need(report_curves_json(c))));
                return;
        }
        printf("Token hit %%, %s, pages of %u tokens\n",
                !c->split || t->sim.n_tenants == 1 ? "one cache for all"
                                                   : "a cache of equal size for each tenant",
                t->sim.block_tokens);
        if (c->count_from > 0)
                printf("The first %" PRIu32 " of %" PRIu32 " requests don't count\n", c->count_from,
                        t->sim.n_requests);
        if (c->below > 0)
                printf("A tier below has %" PRIu32 " times the pages; +below: hits in both\n",
                        c->below);
        if (c->crossover > 0)
                printf("saved: %%, the part of the computation of all input that hits save, with a crossover of %" PRIu32
                       " tokens; +cost: miss_cost = compute\n",
                        c->crossover);
        if (c->windows.groups > 0)
                printf("%" PRIu32 " groups of layers with a window of %" PRIu32
                       " tokens beside one of full attention; +told: the policy is told whose window has passed\n",
                        c->windows.groups, c->windows.tokens);
        if (c->n_seeds > 1)
                printf("The mean of %u seeds; +-: their standard deviation\n", c->n_seeds);
        if (sim_takes_time(&c->engine))
                puts("held: %, the part of the cache that requests held while they ran; wait: until a request began");
        if (c->expect > 0)
                printf("The next %" PRIu32 " requests are expected, %" PRIu32 " %% wrongly\n",
                        c->expect, c->wrong_percent);
        if (c->n_hints > 0)
                printf("+N%%: a hint at the end of each request says %s its text continues, and N %% of the hints are right\n",
                        c->hints_timed ? "whether and when" : "whether");
        report_curves(c, stdout);
}

int verb_trace_replay(const struct ctl *ctl)
{
        _cleanup_free_ struct curves *c = need(calloc(1, sizeof(*c)));
        struct trace t;
        int r = trace_open(ctl, &t);

        if (r != CTL_OK)
                return r;
        r = replay_curves(ctl, &t, c);
        if (r == CTL_OK)
                print_replay(ctl, &t, c);
        trace_free(&t);
        return r;
}

/* ---- analyze --------------------------------------------------------------------------------- */

static int parse_hold(const struct ctl *ctl, uint64_t *ret_msec)
{
        const char *text = ctl->options[CTL_OPTION_HOLD];
        uint64_t nsec = 0;

        if (text && (parse_duration(text, &nsec) < 0 || nsec < NSEC_PER_MSEC))
                return fail(CTL_USAGE, "--hold: '%s' is not a time such as 250ms or 30s", text);
        *ret_msec = nsec / NSEC_PER_MSEC;
        return CTL_OK;
}

static int analyze_trace(const struct ctl *ctl, const struct trace *t, struct analysis *ret)
{
        struct analysis_options o = {
                .policies = ctl->options[CTL_OPTION_POLICIES],
                .capacities = ctl->options[CTL_OPTION_CAPACITIES],
                .progress = bar_step,
        };
        char err[512];
        struct bar bar;
        int r = trace_jobs(ctl, &o.n_processes);

        if (r == CTL_OK)
                r = parse_hold(ctl, &o.hold_msec);
        if (r != CTL_OK)
                return r;
        bar_start(&bar, "simulating");
        o.data = &bar;
        r = analyze(t, &o, ret, err, sizeof(err));
        bar_end(&bar);
        return r < 0 ? trace_fail(r, err) : CTL_OK;
}

static int write_html(const char *path, const struct analysis *a)
{
        FILE *f = fopen(path, "we");
        bool failed;

        if (!f)
                return fail(CTL_REFUSED, "cannot write %s: %s", path, strerror(errno));
        report_html(a, f);
        failed = ferror(f);
        if (fclose(f) != 0 || failed)
                return fail(CTL_REFUSED, "cannot write %s: %s", path, strerror(errno));
        return CTL_OK;
}

static int print_analysis(const struct ctl *ctl, const struct analysis *a)
{
        if (ctl->format.json)
                show_json(report_json(a));
        else
                report_text(a, stdout);
        return ctl->options[CTL_OPTION_HTML] ? write_html(ctl->options[CTL_OPTION_HTML], a)
                                             : CTL_OK;
}

/* Reads, analyses, and passes the result to `print`. */
static int with_analysis(
        const struct ctl *ctl, int (*print)(const struct ctl *ctl, const struct analysis *a))
{
        _cleanup_free_ struct analysis *a = need(calloc(1, sizeof(*a)));
        struct trace t;
        int r = trace_open(ctl, &t);

        if (r != CTL_OK)
                return r;
        r = analyze_trace(ctl, &t, a);
        if (r == CTL_OK)
                r = print(ctl, a);
        analysis_free(a);
        trace_free(&t);
        return r;
}

int verb_trace_analyze(const struct ctl *ctl)
{
        return with_analysis(ctl, print_analysis);
}

/* ---- recommend ------------------------------------------------------------------------------- */

static int print_recommendation(const struct ctl *ctl, const struct analysis *a)
{
        char name[TRACE_NAME_SIZE];
        uint64_t token_bytes;

        (void)parse_bytes(ctl->options[CTL_OPTION_TOKEN_BYTES], &token_bytes); /* checked */
        trace_name(ctl->args[0], name);
        recommend(a, token_bytes, name, stdout);
        return CTL_OK;
}

/* Far above any model. */
#define TOKEN_BYTES_MAX (UINT64_C(1) << 30)

int check_trace_token_bytes(const struct ctl *ctl)
{
        const char *text = ctl->options[CTL_OPTION_TOKEN_BYTES];
        uint64_t bytes;

        if (!text)
                return fail(CTL_USAGE,
                        "--token-bytes is missing: the bytes of K/V that one token takes, which "
                        "a trace doesn't say (page bytes / page tokens of 'kvleasectl namespaces')");
        if (parse_bytes(text, &bytes) < 0 || bytes == 0 || bytes > TOKEN_BYTES_MAX)
                return fail(CTL_USAGE,
                        "--token-bytes: '%s' is not a size of 1 byte to 1 GiB, such as 128KiB",
                        text);
        return CTL_OK;
}

int verb_trace_recommend(const struct ctl *ctl)
{
        return with_analysis(ctl, print_recommendation);
}

/* ---- several hosts over one store ------------------------------------------------------------ */

#define DEFAULT_HOSTS      "10,100"
#define DEFAULT_AFFINITIES "round-robin,prefix"

/* Hosts for the published conversation trace, with a prefill of 10,000 tokens a second: each then
 * can compute three times its share. */
#define DEFAULT_GROUP 10

#define BELOW_MAX        1000000
#define PREFILL_RATE_MAX 1000000000
#define CACHE_MAX        (UINT64_C(1) << 50)

int check_trace_hosts(const struct ctl *ctl)
{
        const char *size = ctl->options[CTL_OPTION_SIZE];
        uint64_t bytes;
        int r = check_trace_token_bytes(ctl);

        if (r != CTL_OK)
                return r;
        if (!size)
                return fail(CTL_USAGE,
                        "--size is missing: the memory for pages on each host, such as 64GiB");
        if (parse_bytes(size, &bytes) < 0 || bytes == 0 || bytes > CACHE_MAX)
                return fail(CTL_USAGE,
                        "--size: '%s' is not a size of 1 byte to 1 PiB, such as 64GiB", size);
        if (!ctl->options[CTL_OPTION_PREFILL_RATE])
                return fail(CTL_USAGE,
                        "--prefill-rate is missing: the tokens a second that a host computes, as pages are loaded only where that takes longer");
        return CTL_OK;
}

static int set_policy(const struct ctl *ctl, struct host_runs *h)
{
        const char *name = option_or(ctl, CTL_OPTION_POLICIES, evict_policies[0]->name);
        uint64_t below = 0;
        int r = trace_number(ctl, CTL_OPTION_BELOW, BELOW_MAX, &below);

        if (r != CTL_OK)
                return r;
        h->policy = sim_policy_find(name);
        h->below = (uint32_t)below;
        if (!h->policy || h->policy == &evict_optimum)
                return fail(CTL_USAGE,
                        "--policies: '%s' is not one of kvleasectl trace replay --help, without "
                        "optimum, which would have to know the requests of each host",
                        name);
        if (below > 0 && !h->policy->lock)
                return fail(CTL_USAGE, "--below: %s doesn't know more than one tier", name);
        return CTL_OK;
}

/* Sets the options that are lists, with a sentence if one is wrong. */
static int set_lists(const struct ctl *ctl, struct host_runs *h)
{
        char err[512];
        int r;

        store_model_init(&h->store);
        r = host_runs_set_counts(
                h, option_or(ctl, CTL_OPTION_HOSTS, DEFAULT_HOSTS), err, sizeof(err));
        if (r == 0)
                r = host_runs_set_affinities(h,
                        option_or(ctl, CTL_OPTION_AFFINITY, DEFAULT_AFFINITIES), err, sizeof(err));
        if (r == 0 && ctl->options[CTL_OPTION_STORE])
                r = store_model_parse(&h->store, ctl->options[CTL_OPTION_STORE], err, sizeof(err));
        return r < 0 ? trace_fail(r, err) : CTL_OK;
}

static int set_all(const struct ctl *ctl, struct host_runs *h)
{
        uint64_t group = DEFAULT_GROUP;
        int r = trace_number(ctl, CTL_OPTION_GROUP, HOSTS_MAX, &group);

        h->group = (uint32_t)group;
        (void)parse_bytes(ctl->options[CTL_OPTION_SIZE], &h->cache_bytes); /* checked, both */
        (void)parse_bytes(ctl->options[CTL_OPTION_TOKEN_BYTES], &h->token_bytes);
        if (r == CTL_OK)
                r = trace_number(
                        ctl, CTL_OPTION_PREFILL_RATE, PREFILL_RATE_MAX, &h->prefill_tokens_per_sec);
        if (r == CTL_OK)
                r = set_policy(ctl, h);
        return r == CTL_OK ? set_lists(ctl, h) : r;
}

static int simulate_hosts(const struct ctl *ctl, const struct trace *t, struct host_runs *h)
{
        char err[512];
        struct bar bar;
        unsigned n_jobs;
        int r = trace_jobs(ctl, &n_jobs);

        if (r != CTL_OK)
                return r;
        bar_start(&bar, "simulating");
        r = host_runs_run(h, &t->sim, n_jobs, bar_step, &bar, err, sizeof(err));
        bar_end(&bar);
        if (r < 0)
                return trace_fail(r, err);
        if (ctl->format.json)
                show_json(report_hosts_json(h, &t->sim));
        else
                report_hosts_text(h, &t->sim, stdout);
        return CTL_OK;
}

int verb_trace_hosts(const struct ctl *ctl)
{
        _cleanup_free_ struct host_runs *h = need(calloc(1, sizeof(*h)));
        struct trace t;
        int r = set_all(ctl, h);

        if (r == CTL_OK)
                r = trace_open(ctl, &t);
        if (r != CTL_OK)
                return r;
        r = simulate_hosts(ctl, &t, h);
        trace_free(&t);
        return r;
}
