/*
 * hit: kvl_lookup() of a prefix that is cached, with all its page indices pinned, and its
 * kvl_release(); against the same probes and increments on a table of this process. Prefixes lie
 * anywhere among the resident pages, and their pages anywhere in memory. Warm: one after the other.
 * Cold: after something else has gone through all caches; the keys are warm in both.
 */
#include "tests/bench/hit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "tests/integration/pattern.h"

#define MAX_RATIO   1.5        /* specification: 128 pages, at 10 k, 100 k and 1 M */
#define EVICT_BYTES (96 << 20) /* more than the last cache: 32 MiB where it was written */
#define SLACK_PAGES 4096       /* for magazines: nothing is evicted */
#define BLOCK       50         /* samples, then as many of the table */

enum side { OWN, TABLE, N_SIDES };

/* One prefix length, warm or cold: both sides, hit (lookup and release) and lookup alone. */
struct cell {
        uint32_t n_keys;
        bool cold;
        struct series hit[N_SIDES], lookup[N_SIDES];
};

static const uint32_t lengths[] = {1, 16, 128, 1024};
#define N_CELLS (2 * ARRAY_SIZE(lengths))

static void evict_caches(void)
{
        static uint8_t *buf;

        if (!buf)
                buf = malloc(EVICT_BYTES);
        for (size_t i = 0; buf && i < EVICT_BYTES; i += 64)
                ((volatile uint8_t *)buf)[i]++;
}

void hit_move_window(struct hit_site *site, uint32_t n_keys)
{
        site->start = (uint32_t)(pattern_next(&site->random) % (site->n_pages / n_keys)) * n_keys;
        memcpy(site->window, site->keys + (size_t)site->start * KVL_KEY_BYTES,
                (size_t)n_keys * KVL_KEY_BYTES);
}

/* HIT_BATCH keys from anywhere, for hits of one page each. */
static void move_batch(struct hit_site *site)
{
        for (uint32_t i = 0; i < HIT_BATCH; ++i) {
                size_t k = pattern_next(&site->random) % site->n_pages;

                memcpy(site->window + i * KVL_KEY_BYTES, site->keys + k * KVL_KEY_BYTES,
                        KVL_KEY_BYTES);
        }
}

static int check(const struct hit_site *site, uint32_t n_keys, uint32_t n_found)
{
        if (n_found != n_keys ||
                memcmp(site->found, site->pages + site->start, n_keys * sizeof(uint32_t)) != 0)
                return bench_fail("a hit didn't find its pages", -EIO);
        return 0;
}

int hit_time(struct hit_site *site, uint64_t request, uint32_t n_keys, struct hit_times *ret)
{
        uint64_t start = now_nsec(), middle, tokens;
        uint32_t n_found = 0;
        int r = kvl_lookup(
                site->client.ns, request, site->window, n_keys, site->found, &n_found, &tokens);

        middle = now_nsec();
        if (r == 0)
                r = kvl_release(site->client.ns, site->found, n_found);
        *ret = (struct hit_times){(double)(middle - start), (double)(now_nsec() - middle)};
        return r ? bench_fail(kvl_last_error(), r) : check(site, n_keys, n_found);
}

int hit_time_table(struct hit_site *site, uint32_t n_keys, struct hit_times *ret)
{
        uint64_t start = now_nsec(), middle, tokens;
        uint32_t n_found = table_lookup(site->table, site->window, n_keys, site->found, &tokens);

        middle = now_nsec();
        table_release(site->table, site->found, n_found);
        *ret = (struct hit_times){(double)(middle - start), (double)(now_nsec() - middle)};
        return check(site, n_keys, n_found);
}

/* Times HIT_BATCH lookups of one page, then their releases; results are of one. */
static int time_batch(struct hit_site *site, struct hit_times *ret)
{
        uint64_t start = now_nsec(), middle, tokens;
        uint32_t n;
        int r = 0;

        for (uint32_t i = 0; i < HIT_BATCH; ++i)
                r |= kvl_lookup(site->client.ns, 0, site->window + i * KVL_KEY_BYTES, 1,
                        &site->found[i], &n, &tokens);
        middle = now_nsec();
        for (uint32_t i = 0; i < HIT_BATCH; ++i)
                r |= kvl_release(site->client.ns, &site->found[i], 1);
        ret->release = (double)(now_nsec() - middle) / HIT_BATCH;
        ret->lookup = (double)(middle - start) / HIT_BATCH;
        return r ? bench_fail("hits of one page", -EIO) : 0;
}

