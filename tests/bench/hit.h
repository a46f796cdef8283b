/* Shared by the parts of the benchmark `hit`. */
#ifndef KVL_BENCH_HIT_H
#define KVL_BENCH_HIT_H

#include <stdint.h>

#include "tests/bench/bench.h"
#include "tests/bench/fixture.h"
#include "tests/bench/table.h"

#define HIT_MAX_KEYS 1024
#define HIT_BATCH    1000 /* hits of one page timed together: the clock alone costs 20 to 30 ns */

/* A namespace with n_pages pages resident, and a table with the same keys at the same pages. */
struct hit_site {
        struct fixture fixture;
        struct fixture_client client;
        struct table *table;
        uint8_t *keys;                                /* owned */
        uint32_t *pages;                              /* owned */
        uint32_t n_pages, n_unindexed;                /* ones another key stands in for */
        uint64_t random;                              /* state */
        uint32_t start;                               /* of the window */
        uint8_t window[HIT_MAX_KEYS * KVL_KEY_BYTES]; /* keys to ask for, in the cache */
        uint32_t found[HIT_MAX_KEYS];
};

/* Publishes the pages and connects. Returns 0 or -errno, with a message. Call hit_site_close() in
 * any case. */
int hit_site_open(struct hit_site *site, uint32_t n_pages);
void hit_site_close(struct hit_site *site);

#define HIT_OTHERS_PAGES 102400 /* where the other baselines are measured */

/*
 * Copies the keys of n_keys random neighbours to site->window, as if an engine had just made them.
 */
void hit_move_window(struct hit_site *site, uint32_t n_keys);

/* Nanoseconds of one hit of the window. */
struct hit_times {
        double lookup, release;
};

/* Returns 0; -EIO with a line on stderr: wrong pages, or too few, were found. */
int hit_time(struct hit_site *site, uint64_t request, uint32_t n_keys, struct hit_times *ret);

/* Times the table in this way. */
int hit_time_table(struct hit_site *site, uint32_t n_keys, struct hit_times *ret);

/* hit-others.c: compares with everything but the table. */
int hit_run_others(struct hit_site *site, struct bench_run *run);

#endif
