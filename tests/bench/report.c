/* Results of a run: a table for people, JSON for programs. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <jansson.h>

#include "client/lib/kvlease.h"
#include "tests/bench/bench.h"

struct bench_result *bench_add(struct bench_run *run, const char *unit, const char *name, ...)
{
        struct bench_result *r = &run->results[run->n_results];
        va_list args;

        if (run->n_results == BENCH_MAX_RESULTS)
                abort();
        *r = (struct bench_result){"", unit, NULL, NAN, NAN, NAN, NAN, .max_ratio = NAN,
                .min_ratio = NAN, .max_value = NAN};
        va_start(args, name);
        vsnprintf(r->name, sizeof(r->name), name, args);
        va_end(args);
        run->n_results++;
        return r;
}

bool bench_reached(const struct bench_result *r)
{
        double ratio = r->median / r->baseline_median;

        if (!isnan(r->max_ratio) && !(r->median <= r->max_ratio * r->baseline_median + r->more))
                return false;
        if (!isnan(r->min_ratio) && !(ratio >= r->min_ratio))
                return false;
        if (r->is_below)
                return r->median < r->max_value;
        return isnan(r->max_value) || r->median <= r->max_value;
}

static int compare(const void *a, const void *b)
{
        double x = *(const double *)a, y = *(const double *)b;

        return (x > y) - (x < y);
}

double bench_quantile(double *values, size_t n, double part)
{
        size_t i = (size_t)(part * (double)n);

        qsort(values, n, sizeof(*values), compare);
        return values[i < n ? i : n - 1];
}

int bench_fail(const char *what, int r)
{
        fprintf(stderr, "kvlease-bench: %s: %s\n", what, r < 0 ? strerror(-r) : kvl_strerror(r));
        return r < 0 ? r : -EIO;
}

/* "Intel(R) Xeon(R), 2 cores, Linux 6.1.0" */
static void machine(char *buf, size_t size)
{
        char line[256], model[128] = "unknown CPU";
        FILE *f = fopen("/proc/cpuinfo", "re");
        struct utsname u;

        while (f && fgets(line, sizeof(line), f))
                if (sscanf(line, "model name : %127[^\n]", model) == 1)
                        break;
        if (f)
                fclose(f);
        if (uname(&u) < 0)
                abort();
        snprintf(buf, size, "%s, %ld cores, %s %s", model, sysconf(_SC_NPROCESSORS_ONLN), u.sysname,
                u.release);
}

static void cell(double value, const char *suffix)
{
        if (isnan(value))
                printf(" %11s", "-");
        else if (value >= 1000 || value == floor(value))
                printf(" %10.0f%s", value, suffix);
        else if (value >= 0.1)
                printf(" %10.2f%s", value, suffix);
        else
                printf(" %10.4f%s", value, suffix);
}

static bool has_bound(const struct bench_result *r)
{
        return !isnan(r->max_ratio) || !isnan(r->min_ratio) || !isnan(r->max_value);
}

static void print_bound(const struct bench_result *r)
{
        if (!isnan(r->max_ratio))
                printf("  ratio <= %.4g", r->max_ratio);
        if (r->more > 0)
                printf(" + %.4g %s", r->more, r->unit);
        if (!isnan(r->min_ratio))
                printf("  ratio >= %.4g", r->min_ratio);
        if (!isnan(r->max_value))
                printf("  %s %.4g", r->is_below ? "<" : "<=", r->max_value);
        if (has_bound(r))
                printf(" %s", bench_reached(r) ? "ok" : "MISSED");
        printf("\n");
}

void bench_print_table(const struct bench *b, const struct bench_run *run)
{
        char text[512];

        machine(text, sizeof(text));
        printf("%s: %s\n%s, %u rounds%s\n\n", b->name, b->help, text, run->rounds,
                run->quick ? ", QUICK: the figures mean nothing" : "");
        if (run->device[0])
                printf("device: %s\n\n", run->device);
        printf("%-28s %-5s %11s %11s  %-14s %11s %11s %11s %11s  %s\n", "", "unit", "median", "p99",
                "baseline", "median", "p99", "ratio", "ratio p99", "bound");
        for (unsigned i = 0; i < run->n_results; ++i) {
                const struct bench_result *r = &run->results[i];

                printf("%-28s %-5s", r->name, r->unit);
                cell(r->median, " ");
                cell(r->p99, " ");
                printf("  %-14s", r->baseline ? r->baseline : "-");
                cell(r->baseline_median, " ");
                cell(r->baseline_p99, " ");
                cell(r->median / r->baseline_median, "x");
                cell(r->p99 / r->baseline_p99, "x");
                print_bound(r);
        }
}

static json_t *json_number(double value)
{
        return isnan(value) ? json_null() : json_real(value);
}

/* A row a quantile. The bound is the median's. */
static void add_row(json_t *list, const struct bench_result *r, bool p99)
{
        double value = p99 ? r->p99 : r->median;
        double baseline = p99 ? r->baseline_p99 : r->baseline_median;
        const char *suffix = p99 ? "_p99" : isnan(r->p99) ? "" : "_p50";
        char name[BENCH_NAME_MAX + 5];
        json_t *row;

        snprintf(name, sizeof(name), "%s%s", r->name, suffix);
        row = json_pack("{s:s, s:o, s:s, s:s?, s:o, s:o}", "name", name, "value",
                json_number(value), "unit", r->unit, "against", r->baseline, "baseline",
                json_number(baseline), "ratio", json_number(value / baseline));
        if (!p99 && has_bound(r)) {
                json_object_set_new(row, "max_ratio", json_number(r->max_ratio));
                if (r->more > 0)
                        json_object_set_new(row, "more", json_number(r->more));
                json_object_set_new(row, "min_ratio", json_number(r->min_ratio));
                json_object_set_new(row, "max_value", json_number(r->max_value));
                json_object_set_new(row, "ok", json_boolean(bench_reached(r)));
        }
        json_array_append_new(list, row);
}

int bench_print_json(const struct bench *b, const struct bench_run *run)
{
        json_t *list = json_array(), *top;
        char text[512];
        int r;

        machine(text, sizeof(text));
        for (unsigned i = 0; i < run->n_results; ++i) {
                const struct bench_result *result = &run->results[i];

                add_row(list, result, false);
                if (!isnan(result->p99))
                        add_row(list, result, true);
        }
        top = json_pack("{s:s, s:s, s:s?, s:i, s:o}", "bench", b->name, "machine", text, "device",
                run->device[0] ? run->device : NULL, "rounds", (int)run->rounds, "results", list);
        r = top ? json_dumpf(top, stdout, JSON_INDENT(2)) : -1;
        printf("\n");
        json_decref(top);
        return r < 0 ? bench_fail("JSON", -ENOMEM) : 0;
}
