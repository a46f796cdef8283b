/* Sums: every kernel against xxhash itself, for all sizes and alignments; what a copy writes, and
 * what it doesn't. */
#include "base/sum.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/macros.h"
#include "base/sum-kernels.h"
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"

#define SIZE_MAX_TRIED 9001 /* beyond two of the kernels' pieces, and what xxhash buffers */
#define MARGIN         64
#define N_RANDOM       300

static uint8_t from[SIZE_MAX_TRIED + 2 * MARGIN], to[SIZE_MAX_TRIED + 2 * MARGIN];

/* Steps that come by every size up to 600, and by every remainder of 64 beyond. */
static size_t next_size(size_t n)
{
        return n < 600 ? n + 1 : n + 63;
}

static void fill(void)
{
        for (size_t i = 0; i < sizeof(from); i++)
                from[i] = (uint8_t)random_u64();
}

/* All of `to` but n bytes at `at` is 0xa5. */
static bool is_untouched(size_t at, size_t n)
{
        for (size_t i = 0; i < sizeof(to); i++)
                if ((i < at || i >= at + n) && to[i] != 0xa5)
                        return false;
        return true;
}

static void check_copy(const struct sum_kernels *k, size_t out, size_t in, size_t n)
{
        struct sum s;

        memset(to, 0xa5, sizeof(to));
        k->begin(&s);
        k->copy(&s, to + out, from + in, n);
        assert_int_equal(k->end(&s), XXH3_64bits(from + in, n));
        assert_memory_equal(to + out, from + in, n);
        assert_true(is_untouched(out, n));
}

TEST(test_sizes)
{
        const struct sum_kernels *k;
        unsigned n_kernels;

        fill();
        for (n_kernels = 0; (k = sum_kernels_at(n_kernels)); n_kernels++) {
                print_message("%s\n", k->name);
                for (size_t n = 0; n <= SIZE_MAX_TRIED; n = next_size(n)) {
                        size_t at = n % MARGIN;

                        assert_int_equal(k->of(from + at, n), XXH3_64bits(from + at, n));
                        check_copy(k, MARGIN, at, n);
                }
        }
        assert_true(n_kernels >= 1 && sum_kernels_at(n_kernels - 1) == &sum_kernels_plain);
}

TEST(test_alignments)
{
        static const size_t sizes[] = {1, 63, 64, 65, 200, 4096, 4159, SIZE_MAX_TRIED};
        const struct sum_kernels *k;

        fill();
        for (unsigned i = 0; (k = sum_kernels_at(i)); i++)
                for (size_t at = 0; at < MARGIN; at++)
                        for (size_t n = 0; n < ARRAY_SIZE(sizes); n++)
                                check_copy(k, at, (at * 7 + n) % MARGIN, sizes[n]);
}

/* For any pieces, any of which are copied. */
static void check_pieces(const struct sum_kernels *k, size_t n)
{
        struct sum s;

        memset(to, 0xa5, sizeof(to));
        k->begin(&s);
        for (size_t at = 0, some; at < n; at += some) {
                some = MIN(1 + random_u64() % (random_u64() % 2 ? 5000 : 70), n - at);
                if (random_u64() % 2)
                        k->add(&s, from + at, some);
                else
                        k->copy(&s, to, from + at, some);
                if (random_u64() % 4 == 0)
                        assert_int_equal(k->end(&s), XXH3_64bits(from, at + some));
        }
        assert_int_equal(k->end(&s), XXH3_64bits(from, n));
}

TEST(test_pieces)
{
        const struct sum_kernels *k;

        fill();
        for (unsigned i = 0; (k = sum_kernels_at(i)); i++)
                for (unsigned n = 0; n < N_RANDOM; n++)
                        check_pieces(k, random_u64() % SIZE_MAX_TRIED);
}

TEST(test_nothing)
{
        struct sum s;

        sum_begin(&s);
        assert_int_equal(sum_end(&s), XXH3_64bits(NULL, 0));
        assert_int_equal(sum_of(NULL, 0), XXH3_64bits(NULL, 0));
        sum_add(&s, NULL, 0);
        sum_copy(&s, NULL, NULL, 0);
        assert_int_equal(sum_end(&s), XXH3_64bits(NULL, 0));
}

struct scribbler {
        pthread_t thread;
        _Atomic uint8_t *bytes;
        _Atomic bool stop;
};

static void *scribble(void *data)
{
        struct scribbler *w = data;

        while (!atomic_load(&w->stop))
                for (size_t i = 0; i < SIZE_MAX_TRIED; i++)
                        atomic_fetch_add_explicit(&w->bytes[i], 1, memory_order_relaxed);
        return NULL;
}

/* A tenant that writes where it mustn't any more: the sum is of what was written. */
TEST(test_changing_source)
{
        struct scribbler w = {.bytes = (_Atomic uint8_t *)from};
        const struct sum_kernels *k;
        unsigned n_wrong = 0;
        struct sum s;

        assert_int_equal(pthread_create(&w.thread, NULL, scribble, &w), 0);
        for (unsigned i = 0; (k = sum_kernels_at(i)); i++)
                for (unsigned n = 0; n < 3000; n++) {
                        k->begin(&s);
                        k->copy(&s, to, from, SIZE_MAX_TRIED);
                        n_wrong += k->end(&s) != k->of(to, SIZE_MAX_TRIED);
                }
        atomic_store(&w.stop, true);
        pthread_join(w.thread, NULL);
        assert_int_equal(n_wrong, 0);
}

/* The public functions, and a sum as it is kept: this must never change. */
TEST(test_public)
{
        static const uint8_t kept[] = "what is stored keeps its sum";
        struct sum s;

        assert_int_equal(sum_of(kept, sizeof(kept)), UINT64_C(0xa38b548f31f5f560));
        fill();
        sum_begin(&s);
        sum_add(&s, from, 1000);
        sum_copy(&s, to, from + 1000, SIZE_MAX_TRIED - 1000);
        assert_int_equal(sum_end(&s), XXH3_64bits(from, SIZE_MAX_TRIED));
        assert_int_equal(sum_of(from, SIZE_MAX_TRIED), XXH3_64bits(from, SIZE_MAX_TRIED));
        sum_begin(&s); /* anew */
        assert_int_equal(sum_end(&s), XXH3_64bits(NULL, 0));
}

int main(void)
{
        random_start("test_sum");
        return test_run_all(NULL, NULL);
}
