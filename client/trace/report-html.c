#include <inttypes.h>
#include <math.h>

#include "base/macros.h"
#include "client/trace/report.h"
#include "client/trace/svg.h"

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

static double percent_of(uint64_t n, uint64_t of)
{
        return of > 0 ? 100 * (double)n / (double)of : 0;
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
        write_percent(
                to, "input tokens that repeat", percent_of(r->repeated_tokens, r->input_tokens));
        write_percent(to, "requests that start like another",
                percent_of(r->repeated_requests, t->n_requests));
        write_percent(
                to, "requests that continue a session", percent_of(r->continued, t->n_requests));
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
                        percent_of(d->bins[i], d->n));
                plot_bar(plot, 0, MAX(dist_bin_start(i), plot->x.min), dist_bin_start(i + 1),
                        percent_of(d->bins[i], d->n), name);
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
                y_max = MAX(y_max, percent_of(d->bins[i], d->n));
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
