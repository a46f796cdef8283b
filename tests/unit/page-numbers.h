/* Pages of numbers of 16 bits, between 0.125 and 0.5, which every codec takes; and how far those of
 * a page are off that went through one. */
#ifndef KVL_TESTS_PAGE_NUMBERS_H
#define KVL_TESTS_PAGE_NUMBERS_H

#include "tests/unit/tier-fixture.h"

/* How far they are off at most; codec.h. */
#define NUMBERS_INT8_OFF (0.5 / 220)
#define NUMBERS_INT4_OFF (0.5 / 12)

#define NUMBER_NAN 0x7e00

static inline double number_value(uint16_t bits)
{
        _Float16 x;

        memcpy(&x, &bits, sizeof(x));
        return (double)x;
}

static inline uint16_t number_make(unsigned key, uint32_t plane, unsigned i)
{
        return (uint16_t)(0x3000 + (i * 37 + key * 11 + plane * 5) % 0x800);
}

static inline uint16_t *numbers_at(const struct tiers *w, uint32_t page, uint32_t plane)
{
        return (uint16_t *)(void *)set_address(ns_set_of(w->ns, page), page, plane);
}

static inline void numbers_fill(const struct tiers *w, uint32_t page, unsigned key)
{
        for (uint32_t plane = 0; plane < w->n_planes; plane++)
                for (unsigned i = 0; i < TIER_PAGE_BYTES / 2; i++)
                        numbers_at(w, page, plane)[i] = number_make(key, plane, i);
}

/* The greatest error of a plane's numbers. */
static inline double numbers_error(
        const struct tiers *w, uint32_t page, uint32_t plane, unsigned key)
{
        double greatest = 0;

        for (unsigned i = 0; i < TIER_PAGE_BYTES / 2; i++) {
                double error = number_value(numbers_at(w, page, plane)[i]) -
                               number_value(number_make(key, plane, i));

                greatest = error > greatest ? error : -error > greatest ? -error : greatest;
        }
        return greatest;
}

#endif
