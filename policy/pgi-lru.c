#include "policy/pgi-lru.h"

#include "base/macros.h"

/* How fine the line is: to 0.4 % of the cache. */
#define EPOCHS_A_CACHE 256

/* Behind from so many standard deviations on: by chance in 2 of 100 cases; no more once it is half
 * of that. With one, a cache of 10,043 pages loses half a point on the conversation trace. */
#define SURELY 2.0

/* A loss that is ignored: 0.01 points of a hit rate of 40 %. */
#define LOSS_SHARE 4096

/* When LRU has hit this many times the cache's size, past values count half. The variance is also
 * halved, not quartered: old values are less certain, and a losing policy tries again. */
#define MEMORY_CACHES 32

static uint32_t *count_of(struct pgi_lru *l, uint32_t stamp)
{
        uint32_t epoch = (int32_t)(stamp - l->line) >= 0 ? stamp : l->line;

        return &l->counts[epoch % PGI_EPOCHS];
}

void pgi_lru_forget(struct pgi_lru *l, uint32_t stamp)
{
        if (!pgi_lru_has(l, stamp) || *count_of(l, stamp) == 0)
                return;
        --*count_of(l, stamp);
        l->n--;
}

/* The epochs next to the line become one. */
static void join_oldest(struct pgi_lru *l)
{
        l->counts[(l->line + 1) % PGI_EPOCHS] += l->counts[l->line % PGI_EPOCHS];
        l->counts[l->line % PGI_EPOCHS] = 0;
        l->line++;
}

static void next_epoch(struct pgi_lru *l)
{
        if (l->current - l->line == PGI_EPOCHS - 1)
                join_oldest(l);
        l->current++;
}

static void drop_oldest(struct pgi_lru *l)
{
        l->n -= l->counts[l->line % PGI_EPOCHS];
        l->counts[l->line % PGI_EPOCHS] = 0;
        l->line++;
        l->base = l->line;
}

/* An epoch is in or out as a whole: out from where half of it would be. */
static void add_to_epoch(struct pgi_lru *l, uint32_t *ret_stamp, uint32_t capacity)
{
        *ret_stamp = l->current;
        l->counts[l->current % PGI_EPOCHS]++;
        l->n++;
        if (l->counts[l->current % PGI_EPOCHS] > capacity / EPOCHS_A_CACHE)
                next_epoch(l);
        while (l->line != l->current &&
                l->n > (uint64_t)capacity + l->counts[l->line % PGI_EPOCHS] / 2)
                drop_oldest(l);
}

void pgi_lru_used(struct pgi_lru *l, uint32_t base, uint32_t *stamp, bool ours, double cost,
        uint32_t capacity)
{
        bool theirs = (int32_t)(*stamp - base) >= 0;

        l->hits += theirs;
        l->request += cost * (ours - theirs);
        pgi_lru_forget(l, *stamp);
        add_to_epoch(l, stamp, capacity);
}

void pgi_lru_first(struct pgi_lru *l, uint32_t *ret_stamp, uint32_t capacity)
{
        add_to_epoch(l, ret_stamp, capacity);
}

/* Compares squares, without a square root. Gains offset at most a loss by chance. */
void pgi_lru_judge(struct pgi_lru *l, uint32_t capacity)
{
        double d = l->request, chance;

        chance = SURELY * SURELY * l->variance;
        if (d < 0 || l->lead < 0 || l->lead * l->lead < chance)
                l->lead += d;
        l->variance += d * d;
        chance = SURELY * SURELY * l->variance;
        l->request = 0;
        if (l->lead >= 0 || l->lead * l->lead < chance / 4)
                l->behind = false;
        else if (l->lead * l->lead > chance && -l->lead > (double)l->hits / LOSS_SHARE)
                l->behind = true;
        if (l->hits > (uint64_t)capacity * MEMORY_CACHES) {
                l->hits /= 2;
                l->lead /= 2;
                l->variance /= 2;
        }
}
