#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/macros.h"
#include "client/trace/report.h"

/* ---- plots ----------------------------------------------------------------------------------- */

/* Plots as inline SVG: one pair of axes each, with lines or bars. The page has the colours
 * and fonts; classes are s0, s1, ... of the series. */
struct axis {
        const char *title; /* with its unit */
        double min, max;   /* min < max; log: min > 0 */
        bool log;
        /* Formats a tick without the unit of the title. */
        char *(*label)(double value, char buf[32]);
        const double *ticks; /* borrowed; ticks outside are left out */
        unsigned n_ticks;
};

struct plot {
        FILE *to;
        struct axis x, y;
};

struct point {
        double x, y;
};

/* 0.5, 20 */
static char *label_number(double value, char buf[32])
{
        if (value >= 1000)
                return report_count((uint64_t)(value + 0.5), buf);
        snprintf(buf, 32, "%g", value);
        return buf;
}

/* 512, 4 k, 1 M */
static char *label_tokens(double value, char buf[32])
{
        if (value >= 1 << 20)
                snprintf(buf, 32, "%g M", value / (1 << 20));
        else if (value >= 1 << 10)
                snprintf(buf, 32, "%g k", value / (1 << 10));
        else
                snprintf(buf, 32, "%g", value);
        return buf;
}

/* 100 ms, 10 s, 1 h */
static char *label_time(double msec, char buf[32])
{
        static const struct {
                double msec;
                const char *unit;
        } units[] = {{86400e3, "d"}, {3600e3, "h"}, {60e3, "min"}, {1e3, "s"}, {1, "ms"}};
        size_t i = 0;

        while (i + 1 < ARRAY_SIZE(units) && msec < units[i].msec)
                i++;
        snprintf(buf, 32, "%g %s", msec / units[i].msec, units[i].unit);
        return buf;
}

#define AXIS_TICKS 8 /* at most */

/* Units of the viewBox: pixels if the page is wide enough. */
enum {
        WIDTH = 720,
        HEIGHT = 320,
        LEFT = 64,
        RIGHT = 20,
        TOP = 12,
        BOTTOM = 48,
};

#define PLOT_WIDTH  (WIDTH - LEFT - RIGHT)
#define PLOT_HEIGHT (HEIGHT - TOP - BOTTOM)

/* ---- scales ---------------------------------------------------------------------------------- */

static double part_of(const struct axis *a, double value)
{
        double part = a->log ? log(MAX(value, a->min) / a->min) / log(a->max / a->min)
                             : (value - a->min) / (a->max - a->min);

        return MIN(MAX(part, 0.0), 1.0);
}

static double at_x(const struct plot *p, double value)
{
        return LEFT + part_of(&p->x, value) * PLOT_WIDTH;
}

static double at_y(const struct plot *p, double value)
{
        return TOP + (1 - part_of(&p->y, value)) * PLOT_HEIGHT;
}

/* Returns 1, 2 or 5 times a power of ten, so that at most n of them make max. */
static double round_step(double max, unsigned n)
{
        double power = pow(10, floor(log10(max / n)));

        while (max > n * power) {
                if (max <= n * power * 2)
                        return power * 2;
                if (max <= n * power * 5)
                        return power * 5;
                power *= 10;
        }
        return power;
}

/* Makes a y axis from 0 for values to `max`, with round ticks, in `ticks`. */
static struct axis axis_linear(const char *title, double max, double ticks[AXIS_TICKS])
{
        double step = round_step(MAX(max, 1e-3), AXIS_TICKS - 2);
        struct axis a = {.title = title, .label = label_number, .ticks = ticks};

        while (a.max < max || a.n_ticks < 2) {
                a.max = step * a.n_ticks;
                ticks[a.n_ticks++] = a.max;
        }
        return a;
}

/* ---- axes ------------------------------------------------------------------------------------ */

