#include "policy/recompute.h"

#include <assert.h>

/* 2^(b/4). Constants rather than a function: the same on every machine. */
static const double quarters[2 * RECOMPUTE_BINS] = {1, 1.189207115002721, 1.414213562373095,
        1.681792830507429, 2, 2.378414230005442, 2.828427124746190, 3.363585661014858, 4,
        4.756828460010884, 5.656854249492380, 6.727171322029716, 8, 9.513656920021768,
        11.313708498984761, 13.454342644059433};

double recompute_prefix(uint64_t n_tokens, uint32_t crossover)
{
        double n = (double)n_tokens;

        return crossover > 0 ? n + n * n / (2.0 * crossover) : n;
}

uint32_t recompute_bin(uint64_t n_tokens, uint32_t crossover)
{
        double mean = 1 + (double)n_tokens / (2.0 * crossover);
        uint32_t bin = 0;

        assert(crossover > 0);

        while (bin + 1 < RECOMPUTE_BINS && mean >= quarters[2 * (bin + 1)])
                bin++;
        return bin;
}

double recompute_bin_cost(uint32_t bin)
{
        assert(bin < RECOMPUTE_BINS);

        return quarters[2 * bin + 1];
}

uint32_t recompute_length(uint64_t n_tokens, uint32_t crossover)
{
        if (n_tokens <= crossover)
                return n_tokens > crossover / 4;
        return 2 + (n_tokens > UINT64_C(2) * crossover);
}
