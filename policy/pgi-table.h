/*
 * PGI's statistics of a namespace's traffic: the ages at which pages of each class were used again.
 * From these it computes the value of keeping a page of a class and age (its Gittins index). PURE:
 * no time of its own. Not thread-safe.
 *
 * Ages are in ticks, in bins of a quarter of an octave from about a second on. After each use a
 * page has a *spell*, which ends in one bin. An event: the page was used again at that age.
 * Censored: the page is known only to be that old or older. It is still cached or remembered
 * (counted in passes over all of them), or was forgotten. Kaplan-Meier gives the hazard of a bin. A
 * class with few spells is drawn to its group (pages with the same hint), a group to all pages
 * together.
 */
#ifndef KVL_POLICY_PGI_TABLE_H
#define KVL_POLICY_PGI_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 2^26 ns = 67 ms: 32 bits of them are nine years. */
#define PGI_TICK_SHIFT 26

/* Bin 0 is below 16 ticks (1.07 s), the last bin is open from 18 days on. No cache that evicts
 * keeps a page that long. (With a last bin from 2.3 days on, conversations with turns half a day
 * apart had up to 0.2 points of hits less than LRU. With 84 bins they have 1.3 more.) */
#define PGI_BINS        UINT32_C(84)
#define PGI_FIRST_TICKS 16

/*
 * Classes. A hint tells more than the number of turns, so hinted pages have fewer classes of turns.
 * Half as many classes are learnt in half the time.
 */
#define PGI_TURNS        UINT32_C(6) /* 1..5, 6 and more */
#define PGI_TURNS_HINTED UINT32_C(3)
#define PGI_LENGTHS      4
#define PGI_FRESHES      3
#define PGI_DELAYS       8

#define PGI_PARTIAL   0 /* partial tail pages */
#define PGI_SHARED    1 /* with two continuations or more: + log2 of how often used */
#define PGI_N_SHARED  UINT32_C(15)
#define PGI_BODY      (PGI_SHARED + PGI_N_SHARED)
#define PGI_CONTINUES (PGI_BODY + PGI_TURNS * PGI_LENGTHS * PGI_FRESHES)
#define PGI_DONE      (PGI_CONTINUES + PGI_TURNS_HINTED * PGI_LENGTHS * PGI_FRESHES)
#define PGI_RETURNS   (PGI_DONE + PGI_TURNS_HINTED * PGI_LENGTHS * PGI_FRESHES)
#define PGI_CLASSES   (PGI_RETURNS + PGI_DELAYS) /* 168: fits a byte */

/* Not a class of the table: pages whose window has passed (evict_insert.window_passed). The table
 * ignores them, and they are evicted first. */
#define PGI_PASSED PGI_CLASSES

/* Allocated at once: 4 counts of 4 bytes, an index and a hazard of 4 for each class and bin, 331
 * KiB. */
struct pgi_table {
        uint32_t *events;   /* [class * PGI_BINS + bin]: used again at that age */
        uint32_t *lost;     /* forgotten at that age */
        uint32_t *alive;    /* of that age in the last pass */
        uint32_t *counting; /* the same, of the running pass */
        float *index;
        float *hazard;     /* chance of use in that bin, of a page that reached it */
        uint64_t n_events; /* sum of events */
        uint64_t n_lost;   /* sum of lost */
        bool ready;        /* index and hazard have values */
};

/* Returns 0 or -ENOMEM. pgi_table_deinit() is safe on a zeroed struct. */
int pgi_table_init(struct pgi_table *t);
void pgi_table_deinit(struct pgi_table *t);
uint64_t pgi_table_bytes(void);

uint32_t pgi_age_bin(uint32_t age_ticks);
/* First tick of a bin. bin <= PGI_BINS: PGI_BINS gives the end of the last bin. */
double pgi_bin_start(uint32_t bin);

static inline uint32_t pgi_cell(uint32_t class, uint32_t age_ticks)
{
        return class * PGI_BINS + pgi_age_bin(age_ticks);
}

/* used(): a page was used again. lost(): a page was forgotten, or dropped for another reason than
 * pressure. */
static inline void pgi_table_used(struct pgi_table *t, uint32_t class, uint32_t age_ticks)
{
        if (class == PGI_PASSED)
                return;
        t->events[pgi_cell(class, age_ticks)]++;
        t->n_events++;
}

static inline void pgi_table_lost(struct pgi_table *t, uint32_t class, uint32_t age_ticks)
{
        if (class == PGI_PASSED)
                return;
        t->lost[pgi_cell(class, age_ticks)]++;
        t->n_lost++;
}

/* A pass is count() of each page that is known, then rebuild(), or drop_pass() to abort it. */
void pgi_table_count(struct pgi_table *t, uint32_t class, uint32_t age_ticks);
void pgi_table_drop_pass(struct pgi_table *t);
/* Ends the pass and computes the index. request_pages: mean pages of a request; 0: unknown.
 * O(classes * bins), about 0.1 ms. */
void pgi_table_rebuild(struct pgi_table *t, double request_pages);

/* Chance of use for each tick of keeping a page; 0: nothing is known. */
static inline float pgi_table_index(const struct pgi_table *t, uint32_t class, uint32_t bin)
{
        return t->index[class * PGI_BINS + bin];
}

/* Chance that a page of that class and age is used within so many ticks; 0: nothing is known. */
double pgi_table_chance(
        const struct pgi_table *t, uint32_t class, uint32_t age_ticks, uint32_t within_ticks);

/* Do what evict_ops.save() and load() promise. Loading rebuilds the table. */
size_t pgi_table_save(const struct pgi_table *t, void *buf, size_t size);
int pgi_table_load(struct pgi_table *t, const void *buf, size_t size);

/*
 * The steps of rebuild(), for one class.
 *
 * Number at risk (Kaplan and Meier): spells that reached each bin. Spells censored in a bin count
 * half, because they saw half of it on average.
 */
void pgi_at_risk(const uint32_t events[PGI_BINS], const double censored[PGI_BINS],
        double ret_at_risk[PGI_BINS]);
/* index[b]: the maximum, over b < e <= PGI_BINS, of a ratio for pages that reached bin b: P(used in
 * bins b..e-1) / E[ticks kept in them]. hazard: 0..1. */
void pgi_gittins(const double hazard[PGI_BINS], float ret_index[PGI_BINS]);

#endif
