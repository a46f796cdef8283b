#include <inttypes.h>
#include <string.h>

#include "base/macros.h"
#include "client/trace/report.h"

/* ---- words ----------------------------------------------------------------------------------- */

char *report_count(uint64_t n, char buf[32])
{
        char digits[24];
        int len = snprintf(digits, sizeof(digits), "%" PRIu64, n);
        char *to = buf;

        for (int i = 0; i < len; i++) {
                if (i > 0 && (len - i) % 3 == 0)
                        *to++ = ',';
                *to++ = digits[i];
        }
        *to = '\0';
        return buf;
}

char *report_time(uint64_t msec, char buf[32])
{
        static const struct {
                double msec;
                const char *unit;
        } units[] = {{86400e3, "d"}, {3600e3, "h"}, {60e3, "min"}, {1e3, "s"}};

        for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
                double n = (double)msec / units[i].msec;

                if (n < 1)
                        continue;
                snprintf(buf, 32, n < 10 ? "%.1f %s" : "%.0f %s", n, units[i].unit);
                return buf;
        }
        snprintf(buf, 32, "%" PRIu64 " ms", msec);
        return buf;
}

char *report_mean(const struct dist *d, char *(*show)(uint64_t, char[32]), char buf[32])
{
        if (show != report_count || d->mean >= 100)
                return show((uint64_t)(d->mean + 0.5), buf);
        snprintf(buf, 32, "%.1f", d->mean);
        return buf;
}

const char *report_tenant(const struct trace *t, uint32_t tenant)
{
        if (t->tenants[tenant][0])
                return t->tenants[tenant];
        return t->sim.n_tenants == 1 ? "(all)" : "(unnamed)";
}

char *report_page_advice(const struct page_sizes *p, char *buf, size_t size)
{
        const struct page_size *best = &p->sizes[p->advised];

        snprintf(buf, size,
                "%" PRIu32
                " tokens a page: the largest size that wastes at most 1 %% and loses at most 0.5 points of hits to pages of %" PRIu32
                " tokens%s.",
                best->tokens, p->sizes[0].tokens,
                best->tokens < 256 ? "; 256 and more only where three of four texts have 32 pages"
                                   : "; three of four texts have at least 32 such pages");
        return buf;
}

