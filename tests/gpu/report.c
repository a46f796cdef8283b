/*
 * kvl-gpu-report DIR: makes DIR/report.md and DIR/report.json of run.sh's results in DIR/raw:
 *
 *   host        lines "key=value"
 *   facts.json  output of kvl-gpu-facts
 *   steps       lines "kind<TAB>name<TAB>transport<TAB>exit status<TAB>seconds"
 *   bench-*     JSON of kvlease-bench
 *   decoder     lines of JSON from the decoder
 *
 * Missing files are left out.
 */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/macros.h"

#define PATH_BYTES 4096
#define LINE_BYTES 4096

/* ---- reading -------------------------------------------------------------------------------- */

static FILE *open_raw(const char *dir, const char *name)
{
        char path[PATH_BYTES];

        snprintf(path, sizeof(path), "%s/raw/%s", dir, name);
        return fopen(path, "re");
}

static json_t *load_raw(const char *dir, const char *name)
{
        FILE *f = open_raw(dir, name);
        json_t *object = f ? json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL) : NULL;

        if (f)
                fclose(f);
        return object;
}

static void read_host(const char *dir, json_t *top)
{
        FILE *f = open_raw(dir, "host");
        char line[LINE_BYTES], *value;

        while (f && fgets(line, sizeof(line), f)) {
                line[strcspn(line, "\n")] = '\0';
                value = strchr(line, '=');
                if (!value)
                        continue;
                *value++ = '\0';
                /* Bytes that aren't UTF-8 aren't taken. */
                if (strcmp(line, "seconds") == 0 || strcmp(line, "quick") == 0)
                        json_object_set_new(top, line, json_integer(atoi(value)));
                else
                        json_object_set_new(top, line, json_string(value));
        }
        if (f)
                fclose(f);
}

static const char *outcome_of(int status)
{
        switch (status) {
        case 0:
                return "passed";
        case 77:
                return "skipped";
        case 124:
        case 137:
                return "timed out";
        default:
                return "failed";
        }
}

static json_t *read_steps(const char *dir)
{
        FILE *f = open_raw(dir, "steps");
        json_t *list = json_array();
        char line[LINE_BYTES], kind[64], name[128], transport[64];
        int status, seconds;

        while (f && fgets(line, sizeof(line), f))
                if (sscanf(line, "%63[^\t]\t%127[^\t]\t%63[^\t]\t%d\t%d", kind, name, transport,
                            &status, &seconds) == 5)
                        json_array_append_new(list,
                                json_pack("{s:s, s:s, s:s, s:s, s:i, s:i}", "kind", kind, "name",
                                        name, "transport", transport, "outcome", outcome_of(status),
                                        "status", status, "seconds", seconds));
        if (f)
                fclose(f);
        return list;
}

