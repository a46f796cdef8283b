/* The inner loops of codecs, for each kind of CPU. All give the same bytes as the scalar ones,
 * which are the definition. */
#ifndef KVL_BASE_CODEC_KERNELS_H
#define KVL_BASE_CODEC_KERNELS_H

#include "base/codec/codec.h"

/* Functions on rows of n numbers, with any n. Pointers may have any alignment, and don't overlap.
 * [0] is int8, [1] fp8. */
struct codec_kernels {
        const char *name;
        /* maximum[i] becomes the greater of itself and |x[i]|, as bits of the number format without
         * their sign. These have the order of the magnitudes. NaN is the greatest. */
        void (*magnitude[N_CODEC_NUMBERS])(void *maximum, const void *x, size_t n);
        /* maximum[i] becomes the greatest magnitude of row i, of n_rows contiguous rows. */
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

/* Handle the numbers left over by vectors: return the greater of `found` and the greatest of x. */
static inline uint32_t greatest_rest_16(uint32_t found, const void *x, size_t n)
{
        uint16_t rest;

        codec_kernels_scalar.greatest[CODEC_F16](&rest, x, 1, n);
        return found > rest ? found : rest;
}

static inline uint32_t greatest_rest_32(uint32_t found, const void *x, size_t n)
{
        uint32_t rest;

        codec_kernels_scalar.greatest[CODEC_F32](&rest, x, 1, n);
        return found > rest ? found : rest;
}

/* Returns the kernels that this CPU can run, the best first and the scalar ones last; NULL after
 * the last. */
const struct codec_kernels *codec_kernels_at(unsigned i);

/* Do codec_encode() and codec_decode() with these kernels. */
int codec_encode_by(const struct codec_kernels *kernels, enum codec codec,
        const struct codec_shape *shape, const void *plain, void *encoded);
int codec_decode_by(const struct codec_kernels *kernels, enum codec codec,
        const struct codec_shape *shape, const void *encoded, void *plain);

#endif