static void draw_x(const struct plot *p)
{
        char text[32];

        for (unsigned i = 0; i < p->x.n_ticks; i++) {
                double value = p->x.ticks[i], x = at_x(p, value);

                if (value < p->x.min || value > p->x.max)
                        continue;
                fprintf(p->to,
                        "<line class=\"tick\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>"
                        "<text class=\"label\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                        x, TOP + PLOT_HEIGHT, x, TOP + PLOT_HEIGHT + 5, x, TOP + PLOT_HEIGHT + 19,
                        p->x.label(value, text));
        }
        fprintf(p->to,
                "<line class=\"axis\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>"
                "<text class=\"title\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                LEFT, TOP + PLOT_HEIGHT, LEFT + PLOT_WIDTH, TOP + PLOT_HEIGHT,
                LEFT + PLOT_WIDTH / 2, HEIGHT - 8, p->x.title);
}

static void draw_y(const struct plot *p)
{
        char text[32];

        for (unsigned i = 0; i < p->y.n_ticks; i++) {
                double y = at_y(p, p->y.ticks[i]);

                fprintf(p->to,
                        "<line class=\"grid\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>"
                        "<text class=\"label\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                        LEFT, y, LEFT + PLOT_WIDTH, y, LEFT - 8, y + 4,
                        p->y.label(p->y.ticks[i], text));
        }
        if (p->y.title)
                fprintf(p->to,
                        "<text class=\"title\" transform=\"translate(14 %d) rotate(-90)\" text-anchor=\"middle\">%s</text>\n",
                        TOP + PLOT_HEIGHT / 2, p->y.title);
}

/* `id`: of the figure; `title`: for screen readers. */
static void plot_begin(struct plot *p, const char *id, const char *title)
{
        fprintf(p->to, "<svg id=\"%s\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n", id,
                WIDTH, HEIGHT, title);
        draw_y(p);
        draw_x(p);
}

static void plot_end(struct plot *p)
{
        fputs("</svg>\n", p->to);
}

/* ---- marks ----------------------------------------------------------------------------------- */

/* Draws a line through n points with a dot at each; hovering over one shows `name`, x and y. */
static void plot_line(
        struct plot *p, unsigned series, const char *name, const struct point *points, unsigned n)
{
        fprintf(p->to, "<polyline class=\"line s%u\" points=\"", series);
        for (unsigned i = 0; i < n; i++)
                fprintf(p->to, "%s%.1f,%.1f", i > 0 ? " " : "", at_x(p, points[i].x),
                        at_y(p, points[i].y));
        fputs("\"/>\n", p->to);
        for (unsigned i = 0; i < n; i++) {
                char x[32];

                fprintf(p->to,
                        "<circle class=\"dot s%u\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"><title>%s at %s: %.2f</title></circle>\n",
                        series, at_x(p, points[i].x), at_y(p, points[i].y), name,
                        p->x.label(points[i].x, x), points[i].y);
        }
}

static void rectangle(
        struct plot *p, unsigned series, double x, double y, double w, double h, const char *name)
{
        fprintf(p->to,
                "<rect class=\"bar s%u\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"><title>%s</title></rect>\n",
                series, x, y, MAX(w, 1.0), h, name);
}

/* Draws a bar from x `from` to x `to`, as high as y. */
static void plot_bar(
        struct plot *p, unsigned series, double from, double to, double y, const char *name)
{
        double x = at_x(p, from), top = at_y(p, y);

        rectangle(p, series, x + 1, top, at_x(p, to) - x - 2, TOP + PLOT_HEIGHT - top, name);
}

/* Returns the y of a row of n: the text above, the bar below. */
static double row_y(unsigned i, unsigned n, double part)
{
        return TOP + (double)PLOT_HEIGHT / n * (i + part);
}

/* Draws horizontal bars: row i of n, from 0 to x; `part` (0..1) of a bar's height. */
static void plot_row(struct plot *p, unsigned series, unsigned i, unsigned n, double part, double x,
        const char *name)
{
        double bar = MIN((double)PLOT_HEIGHT / n * 0.4, 32.0);

        rectangle(p, series, LEFT, row_y(i, n, 0.55) + bar * (1 - part) / 2, at_x(p, x) - LEFT,
                bar * part, name);
}

static void plot_row_label(struct plot *p, unsigned i, unsigned n, const char *text)
{
        fprintf(p->to, "<text class=\"row\" x=\"%d\" y=\"%.1f\">%s</text>\n", LEFT,
                row_y(i, n, 0.55) - 4, text);
}

/* Tenants whose demand is drawn; the table has all. */
#define ROWS_MAX 12