static json_t *read_lines(const char *dir, const char *name)
{
        FILE *f = open_raw(dir, name);
        json_t *list = json_array();
        char line[4 * LINE_BYTES];

        while (f && fgets(line, sizeof(line), f)) {
                json_t *object = json_loads(line, 0, NULL);

                if (object)
                        json_array_append_new(list, object);
        }
        if (f)
                fclose(f);
        return list;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
        return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_bench(const struct dirent *entry)
{
        return strncmp(entry->d_name, "bench-", 6) == 0;
}

static json_t *read_benches(const char *dir)
{
        json_t *list = json_array(), *object;
        struct dirent **names = NULL;
        char path[PATH_BYTES];
        int n;

        snprintf(path, sizeof(path), "%s/raw", dir);
        n = scandir(path, &names, is_bench, by_name);
        for (int i = 0; i < n; ++i) {
                object = load_raw(dir, names[i]->d_name);
                if (object)
                        json_array_append_new(list, object);
                free(names[i]);
        }
        free(names);
        return list;
}

/* ---- writing -------------------------------------------------------------------------------- */

static const char *text_of(const json_t *object, const char *name)
{
        const char *text = json_string_value(json_object_get(object, name));

        return text ? text : "-";
}

/* A figure with as many digits as mean something; NAN: none. */
static const char *figure(double value, char buf[32])
{
        double size = fabs(value);

        if (isnan(value))
                snprintf(buf, 32, "-");
        else if (value == floor(value) || size >= 1000)
                snprintf(buf, 32, "%.0f", value);
        else
                snprintf(buf, 32, size >= 10 ? "%.1f" : size >= 0.1 ? "%.2f" : "%.3g", value);
        return buf;
}

static double number_of(const json_t *object, const char *name)
{
        const json_t *value = json_object_get(object, name);

        return json_is_number(value) ? json_number_value(value) : NAN;
}

static bool is_double(const json_t *top)
{
        return json_is_true(json_object_get(json_object_get(top, "device"), "is_double"));
}

static void print_head(FILE *to, const json_t *top)
{
        static const char *const rows[] = {
                "date", "kernel", "cpu", "glibc", "kvlease", "kernel_module", "persistence", "mps"};
        const json_t *device = json_object_get(top, "device");
        char total[32];

        fprintf(to, "# GPU report\n\n");
        if (is_double(top))
                fprintf(to,
                        "**The device is fakecuda, the driver's double: this says that the programs run, and nothing about hardware.**\n\n");
        fprintf(to, "| | |\n|---|---|\n| device | %s |\n| UUID | %s |\n",
                is_double(top) ? "fakecuda" : text_of(device, "name"), text_of(device, "uuid"));
        fprintf(to, "| CUDA version of the driver | %.0f |\n", number_of(device, "driver_version"));
        fprintf(to, "| compute capability | %.0f.%.0f |\n", number_of(device, "compute_major"),
                number_of(device, "compute_minor"));
        fprintf(to, "| memory | %s MiB |\n",
                figure(floor(number_of(device, "total_bytes") / 1048576), total));
        fprintf(to, "| granularity | %s KiB |\n",
                figure(number_of(device, "granularity_bytes") / 1024, total));
        for (unsigned i = 0; i < ARRAY_SIZE(rows); ++i)
                if (json_object_get(top, rows[i]))
                        fprintf(to, "| %s | %s |\n", rows[i], text_of(top, rows[i]));
        fprintf(to, "| run | %s, %s s |\n\n", number_of(top, "quick") > 0 ? "quick" : "whole",
                figure(number_of(top, "seconds"), total));
}

/* Figures of the simulated driver mean nothing: they are left out. */
static void print_facts(FILE *to, const json_t *facts, bool with_figures)
{
        const json_t *f, *v;
        char buf[32];
        size_t i, k;

        fprintf(to, "## Facts\n\n| id | claim | outcome | why |\n|---|---|---|---|\n");
        json_array_foreach(facts, i, f) fprintf(to, "| %s | %s | %s | %s |\n", text_of(f, "id"),
                text_of(f, "claim"), text_of(f, "outcome"), text_of(f, "why"));
        fprintf(to, "\n");
        json_array_foreach(facts, i, f)
        {
                const json_t *values = json_object_get(f, "values");

                if (json_array_size(values) == 0)
                        continue;
                fprintf(to, "### %s: %s\n\n| | value | unit |\n|---|---|---|\n", text_of(f, "id"),
                        text_of(f, "claim"));
                json_array_foreach(values, k, v) fprintf(to, "| %s | %s | %s |\n",
                        text_of(v, "name"), figure(number_of(v, "value"), buf), text_of(v, "unit"));
                fprintf(to, "\n");
        }
}

static void print_steps(FILE *to, const json_t *steps)
{
        const json_t *s;
        char buf[32];
        size_t i;

        fprintf(to, "## What ran\n\n| what | name | transport | outcome | exit status | seconds |\n"
                    "|---|---|---|---|---|---|\n");
        json_array_foreach(steps, i, s)
        {
                fprintf(to, "| %s | %s | %s | %s ", text_of(s, "kind"), text_of(s, "name"),
                        text_of(s, "transport"), text_of(s, "outcome"));
                fprintf(to, "| %s ", figure(number_of(s, "status"), buf));
                fprintf(to, "| %s |\n", figure(number_of(s, "seconds"), buf));
        }
        fprintf(to, "\n");
}

static void print_decoder(FILE *to, const json_t *runs, bool with_figures)
{
        static const char *const columns[] = {
                "tokens", "reused", "computed", "pages_reused", "prefill_ms", "tokens_per_s"};
        unsigned n_columns = ARRAY_SIZE(columns) - (with_figures ? 0 : 2);
        char buf[32];
        const json_t *r;
        size_t i;

        if (json_array_size(runs) == 0)
                return;
        fprintf(to, "## Decoder: the same text again and again\n\n| run ");
        for (unsigned c = 0; c < n_columns; ++c)
                fprintf(to, "| %s ", columns[c]);
        fprintf(to, "| logits |\n|---|---|");
        for (unsigned c = 0; c < n_columns; ++c)
                fprintf(to, "---|");
        fprintf(to, "\n");
        json_array_foreach(runs, i, r)
        {
                fprintf(to, "| %zu ", i + 1);
                for (unsigned c = 0; c < n_columns; ++c)
                        fprintf(to, "| %s ", figure(number_of(r, columns[c]), buf));
                fprintf(to, "| %s |\n", text_of(r, "logits"));
        }
        fprintf(to, "\n");
}

static void print_bound(FILE *to, const json_t *row)
{
        static const char *const bounds[][2] = {{"max_ratio", "ratio <="}, {"more", "+"},
                {"min_ratio", "ratio >="}, {"max_value", "<="}};
        char buf[32];

        for (unsigned i = 0; i < ARRAY_SIZE(bounds); ++i)
                if (!isnan(number_of(row, bounds[i][0])))
                        fprintf(to, "%s %s ", bounds[i][1],
                                figure(number_of(row, bounds[i][0]), buf));
        if (json_object_get(row, "ok"))
                fprintf(to, "%s", json_is_true(json_object_get(row, "ok")) ? "ok" : "MISSED");
        fprintf(to, "|\n");
}

static void print_benches(FILE *to, const json_t *benches)
{
        const json_t *b, *rows, *row;
        size_t i, k;
        char buf[32];

        json_array_foreach(benches, i, b)
        {
                rows = json_object_get(b, "results");
                fprintf(to, "## Benchmark %s\n\n%s, device %s\n\n", text_of(b, "bench"),
                        text_of(b, "machine"), text_of(b, "device"));
                fprintf(to, "| | value | unit | against | baseline | ratio | bound |\n"
                            "|---|---|---|---|---|---|---|\n");
                json_array_foreach(rows, k, row)
                {
                        fprintf(to, "| %s | %s ", text_of(row, "name"),
                                figure(number_of(row, "value"), buf));
                        fprintf(to, "| %s | %s ", text_of(row, "unit"), text_of(row, "against"));
                        fprintf(to, "| %s ", figure(number_of(row, "baseline"), buf));
                        fprintf(to, "| %s | ", figure(number_of(row, "ratio"), buf));
                        print_bound(to, row);
                }
                fprintf(to, "\n");
        }
}

static int write_markdown(const char *path, const json_t *top)
{
        FILE *to = fopen(path, "we");

        if (!to)
                return -errno;
        print_head(to, top);
        print_facts(to, json_object_get(top, "facts"), !is_double(top));
        print_benches(to, json_object_get(top, "benchmarks"));
        print_decoder(to, json_object_get(top, "decoder"), !is_double(top));
        print_steps(to, json_object_get(top, "steps"));
        return fclose(to) < 0 ? -errno : 0;
}

int main(int argc, char **argv)
{
        json_t *top = json_object(), *facts;
        char path[PATH_BYTES];
        int r;

        if (argc != 2 || argv[1][0] == '-') {
                fprintf(stderr, "Usage: kvl-gpu-report DIR\n");
                return 1;
        }
        read_host(argv[1], top);
        facts = load_raw(argv[1], "facts.json");
        if (facts) {
                json_object_set(top, "device", json_object_get(facts, "device"));
                json_object_set(top, "facts", json_object_get(facts, "facts"));
        } else {
                json_object_set_new(top, "device", load_raw(argv[1], "device.json"));
                json_object_set_new(top, "facts", json_array());
        }
        json_decref(facts);
        json_object_set_new(top, "benchmarks", read_benches(argv[1]));
        json_object_set_new(top, "decoder", read_lines(argv[1], "decoder"));
        json_object_set_new(top, "steps", read_steps(argv[1]));
        snprintf(path, sizeof(path), "%s/report.json", argv[1]);
        r = json_dump_file(top, path, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
        snprintf(path, sizeof(path), "%s/report.md", argv[1]);
        if (r == 0)
                r = write_markdown(path, top);
        if (r < 0)
                fprintf(stderr, "kvl-gpu-report: %s: can't be written\n", path);
        json_decref(top);
        return r < 0 ? 1 : 0;
}
