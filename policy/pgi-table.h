/*
 * What PGI has learnt of a namespace's traffic: for each class of pages, at what age they were used
 * again, and from that how much a page of a class and an age is worth keeping (its Gittins index).
 * PURE: counts in, figures out; no time of its own. Not thread-safe.
 *
 * Ages are in ticks, in bins of a quarter of an octave from about a second on. Each page that was
 * used ends its *spell* in one bin: used again there (an event), or known only to be at least that
 * old (censored): it is cached or remembered still (counted in passes over all of them), or was
 * forgotten. Kaplan-Meier gives the hazard of a bin; a class with few spells is drawn to its group
 * (pages with the same hint), a group to all pages together.
 */
#ifndef KVL_POLICY_PGI_TABLE_H
#define KVL_POLICY_PGI_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 2^26 ns = 67 ms: 32 bits of them are nine years. */
#define PGI_TICK_SHIFT 26

/* Bin 0 is below 16 ticks (1.07 s), the last one has all from 18 days on: who comes back after that
 * finds nothing in any cache that had to evict meanwhile. (With the last one from 2.3 days on,
 * conversations whose turns come half a day apart had up to 0.2 points of hits less than LRU, and
 * have 1.3 more.) */
#define PGI_BINS        UINT32_C(84)
#define PGI_FIRST_TICKS 16

/*
 * Classes. What a hint says counts for more than the number of turns, which is why fewer turns are
 * told apart there: half as many classes are learnt in half the time.
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

/* No class of the table: pages whose window has passed (evict_insert.window_passed). Nothing is
 * learnt of them, and they go first. */
#define PGI_PASSED PGI_CLASSES

/* Allocated at once: 4 counts of 4 bytes, an index and a hazard of 4 for each class and bin, 331
 * KiB. */
struct pgi_table {
        uint32_t *events;   /* [class * PGI_BINS + bin]: used again at that age */
        uint32_t *lost;     /* forgotten at that age */
        uint32_t *alive;    /* of that age when the last pass ended */
        uint32_t *counting; /* the same, of the pass that is going on */
        float *index;
        float *hazard;     /* chance of use in that bin, of a page that reached it */
        uint64_t n_events; /* sum of events */
        uint64_t n_lost;   /* sum of lost */
        bool ready;        /* index says something */
};

/* 0 or -ENOMEM. Then pgi_table_deinit(), which is safe on a zeroed struct. */
int pgi_table_init(struct pgi_table *t);
void pgi_table_deinit(struct pgi_table *t);
uint64_t pgi_table_bytes(void);

uint32_t pgi_age_bin(uint32_t age_ticks);
/* Ticks at which the bin begins. bin <= PGI_BINS: where the last one counts as ended. */
double pgi_bin_start(uint32_t bin);

static inline uint32_t pgi_cell(uint32_t class, uint32_t age_ticks)
{
        return class * PGI_BINS + pgi_age_bin(age_ticks);
}

/* A page was used again; one was forgotten, or dropped for a reason that says nothing of its use.
 */
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

/* One pass: count() of each page that is known, then rebuild(); or drop it. */
void pgi_table_count(struct pgi_table *t, uint32_t class, uint32_t age_ticks);
void pgi_table_drop_pass(struct pgi_table *t);
/* Ends the pass. request_pages: those that a request uses, in the mean; 0: not known. O(classes *
 * bins), about 0.1 ms. */
void pgi_table_rebuild(struct pgi_table *t, double request_pages);

/* Chance of use per tick of keeping it. 0 where nothing is known. */
static inline float pgi_table_index(const struct pgi_table *t, uint32_t class, uint32_t bin)
{
        return t->index[class * PGI_BINS + bin];
}

/* Chance that a page of that class and age is used within so many ticks. 0 where nothing is known.
 */
double pgi_table_chance(
        const struct pgi_table *t, uint32_t class, uint32_t age_ticks, uint32_t within_ticks);

/* Do what evict_ops.save() and load() promise. Loading rebuilds the table. */
size_t pgi_table_save(const struct pgi_table *t, void *buf, size_t size);
int pgi_table_load(struct pgi_table *t, const void *buf, size_t size);

/*
 * The steps of rebuild(), on one class.
 *
 * Spells that reached each bin, those censored in it by half (they saw half of it, on average):
 * the number at risk of Kaplan and Meier.
 */
void pgi_at_risk(const uint32_t events[PGI_BINS], const double censored[PGI_BINS],
        double ret_at_risk[PGI_BINS]);
/* index[b] = the greatest, over b < e <= PGI_BINS, of P(used in bins b..e-1) / E[ticks kept in
 * them], of a page that reached bin b. hazard: 0..1. */
void pgi_gittins(const double hazard[PGI_BINS], float ret_index[PGI_BINS]);

#endif
