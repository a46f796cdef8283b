/*
 * kvlease-bench: every performance figure of the project. One benchmark a file; a benchmark
 * measures its baselines in the same run, interleaved with what it compares to them.
 */
#ifndef KVL_BENCH_H
#define KVL_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_MAX_RESULTS 16

/* A figure. NAN where it has none of a kind. */
struct bench_result {
        const char *name; /* "lease" */
        const char *unit; /* "us", "bytes", "1" */
        double median, p99;
        double baseline_median, baseline_p99;
        double max_ratio; /* target: median / baseline_median is at most this */
        double max_value; /* target: median is at most this */
};

struct bench_run {
        unsigned rounds; /* > 0 */
        bool quick;      /* small numbers, to see that it works: the figures mean nothing */
        struct bench_result results[BENCH_MAX_RESULTS];
        unsigned n_results;
};

struct bench {
        const char *name, *help;
        unsigned rounds;                  /* default */
        int (*fn)(struct bench_run *run); /* 0, or -errno with a line on stderr */
};

extern const struct bench bench_footprint, bench_rpc;

/* A result without numbers, to be filled. Borrowed from the run. */
struct bench_result *bench_add(struct bench_run *run, const char *name, const char *unit);

/* False where a target of the result is missed. */
bool bench_reached(const struct bench_result *r);

/* Sorts, and takes the value below which `part` (0..1) of them lie. n > 0. */
double bench_quantile(double *values, size_t n, double part);

/* Prints "kvlease-bench: WHAT: why" and returns r. */
int bench_fail(const char *what, int r);

/* report.c */
void bench_print_table(const struct bench *b, const struct bench_run *run);
int bench_print_json(const struct bench *b, const struct bench_run *run);

#endif
