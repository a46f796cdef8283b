/* NEON of AArch64: eight numbers at a time, in two registers. */
#include <arm_neon.h>
#include <stdint.h>

#include "base/codec/codec-kernels.h"

#define LANES      8
#define HALF_LANES 8
#define WORD_LANES 4

typedef float32x4x2_t vector;

static inline vector vector_multiply(vector a, vector b)
{
        return (vector){{vmulq_f32(a.val[0], b.val[0]), vmulq_f32(a.val[1], b.val[1])}};
}

static inline void magnitude_halves(void *maximum, const void *x)
{
        uint16x8_t bits = vandq_u16(vld1q_u16(x), vdupq_n_u16(0x7fff));

        vst1q_u16(maximum, vmaxq_u16(vld1q_u16(maximum), bits));
}

static inline void magnitude_words(void *maximum, const void *x)
{
        uint32x4_t bits = vandq_u32(vld1q_u32(x), vdupq_n_u32(0x7fffffff));

        vst1q_u32(maximum, vmaxq_u32(vld1q_u32(maximum), bits));
}

static inline uint32_t greatest_halves(const void *x, size_t n)
{
        uint16x8_t most = vdupq_n_u16(0);
        const uint16_t *from = x;
        uint32_t found;

        for (; n >= 8; n -= 8, from += 8)
                most = vmaxq_u16(most, vandq_u16(vld1q_u16(from), vdupq_n_u16(0x7fff)));
        found = vmaxvq_u16(most);
        return n > 0 ? greatest_rest_16(found, from, n) : found;
}

static inline uint32_t greatest_words(const void *x, size_t n)
{
        uint32x4_t most = vdupq_n_u32(0);
        const uint32_t *from = x;
        uint32_t found;

        for (; n >= 4; n -= 4, from += 4)
                most = vmaxq_u32(most, vandq_u32(vld1q_u32(from), vdupq_n_u32(0x7fffffff)));
        found = vmaxvq_u32(most);
        return n > 0 ? greatest_rest_32(found, from, n) : found;
}

static inline vector of_halves(uint16x8_t bits)
{
        float16x8_t halves = vreinterpretq_f16_u16(bits);

        return (vector){{vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)}};
}

static inline vector load_f16(const void *p)
{
        return of_halves(vld1q_u16(p));
}

static inline void store_f16(void *p, vector v)
{
        float16x8_t halves = vcvt_high_f16_f32(vcvt_f16_f32(v.val[0]), v.val[1]);

        vst1q_u16(p, vreinterpretq_u16_f16(halves));
}

static inline vector load_bf16(const void *p)
{
        uint16x8_t halves = vld1q_u16(p);

        return (vector){{vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(halves), 16)),
                vreinterpretq_f32_u32(vshll_high_n_u16(halves, 16))}};
}

static inline uint16x4_t round_bf16(float32x4_t v)
{
        uint32x4_t bits = vreinterpretq_u32_f32(v);
        uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));

        bits = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
        return vshrn_n_u32(bits, 16);
}

static inline void store_bf16(void *p, vector v)
{
        vst1q_u16(p, vcombine_u16(round_bf16(v.val[0]), round_bf16(v.val[1])));
}

static inline vector load_f32(const void *p)
{
        return (vector){{vld1q_f32(p), vld1q_f32((const float *)p + 4)}};
}

static inline void store_f32(void *p, vector v)
{
        vst1q_f32(p, v.val[0]);
        vst1q_f32((float *)p + 4, v.val[1]);
}

static inline vector load_int8(const void *p)
{
        int16x8_t halves = vmovl_s8(vld1_s8(p));

        return (vector){{vcvtq_f32_s32(vmovl_s16(vget_low_s16(halves))),
                vcvtq_f32_s32(vmovl_high_s16(halves))}};
}

static inline void store_int8(void *p, vector v)
{
        int16x4_t low = vmovn_s32(vcvtnq_s32_f32(v.val[0]));

        vst1_s8(p, vmovn_s16(vmovn_high_s32(low, vcvtnq_s32_f32(v.val[1]))));
}

/* Vectors of e4m3_value() and e4m3_round(). */
static inline vector load_e4m3(const void *p)
{
        uint16x8_t code = vmovl_u8(vld1_u8(p));
        uint16x8_t sign = vandq_u16(vshlq_n_u16(code, 8), vdupq_n_u16(0x8000));
        uint16x8_t low = vshlq_n_u16(vandq_u16(code, vdupq_n_u16(0x7f)), 7);
        vector v = of_halves(vorrq_u16(sign, low));

        return (vector){{vmulq_n_f32(v.val[0], 256), vmulq_n_f32(v.val[1], 256)}};
}

static inline uint16x4_t round_e4m3(float32x4_t v)
{
        const float32x4_t step = vdupq_n_f32(16384);
        uint32x4_t bits = vreinterpretq_u32_f32(v);
        uint32x4_t low = vandq_u32(bits, vdupq_n_u32(0x7fffffff));
        uint32x4_t sign = vandq_u32(vshrq_n_u32(bits, 24), vdupq_n_u32(0x80));
        uint32x4_t small =
                vsubq_u32(vreinterpretq_u32_f32(vaddq_f32(vreinterpretq_f32_u32(low), step)),
                        vreinterpretq_u32_f32(step));
        uint32x4_t is_small = vcltq_u32(low, vdupq_n_u32(0x3c800000));
        uint32x4_t odd = vandq_u32(vshrq_n_u32(low, 20), vdupq_n_u32(1));

        low = vsubq_u32(vaddq_u32(low, vdupq_n_u32(0x7ffff)), vdupq_n_u32((127 - 7) << 23));
        low = vshrq_n_u32(vaddq_u32(low, odd), 20);
        return vmovn_u32(vorrq_u32(vbslq_u32(is_small, small, low), sign));
}

static inline void store_e4m3(void *p, vector v)
{
        vst1_u8(p, vmovn_u16(vcombine_u16(round_e4m3(v.val[0]), round_e4m3(v.val[1]))));
}

#include "base/codec/codec-simd.h"

const struct codec_kernels codec_kernels_neon = CODEC_TABLE("neon");