/*
 * Series colours are from Okabe and Ito ("Color Universal Design", 2008), which colour-blind
 * readers tell apart; darker on light ground, lighter on dark, so that each has a contrast of 3.
 */
static const char head[] =
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        "<title>Trace report</title>\n<style>\n"
        ":root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--soft:#5b6570;--rule:#d9dee3;"
        "--s0:#0072b2;--s1:#c2570c;--s2:#008060;--s3:#a64d87;--s4:#8a6d00;--s5:#5b6570;--s6:#3b78d8;--s7:#b3261e}\n"
        "@media(prefers-color-scheme:dark){:root{--bg:#14171a;--fg:#e6e9ec;--soft:#9aa4ae;"
        "--rule:#333a41;--s0:#56b4e9;--s1:#f0905a;--s2:#3cc79c;--s3:#dd8fbf;--s4:#d9b93b;--s5:#9aa4ae;--s6:#8ab4f8;--s7:#f28b82}}\n"
        "*{box-sizing:border-box}\n"
        "body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,sans-serif}\n"
        "main{max-width:960px;margin:0 auto;padding:40px 24px 64px}\n"
        "h1{font-size:30px;line-height:1.2;margin:0 0 4px}\n"
        "h2{font-size:20px;line-height:1.3;margin:48px 0 4px}\n"
        "h3{font-size:15px;margin:20px 0 4px}\n"
        "p{margin:4px 0 12px;max-width:70ch}.soft{color:var(--soft)}\n"
        ".facts{display:flex;flex-wrap:wrap;gap:12px 40px;margin:24px 0 0;padding:0}\n"
        ".facts div{min-width:96px}.facts dt{color:var(--soft);font-size:13px}\n"
        ".facts dd{margin:0;font-size:22px;font-variant-numeric:tabular-nums}\n"
        "svg{display:block;width:100%;max-width:720px;height:auto}\n"
        "svg text{fill:var(--soft);font:12px system-ui,sans-serif}svg .row{fill:var(--fg)}\n"
        ".grid{stroke:var(--rule)}.axis,.tick{stroke:var(--soft)}\n"
        ".line{fill:none;stroke-width:2;stroke-linejoin:round}.dot{stroke:var(--bg)}\n"
        ".key{display:flex;flex-wrap:wrap;gap:4px 20px;list-style:none;margin:8px 0;padding:0;font-size:14px}\n"
        ".key i{display:inline-block;width:12px;height:12px;border-radius:2px;margin-right:6px}\n"
        "details{margin:8px 0;font-size:14px}summary{cursor:pointer;color:var(--soft)}\n"
        "table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:8px 0}\n"
        "th,td{padding:3px 14px 3px 0;text-align:right;border-bottom:1px solid var(--rule)}\n"
        "th:first-child,td:first-child{text-align:left}th{font-weight:600}\n"
        ".scroll{overflow-x:auto}\n";

/* Ticks of an axis, for a wide range and for a narrow one. */
struct ticks {
        const double *wide, *narrow;
        unsigned n_wide, n_narrow;
        char *(*label)(double value, char buf[32]);
};

/* A range is wide if greatest / least is at least this. */
#define WIDE_RANGE 300

static const double wide_tokens[] = {
        1, 4, 16, 64, 256, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22};
static const double narrow_tokens[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1 << 10, 1 << 11,
        1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16, 1 << 17, 1 << 18, 1 << 19, 1 << 20, 1 << 21,
        1 << 22};
static const double counts[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 1e4, 1e5, 1e6};
static const double wide_times[] = {
        1, 10, 100, 1e3, 1e4, 60e3, 600e3, 3600e3, 36000e3, 86400e3, 864000e3};
static const double narrow_times[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4,
        60e3, 120e3, 300e3, 600e3, 1200e3, 3600e3, 7200e3, 18000e3, 36000e3, 86400e3, 172800e3,
        432000e3, 864000e3};
static const double page_ticks[] = {16, 32, 64, 128, 256, 512, 1024};
static const double percent_ticks[] = {0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100};

static const struct ticks token_ticks = {wide_tokens, narrow_tokens, ARRAY_SIZE(wide_tokens),
        ARRAY_SIZE(narrow_tokens), label_tokens};