static int time_table_batch(struct hit_site *site, struct hit_times *ret)
{
        uint64_t start = now_nsec(), middle, tokens;
        uint32_t n_found = 0;

        for (uint32_t i = 0; i < HIT_BATCH; ++i)
                n_found += table_lookup(
                        site->table, site->window + i * KVL_KEY_BYTES, 1, &site->found[i], &tokens);
        middle = now_nsec();
        for (uint32_t i = 0; i < HIT_BATCH; ++i)
                table_release(site->table, &site->found[i], 1);
        ret->release = (double)(now_nsec() - middle) / HIT_BATCH;
        ret->lookup = (double)(middle - start) / HIT_BATCH;
        return n_found == HIT_BATCH ? 0 : bench_fail("the table lacks keys", -EIO);
}

static int one_sample(struct hit_site *site, struct cell *c, unsigned side)
{
        struct hit_times t;
        int r;

        if (c->n_keys == 1 && !c->cold) {
                move_batch(site);
                r = side == OWN ? time_batch(site, &t) : time_table_batch(site, &t);
        } else {
                hit_move_window(site, c->n_keys);
                if (c->cold) {
                        uint8_t keys[HIT_MAX_KEYS * KVL_KEY_BYTES];

                        evict_caches();
                        memcpy(keys, site->window, c->n_keys * KVL_KEY_BYTES);
                        memcpy(site->window, keys, c->n_keys * KVL_KEY_BYTES);
                }
                r = side == OWN ? hit_time(site, 0, c->n_keys, &t)
                                : hit_time_table(site, c->n_keys, &t);
        }
        if (r < 0)
                return r;
        series_add(&c->lookup[side], t.lookup);
        series_add(&c->hit[side], t.lookup + t.release);
        return 0;
}

/* The first half of a warm block warms up. */
static int one_block(struct hit_site *site, struct cell *c, unsigned side, unsigned n)
{
        struct series *hit = &c->hit[side], *lookup = &c->lookup[side];
        size_t n_before = hit->n;
        int r = 0;

        for (unsigned i = 0; r == 0 && !c->cold && i < n; ++i) {
                r = one_sample(site, c, side);
                hit->n = lookup->n = n_before;
        }
        for (unsigned i = 0; r == 0 && i < n; ++i)
                r = one_sample(site, c, side);
        return r;
}

static int one_round(struct hit_site *site, struct cell *c, const struct bench_run *run)
{
        unsigned n_blocks = run->quick ? 1 : c->cold ? 1 : 10;
        unsigned block = run->quick ? 2 : c->cold ? 20 : BLOCK;
        int r = 0;

        for (unsigned i = 0; r == 0 && i < n_blocks; ++i)
                for (unsigned side = 0; r == 0 && side < N_SIDES; ++side)
                        r = one_block(site, c, side, block);
        for (unsigned side = 0; side < N_SIDES; ++side) {
                series_close_round(&c->hit[side]);
                series_close_round(&c->lookup[side]);
        }
        return r;
}

static void report(const struct hit_site *site, struct cell *c, struct bench_run *run)
{
        const char *temperature = c->cold ? "cold" : "warm";
        struct bench_result *r;
        char count[16];

        fixture_count_name(site->n_pages, count);
        r = bench_add(run, "ns", "hit-%u-%s-%s", c->n_keys, count, temperature);
        series_report(r, &c->hit[OWN], &c->hit[TABLE], "table");
        if (c->n_keys == 128 && !c->cold && site->n_pages >= 10000)
                r->max_ratio = MAX_RATIO;
        if (c->cold)
                return;
        r = bench_add(run, "ns", "lookup-%u-%s-%s", c->n_keys, count, temperature);
        series_report(r, &c->lookup[OWN], &c->lookup[TABLE], "table");
}

static void report_unindexed(const struct hit_site *site, struct bench_run *run)
{
        char count[16];

        bench_add(run, "1", "unindexed-%s", fixture_count_name(site->n_pages, count))->median =
                site->n_unindexed;
}

