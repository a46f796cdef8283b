/* kvlease-bench: every performance figure of the project. One benchmark a file. A benchmark
 * measures its baselines in the same run, interleaved with its own samples. */
#ifndef KVL_BENCH_H
#define KVL_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define BENCH_MAX_RESULTS 96
#define BENCH_NAME_MAX    47

/* A figure. NAN for a kind that it lacks. */
struct bench_result {
        char name[BENCH_NAME_MAX + 1]; /* "lease" */
        const char *unit;              /* "us", "ns", "1/s", "MiB/s", "bytes", "1" */
        const char *baseline;          /* the compared result: "table"; NULL: nothing */
        double median, p99;
        double baseline_median, baseline_p99;
        double max_ratio; /* bound: median is at most as often baseline_median, and `more` */
        double more;      /* of the unit, beside max_ratio; 0: nothing */
        double min_ratio; /* bound: at least this */
        double max_value; /* bound: median is at most this, */
        bool is_below;    /* or less than it */
};

struct bench_run {
        unsigned rounds;      /* > 0 */
        const char *argument; /* behind the benchmark's name; NULL: none */
        bool quick;           /* small numbers, to see that it works: the figures mean nothing */
        char device[96];      /* the device beside the CPU; "": none */
        struct bench_result results[BENCH_MAX_RESULTS];
        unsigned n_results;
};

struct bench {
        const char *name, *help;
        unsigned rounds;                  /* default */
        int (*fn)(struct bench_run *run); /* 0, or -errno with a line on stderr; -ENODEV: skipped */
        bool uses_cpu; /* it reads and writes pages with the CPU, which can't reach a GPU's */
        const char *argument; /* as --list names it; NULL: it takes none */
};

extern const struct bench bench_alloc, bench_data, bench_disk, bench_fills, bench_footprint,
        bench_gpu, bench_hit, bench_interference, bench_keys, bench_long, bench_neighbours,
        bench_observe, bench_peers, bench_policy, bench_publish, bench_qos, bench_remote,
        bench_remote_hosts, bench_replay, bench_restart, bench_rings, bench_rpc, bench_throughput,
        bench_tiers;

/* Adds a result without numbers, to be filled. Borrowed from the run. */
struct bench_result *bench_add(struct bench_run *run, const char *unit, const char *name, ...)
        __attribute__((format(printf, 3, 4)));

/* Returns false if a bound of the result is missed. */
bool bench_reached(const struct bench_result *r);

/* Sorts, and returns the value below which `part` (0..1) of them are. n > 0. */
double bench_quantile(double *values, size_t n, double part);

/* Prints "kvlease-bench: WHAT: why" and returns r, or -EIO for a condition (> 0). */
int bench_fail(const char *what, int r);

/* report.c */
void bench_print_table(const struct bench *b, const struct bench_run *run);
int bench_print_json(const struct bench *b, const struct bench_run *run);

/* ---- series.c ------------------------------------------------------------------------------- */

/*
 * Times of one operation: the samples of a round, and each round's result. Zeroed: empty.
 *   init -> (add ... close_round) for each round -> report -> deinit
 */
struct series {
        double *samples, *medians, *p99s; /* owned */
        size_t n, max;
        unsigned n_rounds, max_rounds;
};

int series_init(struct series *s, size_t max_samples, unsigned max_rounds); /* 0; -ENOMEM */
void series_deinit(struct series *s);

/* Samples beyond the maximum are dropped. */
void series_add(struct series *s, double value);

/* Ignores a round without samples. */
void series_close_round(struct series *s);

/* Drops the samples of a warm-up round. */
void series_drop_round(struct series *s);

/* Reports medians over the rounds. `baseline` and its name may be NULL. */
void series_report(struct bench_result *r, struct series *own, struct series *baseline,
        const char *baseline_name);

/* ---- cores ---------------------------------------------------------------------------------- */

/*
 * The cores of two processes matter more than their work. On one core an answer costs a switch; on
 * two it costs waking an idle core. The scheduler changes its choice within a run, so all are
 * pinned.
 */
enum { CORE_CLIENT, CORE_OTHER, N_CORES };

/* Finds the first two cores this process may use; the other is -1 if there is only one. Undoes an
 * earlier benchmark's pinning first. Returns 0 or -errno. */
int bench_find_cores(int ret_cores[N_CORES]);
int bench_pin(pid_t pid, int core); /* pid 0: this thread. 0 or -errno */

double bench_usec_since(uint64_t start_nsec);

/* CPU nanoseconds of a process's first thread; 0: not known. */
uint64_t bench_cpu_nsec(pid_t pid);

#endif