static const struct ticks count_ticks = {
        counts, counts, ARRAY_SIZE(counts), ARRAY_SIZE(counts), label_number};
static const struct ticks time_ticks = {
        wide_times, narrow_times, ARRAY_SIZE(wide_times), ARRAY_SIZE(narrow_times), label_time};

static struct axis axis_ticked(const char *title, const struct ticks *t, double min, double max)
{
        bool wide = max / min >= WIDE_RANGE;

        return (struct axis){title, min, max, true, t->label, wide ? t->wide : t->narrow,
                wide ? t->n_wide : t->n_narrow};
}

static void write_head(FILE *to)
{
        fputs(head, to);
        for (unsigned i = 0; i < 8; i++)
                fprintf(to,
                        ".line.s%u{stroke:var(--s%u)}.dot.s%u,.bar.s%u{fill:var(--s%u)}.key i.s%u{background:var(--s%u)}\n",
                        i, i, i, i, i, i, i);
        fputs("</style>\n</head>\n<body>\n<main>\n", to);
}

static void write_key(FILE *to, const char *const *names, unsigned n)
{
        fputs("<ul class=\"key\">", to);
        for (unsigned i = 0; i < n; i++)
                fprintf(to, "<li><i class=\"s%u\"></i>%s</li>", i % 8, names[i]);
        fputs("</ul>\n", to);
}

/* ---- overview -------------------------------------------------------------------------------- */

static void write_fact(FILE *to, const char *name, const char *value)
{
        fprintf(to, "<div><dt>%s</dt><dd>%s</dd></div>\n", name, value);
}

static void write_percent(FILE *to, const char *name, double percent)
{
        char buf[32];

        snprintf(buf, sizeof(buf), "%.1f %%", percent);
        write_fact(to, name, buf);
}

static void write_overview(const struct analysis *a, FILE *to)
{
        const struct sim_trace *t = &a->trace->sim;
        const struct repeats *r = &a->repeats;
        char one[32], two[32];

        fprintf(to,
                "<h1>Trace report</h1>\n<p class=\"soft\">%s requests in %s; blocks of %" PRIu32
                " tokens.",
                report_count(t->n_requests, one), report_time(a->duration_msec, two),
                t->block_tokens);
        if (a->trace->n_bad > 0)
                fprintf(to, " %s lines could not be read and were skipped.",
                        report_count(a->trace->n_bad, one));
        if (a->trace->n_late > 0)
                fprintf(to, " %s lines were out of order and were sorted.",
                        report_count(a->trace->n_late, one));
        fputs("</p>\n<dl class=\"facts\">\n", to);
        write_fact(to, "tenants", report_count(t->n_tenants, one));
        write_fact(to, "input tokens", report_count(r->input_tokens, one));
        write_fact(to, "different blocks", report_count(t->n_unique, one));
        write_percent(to, "input tokens that repeat",
                report_percent(r->repeated_tokens, r->input_tokens));
        write_percent(to, "requests that start like another",
                report_percent(r->repeated_requests, t->n_requests));
        write_percent(to, "requests that continue a session",
                report_percent(r->continued, t->n_requests));
        fputs("</dl>\n", to);
}

/* ---- curves ---------------------------------------------------------------------------------- */

static double percent_of_blocks(const struct analysis *a, unsigned capacity)
{
        return 100 * (double)a->curves.capacities[capacity].pages /
               (double)MAX(a->trace->sim.n_unique, 1u);
}

static void write_curve_table(const struct curves *c, FILE *to)
{
        char text[32], pages[32];

        fputs("<details><summary>Figures</summary><div class=\"scroll\"><table><tr><th>capacity</th><th>pages</th>",
                to);
        for (unsigned p = 0; p < c->n_policies; p++)
                fprintf(to, "<th>%s</th>", c->policies[p]->name);
        fputs("</tr>\n", to);
        for (unsigned i = 0; i < c->n_capacities; i++) {
                fprintf(to, "<tr><td>%s</td><td>%s</td>", capacity_text(&c->capacities[i], text),
                        report_count(c->capacities[i].pages, pages));
                for (unsigned p = 0; p < c->n_policies; p++)
                        fprintf(to, "<td>%.2f</td>", 100 * curves_at(c, p, i));
                fputs("</tr>\n", to);
        }
        fputs("</table></div></details>\n", to);
}

