#include "client/trace/dist.h"

#include <math.h>
#include <stdlib.h>

#include "base/macros.h"

static const double dist_quantiles[DIST_QUANTILES] = {
        0.01, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1};

static int compare_values(const void *a, const void *b)
{
        uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

        return (x > y) - (x < y);
}

/* Returns twice the binary logarithm, rounded down: 2^k and 2^k * sqrt(2) begin bins. Compared by
 * squares, which are exact. */
static unsigned bin_of(uint64_t value)
{
        unsigned octave;

        if (value < 2)
                return 0;
        octave = 63 - (unsigned)__builtin_clzll(value);
        return 2 * octave +
               ((unsigned __int128)value * value >= (unsigned __int128)1 << (2 * octave + 1));
}

double dist_bin_start(unsigned bin)
{
        return bin == 0 ? 0 : exp2(bin / 2.0);
}

uint64_t dist_quantile(const uint64_t *sorted, size_t n, double part)
{
        double rank = ceil(part * (double)n);

        return sorted[rank < 1 ? 0 : MIN((size_t)rank, n) - 1];
}

void dist_of(uint64_t *values, size_t n, struct dist *ret)
{
        double sum = 0;

        *ret = (struct dist){.n = n};
        if (n == 0)
                return;
        qsort(values, n, sizeof(*values), compare_values);
        for (size_t i = 0; i < n; i++) {
                sum += (double)values[i];
                ret->bins[bin_of(values[i])]++;
        }
        ret->mean = sum / (double)n;
        for (unsigned i = 0; i < DIST_QUANTILES; i++)
                ret->quantiles[i] = dist_quantile(values, n, dist_quantiles[i]);
}

void dist_range(const struct dist *d, unsigned *ret_first, unsigned *ret_last)
{
        *ret_first = *ret_last = 0;
        for (unsigned i = DIST_BINS; i-- > 0;)
                if (d->bins[i] > 0)
                        *ret_first = i;
        for (unsigned i = 0; i < DIST_BINS; i++)
                if (d->bins[i] > 0)
                        *ret_last = i;
}
