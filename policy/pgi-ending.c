#include "policy/pgi-ending.h"

#include <string.h>

#include "base/macros.h"
#include "policy/pgi-class.h"

/* A bin's texts are sooner or later than others if its rate differs by this factor from the mean
 * of all. */
#define DIFFERS 2.0

/* Texts with the mean rate that are added to each bin: bins with fewer differ by chance. */
#define PRIOR_TEXTS 8.0

uint32_t pgi_ending_bin(uint32_t ending)
{
        uint32_t spread = ending * UINT32_C(0x9e3779b1);

        return ending == 0 ? 0 : 1 + (spread >> 16) % (PGI_ENDINGS - 1);
}

static struct pgi_end *place_of(struct pgi_endings *e, uint32_t tag)
{
        return &e->ends[tag % PGI_ENDS];
}

static uint32_t waited_for(const struct pgi_end *end, uint32_t now)
{
        return end->at < now ? now - end->at : 0;
}

static void forget_end(struct pgi_endings *e, struct pgi_end *end, uint32_t now)
{
        if (end->tag != 0)
                e->waited[end->ending] += waited_for(end, now);
        *end = (struct pgi_end){0};
}

void pgi_ended(struct pgi_endings *e, uint32_t tag, uint32_t bin, uint32_t now)
{
        struct pgi_end *end = place_of(e, tag);

        forget_end(e, end, now);
        *end = (struct pgi_end){tag, now, bin};
}

void pgi_ended_used(struct pgi_endings *e, uint32_t tag, uint32_t now)
{
        struct pgi_end *end = place_of(e, tag);

        if (end->tag != tag)
                return;
        e->used[end->ending]++;
        forget_end(e, end, now);
}

static uint8_t hint_of(double used, double waited, double mean_rate)
{
        double rate = (used + PRIOR_TEXTS) / (waited + PRIOR_TEXTS / mean_rate);

        if (rate >= mean_rate * DIFFERS)
                return PGI_HINT_CONTINUES;
        return rate <= mean_rate / DIFFERS ? PGI_HINT_DONE : PGI_HINT_NONE;
}

void pgi_endings_learn(struct pgi_endings *e, uint32_t now)
{
        double waited[PGI_ENDINGS], all_used = 0, all_waited = 0;

        memcpy(waited, e->waited, sizeof(waited));
        for (uint32_t i = 0; i < PGI_ENDS; i++)
                if (e->ends[i].tag != 0)
                        waited[e->ends[i].ending] += waited_for(&e->ends[i], now);
        for (uint32_t b = 0; b < PGI_ENDINGS; b++) {
                all_used += e->used[b];
                all_waited += waited[b];
        }
        for (uint32_t b = 1; b < PGI_ENDINGS && all_used > 0 && all_waited > 0; b++)
                e->hint[b] = hint_of(e->used[b], waited[b], all_used / all_waited);
}

void pgi_endings_forget(struct pgi_endings *e)
{
        memset(e->ends, 0, sizeof(e->ends));
}