/* Fills a policy's points in order of capacity; capacities may be given in any order. */
static void curve_points(const struct analysis *a, unsigned policy, struct point *points)
{
        unsigned n = a->curves.n_capacities;

        for (unsigned i = 0; i < n; i++) {
                struct point new = {
                        percent_of_blocks(a, i), 100 * curves_at(&a->curves, policy, i)};
                unsigned at = i;

                for (; at > 0 && points[at - 1].x > new.x; at--)
                        points[at] = points[at - 1];
                points[at] = new;
        }
}

static void write_curves(const struct analysis *a, FILE *to)
{
        const struct curves *c = &a->curves;
        struct point points[CURVES_CAPACITIES_MAX];
        const char *names[CURVES_POLICIES_MAX];
        double ticks[AXIS_TICKS], y_max = 0, x_min = 100, x_max = 0;
        struct plot plot = {.to = to};

        for (unsigned p = 0; p < c->n_policies; p++) {
                names[p] = c->policies[p]->name;
                for (unsigned i = 0; i < c->n_capacities; i++) {
                        y_max = MAX(y_max, 100 * curves_at(c, p, i));
                        x_min = MIN(x_min, percent_of_blocks(a, i));
                        x_max = MAX(x_max, percent_of_blocks(a, i));
                }
        }
        plot.x = (struct axis){"cache size, % of the trace's different blocks", x_min,
                MAX(x_max, x_min * 1.01), true, label_number, percent_ticks,
                ARRAY_SIZE(percent_ticks)};
        plot.y = axis_linear("token hit, %", y_max, ticks);
        fputs("<h2>Hit ratio by policy and cache size</h2>\n<p>Input tokens found in the cache, in "
              "% of all. <em>optimum</em> knows the future: nothing can be better.</p>\n",
                to);
        write_key(to, names, c->n_policies);
        plot_begin(&plot, "curves", "Token hit by cache size, a line for each policy");
        for (unsigned p = 0; p < c->n_policies; p++) {
                curve_points(a, p, points);
                plot_line(&plot, p % 8, names[p], points, c->n_capacities);
        }
        plot_end(&plot);
        write_curve_table(c, to);
}

/* ---- distributions --------------------------------------------------------------------------- */

struct histogram {
        const char *id, *heading, *x_title, *y_title;
        const struct ticks *ticks;
        char *(*show)(uint64_t value, char buf[32]);
};

static void write_bars(const struct dist *d, const struct histogram *h, struct plot *plot)
{
        unsigned first, last;

        dist_range(d, &first, &last);
        for (unsigned i = first; i <= last; i++) {
                char name[96], from[32], to[32];

                if (d->bins[i] == 0)
                        continue;
                snprintf(name, sizeof(name), "%s to %s: %.2f %%",
                        h->show((uint64_t)ceil(dist_bin_start(i)), from),
                        h->show((uint64_t)ceil(dist_bin_start(i + 1)), to),
                        report_percent(d->bins[i], d->n));
                plot_bar(plot, 0, MAX(dist_bin_start(i), plot->x.min), dist_bin_start(i + 1),
                        report_percent(d->bins[i], d->n), name);
        }
}

static void write_histogram(const struct dist *d, const struct histogram *h, FILE *to)
{
        double ticks[AXIS_TICKS], y_max = 0;
        unsigned first, last;
        char mean[32], median[32], p90[32], p99[32];
        struct plot plot = {.to = to};

        fprintf(to, "<h3>%s</h3>\n", h->heading);
        if (d->n == 0) {
                fputs("<p class=\"soft\">None in this trace.</p>\n", to);
                return;
        }
        fprintf(to, "<p class=\"soft\">mean %s · median %s · p90 %s · p99 %s</p>\n",
                report_mean(d, h->show, mean), h->show(d->quantiles[DIST_MEDIAN], median),
                h->show(d->quantiles[5], p90), h->show(d->quantiles[7], p99));
        dist_range(d, &first, &last);
        for (unsigned i = first; i <= last; i++)
                y_max = MAX(y_max, report_percent(d->bins[i], d->n));
        /* Bin 0 has no lower edge on a logarithmic axis. */
        plot.x = axis_ticked(h->x_title, h->ticks,
                first == 0 ? dist_bin_start(1) / 2 : dist_bin_start(first),
                dist_bin_start(last + 1));
        plot.y = axis_linear(h->y_title, y_max, ticks);
        plot_begin(&plot, h->id, h->heading);
        write_bars(d, h, &plot);
        plot_end(&plot);
}