double report_percent(uint64_t n, uint64_t of)
{
        return of > 0 ? 100 * (double)n / (double)of : 0;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void print_dist(
        const char *name, const struct dist *d, char *(*show)(uint64_t, char[32]), FILE *to)
{
        static const unsigned shown[] = {1, 2, 3, 4, 5, 7, 8}; /* of dist_quantiles */
        char buf[32];

        fprintf(to, "  %-18s", name);
        if (d->n == 0) {
                fputs("  none\n", to);
                return;
        }
        fprintf(to, " %9s", report_mean(d, show, buf));
        for (size_t i = 0; i < ARRAY_SIZE(shown); i++)
                fprintf(to, " %9s", show(d->quantiles[shown[i]], buf));
        putc('\n', to);
}

static void print_dists(const struct analysis *a, FILE *to)
{
        fprintf(to, "\nDistributions\n  %-18s %9s %9s %9s %9s %9s %9s %9s %9s\n", "", "mean", "p5",
                "p25", "median", "p75", "p90", "p99", "most");
        print_dist("input tokens", &a->input_tokens, report_count, to);
        print_dist("output tokens", &a->output_tokens, report_count, to);
        print_dist("turns a session", &a->sessions.turns, report_count, to);
        print_dist("between turns", &a->sessions.gap_msec, report_time, to);
        print_dist("session lasts", &a->sessions.duration_msec, report_time, to);
        print_dist("first reuse after", &a->first_reuse_msec, report_time, to);
        print_dist("any reuse after", &a->reuse_msec, report_time, to);
}

static void print_overview(const struct analysis *a, FILE *to)
{
        const struct sim_trace *t = &a->trace->sim;
        const struct repeats *r = &a->repeats;
        char one[32], two[32], three[32];

        fprintf(to, "Trace: %s requests of %s tenant%s in %s, blocks of %" PRIu32 " tokens",
                report_count(t->n_requests, one), report_count(t->n_tenants, two),
                t->n_tenants == 1 ? "" : "s", report_time(a->duration_msec, three),
                t->block_tokens);
        if (a->trace->n_bad > 0)
                fprintf(to, "; %s lines skipped", report_count(a->trace->n_bad, one));
        if (a->trace->n_late > 0)
                fprintf(to, "; %s lines out of order, sorted", report_count(a->trace->n_late, one));
        fprintf(to, "\n\nRepeats, with a cache of any size\n");
        fprintf(to, "  %-18s %5.1f %% of %s\n", "input tokens",
                report_percent(r->repeated_tokens, r->input_tokens),
                report_count(r->input_tokens, one));
        fprintf(to, "  %-18s %5.1f %% of %s; %s different ones\n", "blocks",
                report_percent(r->repeated_blocks, r->blocks), report_count(r->blocks, one),
                report_count(t->n_unique, two));
        fprintf(to, "  %-18s %5.1f %% start like one before\n", "requests",
                report_percent(r->repeated_requests, t->n_requests));
        fprintf(to, "  %-18s %5.1f %% of requests continue one of %s\n", "sessions",
                report_percent(r->continued, t->n_requests), report_count(a->sessions.n, one));
}

/* Prints the columns of a policy: hits, then the optional figures. */
static void print_curve_heads(const struct curves *c, unsigned policy, FILE *to)
{
        char name[CURVES_NAME_MAX];

        fprintf(to, " %8s", curves_policy_name(c, policy, name));
        if (c->crossover > 0)
                fprintf(to, " %6s", "saved");
        if (c->n_seeds > 1)
                fprintf(to, " %6s", "+-");
        if (c->below > 0)
                fprintf(to, " %8s", "+below");
        if (sim_takes_time(&c->engine))
                fprintf(to, " %6s %8s", "held", "wait");
}

static void print_curve_point(const struct curves *c, unsigned policy, unsigned capacity, FILE *to)
{
        char text[32];

        fprintf(to, " %8.2f",
                100 * (c->below > 0 ? curves_above(c, policy, capacity)
                                    : curves_at(c, policy, capacity)));
        if (c->crossover > 0)
                fprintf(to, " %6.2f", 100 * curves_saved(c, policy, capacity));
        if (c->n_seeds > 1)
                fprintf(to, " %6.2f", 100 * c->spreads[policy][capacity].stddev);
        if (c->below > 0)
                fprintf(to, " %8.2f", 100 * curves_at(c, policy, capacity));
        if (sim_takes_time(&c->engine))
                fprintf(to, " %6.1f %8s", 100 * curves_held(c, policy, capacity),
                        report_time(curves_wait_msec(c, policy, capacity), text));
}

void report_curves(const struct curves *c, FILE *to)
{
        char text[32];

        fprintf(to, "  %-12s %10s", "capacity", "pages");
        for (unsigned p = 0; p < c->n_policies; p++)
                print_curve_heads(c, p, to);
        putc('\n', to);
        for (unsigned i = 0; i < c->n_capacities; i++) {
                fprintf(to, "  %-12s %10" PRIu32, capacity_text(&c->capacities[i], text),
                        c->capacities[i].pages);
                for (unsigned p = 0; p < c->n_policies; p++)
                        print_curve_point(c, p, i, to);
                putc('\n', to);
        }
}

static void print_page_sizes(const struct analysis *a, FILE *to)
{
        const struct page_sizes *p = &a->page_sizes;
        char advice[256];

        fprintf(to, "\nPage size\n  %-12s %8s %8s\n", "tokens", "waste %", "hit %");
        for (unsigned i = 0; i < PAGE_SIZES; i++)
                fprintf(to, "  %-12" PRIu32 " %8.2f %8.2f%s%s\n", p->sizes[i].tokens,
                        100 * page_size_waste(&p->sizes[i]),
                        100 * page_size_hit_ratio(&p->sizes[i], &a->repeats),
                        p->sizes[i].estimated ? " at least" : "",
                        i == p->advised ? "  <- advised" : "");
        fprintf(to, "  %s\n", report_page_advice(p, advice, sizeof(advice)));
}

static void print_demand(const struct analysis *a, FILE *to)
{
        char hold[32], one[32], two[32], three[32];

        fprintf(to,
                "\nReservation: pages of %" PRIu32
                " tokens in use, each for %s after a request used it\n  %-24s %9s %9s %9s  %s\n",
                a->trace->sim.block_tokens, report_time(a->hold_msec, hold), "tenant", "median",
                "p99", "most", "hit % with the p99 alone");
        for (uint32_t i = 0; i < a->trace->sim.n_tenants; i++) {
                const struct demand *d = &a->demands[i];

                fprintf(to, "  %-24s %9s %9s %9s  %.2f (%s)\n", report_tenant(a->trace, i),
                        report_count(d->p50_pages, one), report_count(d->p99_pages, two),
                        report_count(d->max_pages, three),
                        100 * replay_hit_ratio(&d->at_p99[d->best]), evict_policies[d->best]->name);
        }
        fputs("  The p99 is the smallest reservation that covers 99 % of the time.\n", to);
}

void report_text(const struct analysis *a, FILE *to)
{
        print_overview(a, to);
        print_dists(a, to);
        fputs("\nToken hit %, one cache for all\n", to);
        report_curves(&a->curves, to);
        print_page_sizes(a, to);
        print_demand(a, to);
}
