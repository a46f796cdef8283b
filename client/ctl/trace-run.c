#include "client/ctl/trace-run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/parse.h"
#include "client/ctl/option.h"
#include "client/ctl/verb.h"
#include "client/trace/curves.h"

#define BAR_CELLS 40
#define JOBS_MAX  1024

/* ---- progress -------------------------------------------------------------------------------- */

void bar_start(struct bar *b, const char *label)
{
        *b = (struct bar){.label = label, .is_terminal = isatty(STDERR_FILENO), .shown = -1};
}

bool bar_step(uint64_t done, uint64_t total, void *data)
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
void bar_end(struct bar *b)
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

int trace_number(const struct ctl *ctl, enum ctl_option o, uint64_t max, uint64_t *ret)
{
        if (!ctl->options[o])
                return CTL_OK;
        if (parse_u64(ctl->options[o], ret) < 0 || *ret == 0 || *ret > max)
                return fail(CTL_USAGE, "--%s: '%s' is no number of 1 to %" PRIu64,
                        option_rows[o].name, ctl->options[o], max);
        return CTL_OK;
}

int trace_open(const struct ctl *ctl, struct trace *ret)
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

int trace_jobs(const struct ctl *ctl, unsigned *ret)
{
        uint64_t n = replay_cpus();
        int r = trace_number(ctl, CTL_OPTION_JOBS, JOBS_MAX, &n);

        *ret = (unsigned)n;
        return r;
}

int trace_fail(int r, const char *err)
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