static void write_distributions(const struct analysis *a, FILE *to)
{
        static const struct histogram input = {
                "input", "Input", "tokens", "requests, %", &token_ticks, report_count};
        static const struct histogram output = {
                "output", "Output", "tokens", "requests, %", &token_ticks, report_count};
        static const struct histogram turns = {"turns", "Turns of a session", "requests",
                "sessions, %", &count_ticks, report_count};
        static const struct histogram gaps = {
                "gaps", "Between two turns", "time", "turns, %", &time_ticks, report_time};
        static const struct histogram first = {"first-reuse", "First reuse of a block",
                "time since its first use", "blocks reused, %", &time_ticks, report_time};
        static const struct histogram any = {"reuse", "Any reuse of a block",
                "time since its last use", "reuses, %", &time_ticks, report_time};

        fputs("<h2>Age at reuse</h2>\n<p>How long a block has to be kept to be found again.</p>\n",
                to);
        write_histogram(&a->first_reuse_msec, &first, to);
        write_histogram(&a->reuse_msec, &any, to);
        fputs("<h2>Lengths</h2>\n", to);
        write_histogram(&a->input_tokens, &input, to);
        write_histogram(&a->output_tokens, &output, to);
        fputs("<h2>Sessions</h2>\n<p>A request continues a session where it starts with all but the last block of the request before.</p>\n",
                to);
        write_histogram(&a->sessions.turns, &turns, to);
        write_histogram(&a->sessions.gap_msec, &gaps, to);
}

/* ---- page size ------------------------------------------------------------------------------- */

static void write_page_table(const struct analysis *a, FILE *to)
{
        const struct page_sizes *p = &a->page_sizes;

        fputs("<details><summary>Figures</summary><table><tr><th>page tokens</th><th>waste %</th><th>hit %</th></tr>\n",
                to);
        for (unsigned i = 0; i < PAGE_SIZES; i++)
                fprintf(to, "<tr><td>%" PRIu32 "%s</td><td>%.2f</td><td>%s%.2f</td></tr>\n",
                        p->sizes[i].tokens, i == p->advised ? " (advised)" : "",
                        100 * page_size_waste(&p->sizes[i]),
                        p->sizes[i].estimated ? "at least " : "",
                        100 * page_size_hit_ratio(&p->sizes[i], &a->repeats));
        fputs("</table></details>\n", to);
}

static void write_page_plot(
        const struct analysis *a, const char *id, const char *title, bool of_waste, FILE *to)
{
        const struct page_sizes *p = &a->page_sizes;
        double values[PAGE_SIZES], ticks[AXIS_TICKS], y_max = 0;
        struct plot plot = {.to = to};

        for (unsigned i = 0; i < PAGE_SIZES; i++) {
                values[i] = 100 * (of_waste ? page_size_waste(&p->sizes[i])
                                            : page_size_hit_ratio(&p->sizes[i], &a->repeats));
                y_max = MAX(y_max, values[i]);
        }
        plot.x = (struct axis){"tokens a page", 16 / M_SQRT2, 1024 * M_SQRT2, true, label_number,
                page_ticks, ARRAY_SIZE(page_ticks)};
        plot.y = axis_linear(title, y_max, ticks);
        plot_begin(&plot, id, title);
        for (unsigned i = 0; i < PAGE_SIZES; i++) {
                double x = p->sizes[i].tokens;
                char name[64];

                snprintf(name, sizeof(name), "%g tokens: %.2f %%", x, values[i]);
                plot_bar(&plot, i == p->advised ? 1 : 0, x / 1.3, x * 1.3, values[i], name);
        }
        plot_end(&plot);
}

