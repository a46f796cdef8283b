/* Recovery of damaged state: every byte of the root and of the records, and random damage.
 * tests/fuzz/fuzz_state.c has the rules, and aborts if one is broken. */
#include "tests/fuzz/fuzz.h"
#undef CHECK
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"

#define RECORD   6
#define N_RANDOM 1500

/* One byte of the root (target 0) or the records (1) inverted. */
static void invert(unsigned target, unsigned from, unsigned to, unsigned step, unsigned flags)
{
        for (unsigned at = from; at < to; at += step) {
                uint8_t input[1 + RECORD] = {
                        (uint8_t)flags, (uint8_t)target, 1, (uint8_t)at, (uint8_t)(at >> 8), 0xff};

                LLVMFuzzerTestOneInput(input, sizeof(input));
        }
}

TEST_BARE(test_root)
{
        invert(0, 0, 80, 1, 0);
}

/* Header, set records, then pages, notes and extras. */
TEST_BARE(test_records)
{
        invert(1, 0, 1100, 3, 0);
        invert(1, 40, 1100, 7, 1);
        invert(1, 4096, 4096 + 32, 1, 0);
        invert(1, 8192, 8192 + 16 * 64, 5, 0);
        invert(1, 12288, 12288 + 16 * 24, 5, 0);
        invert(1, 16384, 16384 + 16 * 32, 5, 0);
        invert(1, 8192, 8192 + 16 * 64, 5, 2);
        invert(1, 12288, 12288 + 16 * 24, 5, 2);
        invert(1, 16384, 16384 + 16 * 32, 5, 2);
}

TEST_BARE(test_index)
{
        invert(2, 0, 144, 3, 0);
        invert(2, 4096, 4096 + 3000, 13, 0);
}

TEST_BARE(test_random)
{
        random_start("test_random");
        for (unsigned i = 0; i < N_RANDOM; i++) {
                uint8_t input[1 + 8 * RECORD];
                size_t n = 1 + (1 + random_below(8)) * RECORD;

                for (size_t k = 0; k < n; k++)
                        input[k] = (uint8_t)random_u64();
                for (size_t k = 1; k < n; k += RECORD) {
                        input[k] = (uint8_t)(random_below(16) == 0 ? 3 : random_below(3));
                        input[k + 3] &= 0x7f;
                }
                LLVMFuzzerTestOneInput(input, n);
        }
}
