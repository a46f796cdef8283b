#include "policy/ahead.h"

#include "base/clock.h"
#include "base/macros.h"

/* Half-life of the rate without leases: a few times as long as a set of 64 MiB takes to be made. It
 * is short enough to reach 0 soon after the last client. Not tuned. */
#define HALF_LIFE_SEC 2.0
#define LN2           0.6931471805599453

/* Part that a set's making has in its average. Not tuned. */
#define MAKE_WEIGHT 0.25

/* Leases come in bursts: twice what is leased on average. Not tuned. */
#define BURST 2.0

/* 2^-x, x >= 0, to better than 1 part in 500. */
static double decay(double x)
{
        double value = 1, f;

        if (x >= 64)
                return 0;
        for (; x >= 1; x -= 1)
                value /= 2;
        f = x * LN2;
        return value * (1 - f + f * f / 2 - f * f * f / 6 + f * f * f * f / 24);
}

static double rate_at(const struct ahead *a, uint64_t now_nsec)
{
        uint64_t passed = now_nsec - MIN(a->last_nsec, now_nsec);

        return a->pages_per_sec * decay((double)passed / (double)NSEC_PER_SEC / HALF_LIFE_SEC);
}

void ahead_leased(struct ahead *a, uint32_t n, uint64_t now_nsec)
{
        a->pages_per_sec = rate_at(a, now_nsec) + n * LN2 / HALF_LIFE_SEC;
        a->last_nsec = MAX(now_nsec, a->last_nsec);
}

void ahead_made(struct ahead *a, uint64_t took_nsec)
{
        double took_sec = (double)took_nsec / (double)NSEC_PER_SEC;

        if (a->make_sec > 0)
                a->make_sec += (took_sec - a->make_sec) * MAKE_WEIGHT;
        else
                a->make_sec = took_sec;
}

uint32_t ahead_pages(const struct ahead *a, uint32_t most, uint64_t now_nsec)
{
        double pages = rate_at(a, now_nsec) * a->make_sec * BURST;

        if (pages < 0.5) /* so long ago that it is less than a page */
                return 0;
        return pages >= most ? most : MIN((uint32_t)pages + 1, most);
}