static int run_cells(struct hit_site *site, struct bench_run *run)
{
        struct cell cells[N_CELLS] = {0};
        int r = 0;

        for (unsigned i = 0; r == 0 && i < N_CELLS; ++i) {
                cells[i].n_keys = lengths[i / 2];
                cells[i].cold = i % 2;
                for (unsigned side = 0; r == 0 && side < N_SIDES; ++side) {
                        r = series_init(&cells[i].hit[side], 10 * BLOCK, run->rounds);
                        if (r == 0)
                                r = series_init(&cells[i].lookup[side], 10 * BLOCK, run->rounds);
                }
        }
        for (unsigned round = 0; r == 0 && round < run->rounds; ++round)
                for (unsigned i = 0; r == 0 && i < N_CELLS; ++i)
                        r = one_round(site, &cells[i], run);
        for (unsigned i = 0; i < N_CELLS; ++i) {
                if (r == 0)
                        report(site, &cells[i], run);
                for (unsigned side = 0; side < N_SIDES; ++side) {
                        series_deinit(&cells[i].hit[side]);
                        series_deinit(&cells[i].lookup[side]);
                }
        }
        return r;
}

/* A key without room in its two buckets can't be found: another one replaces it, on both sides. */
static int replace_unindexed(struct hit_site *site, uint32_t i)
{
        uint32_t k = i ? i - 1 : 1, page, n;
        uint8_t *key = site->keys + (size_t)i * KVL_KEY_BYTES;
        uint64_t tokens;
        int r = kvl_lookup(site->client.ns, 0, key, 1, &page, &n, &tokens);

        if (r == 0)
                r = kvl_release(site->client.ns, &page, 1);
        if (r < 0 || r > KVL_MISS)
                return bench_fail(kvl_last_error(), r);
        if (r == 0 && table_insert(site->table, key, site->pages[i], FIXTURE_PAGE_TOKENS))
                return 0;
        memcpy(key, site->keys + (size_t)k * KVL_KEY_BYTES, KVL_KEY_BYTES);
        site->pages[i] = site->pages[k];
        site->n_unindexed++;
        return 0;
}

static int fill_table(struct hit_site *site)
{
        struct kvl_ns_info info = {.size = sizeof(info)};
        int r;

        kvl_ns_info(site->client.ns, &info);
        r = table_new(info.capacity_pages, &site->table);
        if (r < 0)
                return bench_fail("the table", r);
        for (uint32_t i = 0; r == 0 && i < site->n_pages; ++i)
                r = replace_unindexed(site, i);
        return r;
}

int hit_site_open(struct hit_site *site, uint32_t n_pages)
{
        int r;

        *site = (struct hit_site){.n_pages = n_pages, .random = n_pages, .fixture = FIXTURE_INIT};
        site->keys = malloc((size_t)n_pages * KVL_KEY_BYTES);
        site->pages = malloc(n_pages * sizeof(uint32_t));
        if (!site->keys || !site->pages)
                return bench_fail("keys", -ENOMEM);
        r = fixture_open(&site->fixture, n_pages + n_pages / 16 + SLACK_PAGES, FIXTURE_PAGE_BYTES);
        if (r == 0)
                r = fixture_connect(&site->fixture, 0, &site->client);
        if (r == 0)
                r = fixture_fill(site->client.ns, n_pages, n_pages, site->keys, site->pages);
        return r < 0 ? r : fill_table(site);
}

void hit_site_close(struct hit_site *site)
{
        fixture_disconnect(&site->client);
        fixture_close(&site->fixture);
        table_free(site->table);
        free(site->keys);
        free(site->pages);
}

static int run_site(struct bench_run *run, uint32_t n_pages)
{
        struct hit_site *site = calloc(1, sizeof(*site));
        int r;

        if (!site)
                return bench_fail("memory", -ENOMEM);
        r = hit_site_open(site, n_pages);
        if (r == 0)
                r = run_cells(site, run);
        if (r == 0)
                report_unindexed(site, run);
        if (r == 0 && n_pages == HIT_OTHERS_PAGES)
                r = hit_run_others(site, run);
        hit_site_close(site);
        free(site);
        return r;
}

static int run_hit(struct bench_run *run)
{
        static const uint32_t sizes[] = {1024, 10240, HIT_OTHERS_PAGES, 1048576};
        int r = 0;

        for (unsigned i = 0; r == 0 && i < ARRAY_SIZE(sizes); ++i)
                if (!run->quick || sizes[i] <= HIT_OTHERS_PAGES)
                        r = run_site(run, sizes[i]);
        return r;
}

const struct bench bench_hit = {
        "hit", "lookup and release of a cached prefix: pages, pages resident", 11, run_hit};