static void write_page_sizes(const struct analysis *a, FILE *to)
{
        static const char *const names[] = {"page sizes", "advised"};
        char advice[256];

        fprintf(to, "<h2>Page size</h2>\n<p>Advised: %s</p>\n",
                report_page_advice(&a->page_sizes, advice, sizeof(advice)));
        write_key(to, names, 2);
        fputs("<h3>Memory wasted behind the ends of texts</h3>\n", to);
        write_page_plot(a, "waste", "of pages, %", true, to);
        fputs("<h3>Hits with a cache of any size, whole pages only</h3>\n", to);
        if (a->page_sizes.sizes[0].estimated)
                fprintf(to,
                        "<p class=\"soft\">Below the trace's blocks of %" PRIu32
                        " tokens at least so much: what differs within a block isn't known.</p>\n",
                        a->trace->sim.block_tokens);
        write_page_plot(a, "page-hits", "token hit, %", false, to);
        write_page_table(a, to);
}

/* ---- demand ---------------------------------------------------------------------------------- */

static void write_demand_table(const struct analysis *a, FILE *to)
{
        char one[32], two[32], three[32];

        fputs("<details open><summary>Figures</summary><div class=\"scroll\"><table><tr>"
              "<th>tenant</th><th>median</th><th>p99: reserve</th><th>most</th><th>hit % with the p99 alone</th></tr>\n",
                to);
        for (uint32_t i = 0; i < a->trace->sim.n_tenants; i++) {
                const struct demand *d = &a->demands[i];

                fprintf(to,
                        "<tr><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%.2f (%s)</td></tr>\n",
                        report_tenant(a->trace, i), report_count(d->p50_pages, one),
                        report_count(d->p99_pages, two), report_count(d->max_pages, three),
                        100 * replay_hit_ratio(&d->at_p99[d->best]), evict_policies[d->best]->name);
        }
        fputs("</table></div></details>\n", to);
}

static void write_demand_row(
        struct plot *plot, const char *tenant, const struct demand *d, unsigned i, unsigned n)
{
        char name[160];

        snprintf(name, sizeof(name), "%s, most: %" PRIu64 " pages", tenant, d->max_pages);
        plot_row(plot, 2, i, n, 1, (double)d->max_pages, name);
        snprintf(name, sizeof(name), "%s, p99: %" PRIu64 " pages", tenant, d->p99_pages);
        plot_row(plot, 1, i, n, 1, (double)d->p99_pages, name);
        snprintf(name, sizeof(name), "%s, median: %" PRIu64 " pages", tenant, d->p50_pages);
        plot_row(plot, 0, i, n, 0.5, (double)d->p50_pages, name);
}

static void write_demand(const struct analysis *a, FILE *to)
{
        static const char *const names[] = {"median", "p99: the reservation advised", "most"};
        unsigned n = MIN(a->trace->sim.n_tenants, (uint32_t)ROWS_MAX);
        double ticks[AXIS_TICKS], most = 0;
        struct plot plot = {.to = to};
        char hold[32];

        for (unsigned i = 0; i < n; i++)
                most = MAX(most, (double)a->demands[i].max_pages);
        plot.x = axis_linear("pages in use", most, ticks);
        plot.y = (struct axis){.max = 1};
        fprintf(to,
                "<h2>Reservations</h2>\n<p>Pages of %" PRIu32
                " tokens in use, each for %s after a request used it. A reservation of the p99 covers 99 %% of the time.</p>\n",
                a->trace->sim.block_tokens, report_time(a->hold_msec, hold));
        if (n < a->trace->sim.n_tenants)
                fprintf(to, "<p class=\"soft\">The first %u of %" PRIu32 " tenants.</p>\n", n,
                        a->trace->sim.n_tenants);
        write_key(to, names, 3);
        plot_begin(&plot, "demand", "Pages in use by tenant");
        for (unsigned i = 0; i < n; i++) {
                plot_row_label(&plot, i, n, report_tenant(a->trace, i));
                write_demand_row(&plot, report_tenant(a->trace, i), &a->demands[i], i, n);
        }
        plot_end(&plot);
        write_demand_table(a, to);
}

void report_html(const struct analysis *a, FILE *to)
{
        write_head(to);
        write_overview(a, to);
        write_curves(a, to);
        write_distributions(a, to);
        write_page_sizes(a, to);
        write_demand(a, to);
        fputs("</main>\n</body>\n</html>\n", to);
}
