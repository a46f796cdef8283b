/* Distributions: quantiles, and a histogram over powers of two to draw. */
#ifndef KVL_TRACE_DIST_H
#define KVL_TRACE_DIST_H

#include <stddef.h>
#include <stdint.h>

#define DIST_QUANTILES 9
#define DIST_MEDIAN    3

/* Bin b counts values from 2^(b/2) up to the next: two bins an octave. Bin 0 has the zeros, too. */
#define DIST_BINS 128

struct dist {
        uint64_t n;
        double mean;
        uint64_t quantiles[DIST_QUANTILES]; /* values that occurred */
        uint64_t bins[DIST_BINS];
};

/* Makes a distribution of the values, which it sorts. */
void dist_of(uint64_t *values, size_t n, struct dist *ret);

/* Returns the smallest of the n > 0 sorted values that `part` (0..1) of them don't exceed. */
uint64_t dist_quantile(const uint64_t *sorted, size_t n, double part);

/* Returns the lower edge of a bin. */
double dist_bin_start(unsigned bin);

/* Returns the first and last non-empty bin: 0 and 0 if n == 0. */
void dist_range(const struct dist *d, unsigned *ret_first, unsigned *ret_last);

#endif
