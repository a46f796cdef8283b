/*
 * The inner loops of codecs, for what the CPU has. All give the same bytes as the scalar ones,
 * which are the definition.
 */
#ifndef KVL_BASE_CODEC_KERNELS_H
#define KVL_BASE_CODEC_KERNELS_H

#include "base/codec/codec.h"

/* Rows of n numbers, n of any size; pointers of any alignment that don't overlap. [0] is int8, [1]
 * fp8. */
struct codec_kernels {
        const char *name;
        /* maximum[i] becomes the greater of itself and |x[i]|; as bits of the number format without
         * their sign, which are in the order of the magnitudes. NaN is the greatest. */
        void (*magnitude[N_CODEC_NUMBERS])(void *maximum, const void *x, size_t n);
        /* maximum[i] becomes the greatest of row i's, of n_rows that lie one behind the other. */
        void (*greatest[N_CODEC_NUMBERS])(void *maximum, const void *x, size_t n_rows, size_t n);
        /* x[i] * factor[i], rounded */
        void (*encode[2][N_CODEC_NUMBERS])(
                uint8_t *code, const void *x, const float *factor, size_t n);
        /* code[i] * factor[i], rounded */
        void (*decode[2][N_CODEC_NUMBERS])(
                void *x, const uint8_t *code, const float *factor, size_t n);
};

extern const struct codec_kernels codec_kernels_scalar;
#if defined(__x86_64__)
extern const struct codec_kernels codec_kernels_avx2;   /* with F16C */
extern const struct codec_kernels codec_kernels_avx512; /* with F, BW, DQ and VL */
#elif defined(__aarch64__)
extern const struct codec_kernels codec_kernels_neon;
#endif

/* Those that this CPU can run, the best first; the last is the scalar one. NULL: beyond it. */
const struct codec_kernels *codec_kernels_at(unsigned i);

/* Do what codec_encode() and codec_decode() do, with these kernels. */
int codec_encode_by(const struct codec_kernels *kernels, enum codec codec,
        const struct codec_shape *shape, const void *plain, void *encoded);
int codec_decode_by(const struct codec_kernels *kernels, enum codec codec,
        const struct codec_shape *shape, const void *encoded, void *plain);

#endif
