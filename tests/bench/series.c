#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/bench.h"
#include "tests/integration/private-daemon.h"

int series_init(struct series *s, size_t max_samples, unsigned max_rounds)
{
        *s = (struct series){.max = max_samples, .max_rounds = max_rounds};
        s->samples = calloc(max_samples, sizeof(double));
        s->medians = calloc(max_rounds, sizeof(double));
        s->p99s = calloc(max_rounds, sizeof(double));
        return s->samples && s->medians && s->p99s ? 0 : bench_fail("samples", -ENOMEM);
}

void series_deinit(struct series *s)
{
        free(s->samples);
        free(s->medians);
        free(s->p99s);
        *s = (struct series){0};
}

void series_add(struct series *s, double value)
{
        if (s->n < s->max)
                s->samples[s->n++] = value;
}

void series_close_round(struct series *s)
{
        if (s->n > 0 && s->n_rounds < s->max_rounds) {
                s->medians[s->n_rounds] = bench_quantile(s->samples, s->n, 0.5);
                s->p99s[s->n_rounds++] = bench_quantile(s->samples, s->n, 0.99);
        }
        s->n = 0;
}

void series_drop_round(struct series *s)
{
        s->n = 0;
}

static double over_rounds(double *values, unsigned n)
{
        return n > 0 ? bench_quantile(values, n, 0.5) : NAN;
}

void series_report(struct bench_result *r, struct series *own, struct series *baseline,
        const char *baseline_name)
{
        r->median = over_rounds(own->medians, own->n_rounds);
        r->p99 = over_rounds(own->p99s, own->n_rounds);
        if (!baseline)
                return;
        r->baseline = baseline_name;
        r->baseline_median = over_rounds(baseline->medians, baseline->n_rounds);
        r->baseline_p99 = over_rounds(baseline->p99s, baseline->n_rounds);
}

int bench_find_cores(int ret_cores[N_CORES])
{
        static cpu_set_t set; /* before the first bench_pin() */
        static bool is_known;
        unsigned n = 0;

        if (is_known ? sched_setaffinity(0, sizeof(set), &set) < 0
                     : sched_getaffinity(0, sizeof(set), &set) < 0)
                return -errno;
        is_known = true;
        ret_cores[CORE_CLIENT] = ret_cores[CORE_OTHER] = -1;
        for (int i = 0; i < CPU_SETSIZE && n < N_CORES; ++i)
                if (CPU_ISSET(i, &set))
                        ret_cores[n++] = i;
        return 0;
}

int bench_pin(pid_t pid, int core)
{
        cpu_set_t set;

        CPU_ZERO(&set);
        CPU_SET(core, &set);
        return sched_setaffinity(pid, sizeof(set), &set) < 0 ? -errno : 0;
}

uint64_t bench_cpu_nsec(pid_t pid)
{
        unsigned long long nsec = 0;
        char path[64];
        FILE *f;

        snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)pid);
        f = fopen(path, "re");
        if (!f)
                return 0;
        if (fscanf(f, "%llu", &nsec) != 1)
                nsec = 0;
        fclose(f);
        return nsec;
}

double bench_usec_since(uint64_t start_nsec)
{
        return (double)(now_nsec() - start_nsec) / 1000;
}
