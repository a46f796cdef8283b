/* Compares rows that were found with the same text's, computed in this process. */
#include "client/llama/blob.h"

#include <string.h>

/* Types of llama.cpp's numbers (enum ggml_type), which are a part of its file format. */
enum {
        TYPE_F32 = 0,
        TYPE_F16 = 1,
        TYPE_Q8_0 = 8,
        TYPE_BF16 = 30,
};

/* A block of Q8_0: a scale in F16, and numbers. */
#define Q8_NUMBERS 32
#define Q8_BYTES   (2 + Q8_NUMBERS)

static float of_bits(uint32_t bits)
{
        float value;

        memcpy(&value, &bits, sizeof(value));
        return value;
}

static float of_f16(const uint8_t *at)
{
        uint32_t bits = at[0] | (uint32_t)at[1] << 8;
        uint32_t sign = (bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3ff;

        if (exponent == 31)
                return of_bits(sign | 0x7f800000 | fraction << 13);
        if (exponent == 0)
                return (sign ? -1.0f : 1.0f) * (float)fraction * 0x1p-24f;
        return of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

static float read_number(int32_t type, const uint8_t *at, uint64_t i)
{
        const uint8_t *block = at + i / Q8_NUMBERS * Q8_BYTES;
        float value;

        switch (type) {
        case TYPE_F32:
                memcpy(&value, at + 4 * i, sizeof(value));
                return value;
        case TYPE_F16:
                return of_f16(at + 2 * i);
        case TYPE_BF16:
                return of_bits((at[2 * i] | (uint32_t)at[2 * i + 1] << 8) << 16);
        default:
                return of_f16(block) * (float)(int8_t)block[2 + i % Q8_NUMBERS];
        }
}

/* Returns the relative error that different orders of summation explain; other weights give errors
 * about 1, and one wrong token of 256 gives 0.06. 0: the type's numbers can't be read. Not tuned.
 */
static double tolerance(int32_t type)
{
        return type == TYPE_F32                        ? 1e-3
               : type == TYPE_F16 || type == TYPE_Q8_0 ? 3e-2
               : type == TYPE_BF16                     ? 4e-2
                                                       : 0;
}

static bool differs(int32_t type, const uint8_t *a, const uint8_t *b, uint64_t bytes)
{
        double error = 0, size = 0, most = tolerance(type);
        uint64_t n = type == TYPE_F32    ? bytes / 4
                     : type == TYPE_Q8_0 ? bytes / Q8_BYTES * Q8_NUMBERS
                                         : bytes / 2;

        if (memcmp(a, b, bytes) == 0)
                return false;
        if (most == 0)
                return true;
        for (uint64_t i = 0; i < n; ++i) {
                double x = read_number(type, a, i), y = read_number(type, b, i);

                error += (x - y) * (x - y);
                size += x * x;
        }
        /* NaN compares as false. */
        return !(error <= most * most * size);
}

bool blob_differ(const struct blob_shape *s, enum blob_part part, uint32_t n_cells,
        const uint8_t *own, const uint8_t *other)
{
        for (uint32_t i = 0; i < s->n_steps; ++i) {
                const struct blob_step *step = &s->steps[i];
                uint64_t bytes = step->outer * step->inner * (part == BLOB_ROWS ? n_cells : 1);

                if (step->kind != STEP_DATA || step->part != part)
                        continue;
                if (differs(step->type, own, other, bytes))
                        return true;
                own += bytes;
                other += bytes;
        }
        return false;
}
