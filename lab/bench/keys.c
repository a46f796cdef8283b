/*
 * keys: from token ids to keys. kvl_keys() of texts of several lengths, in pages of 64 tokens, and
 * the same by libcrypto's SHA-256 in place of the processor's lanes; against libcrypto's plain
 * SHA-256 of as many bytes, page after page.
 */
#include <errno.h>

/* The plain functions: the least that a hash costs. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include "base/macros.h"
#include "client/lib/keys/page-keys.h"
#include "client/lib/kvlease.h"
#include "tests/bench/bench.h"
#include "tests/integration/private-daemon.h"

#define PAGE_TOKENS 64u
#define MAX_PAGES   1024u
#define MAX_RATIO   1.15 /* bound: kvl_keys() by plain SHA-256 */
#define N_BLOCK     20u

enum { OWN, PORTABLE, PLAIN, N_SIDES };

struct text {
        unsigned n_pages;
        struct series series[N_SIDES];
};

static uint32_t tokens[MAX_PAGES * PAGE_TOKENS];
static uint8_t keys[MAX_PAGES * KVL_KEY_BYTES];

static void hash_plainly(const void *bytes, size_t n, uint8_t *ret_digest)
{
        SHA256_CTX c;

        SHA256_Init(&c);
        SHA256_Update(&c, bytes, n);
        SHA256_Final(ret_digest, &c);
}

/* Both hashes of a page, of any bytes: nothing is put together and none waits for another. */
static void hash_pages(uint32_t n_pages)
{
        for (uint32_t i = 0; i < n_pages; ++i) {
                const uint32_t *page = tokens + i * PAGE_TOKENS;

                hash_plainly(page, PAGE_TOKENS * sizeof(*page), keys + i * KVL_KEY_BYTES);
                hash_plainly(page, 2 * (size_t)KVL_KEY_BYTES, keys + i * KVL_KEY_BYTES);
        }
}

static int one_text(struct text *t, unsigned side)
{
        static const uint8_t parent[KVL_KEY_BYTES];
        uint64_t start = now_nsec();
        int r = 0;

        if (side == OWN)
                r = kvl_keys(parent, tokens, t->n_pages * PAGE_TOKENS, PAGE_TOKENS, keys);
        else if (side == PORTABLE)
                page_keys_portable(parent, tokens, t->n_pages * PAGE_TOKENS, PAGE_TOKENS, keys);
        else
                hash_pages(t->n_pages);
        series_add(&t->series[side], bench_usec_since(start));
        return r;
}

static int measure(struct bench_run *run, struct text *t)
{
        unsigned n = run->quick ? 5 : 50;
        int r = 0;

        for (unsigned side = 0; r == 0 && side < N_SIDES; ++side)
                r = series_init(&t->series[side], n * N_BLOCK, run->rounds);
        for (unsigned round = 0; r == 0 && round < run->rounds; ++round) {
                for (unsigned i = 0; r == 0 && i < n * N_SIDES; ++i)
                        for (unsigned k = 0; r == 0 && k < N_BLOCK; ++k)
                                r = one_text(t, i % N_SIDES);
                for (unsigned side = 0; side < N_SIDES; ++side)
                        series_close_round(&t->series[side]);
        }
        return r;
}

static void report(struct bench_run *run, struct text *t)
{
        struct bench_result *r = bench_add(run, "us", "keys-%u", t->n_pages);

        series_report(r, &t->series[OWN], &t->series[PLAIN], "sha256");
        r->max_ratio = MAX_RATIO;
        r = bench_add(run, "us", "keys-%u-portable", t->n_pages);
        series_report(r, &t->series[PORTABLE], &t->series[PLAIN], "sha256");
        r->max_ratio = MAX_RATIO;
}

static int run_keys(struct bench_run *run)
{
        struct text texts[] = {{.n_pages = 8}, {.n_pages = 128}, {.n_pages = MAX_PAGES}};
        int cores[N_CORES];
        int r = bench_find_cores(cores);

        if (r == 0)
                r = bench_pin(0, cores[CORE_CLIENT]);
        for (uint32_t i = 0; i < ARRAY_SIZE(tokens); ++i)
                tokens[i] = i * 7919;
        for (size_t i = 0; r == 0 && i < ARRAY_SIZE(texts); ++i) {
                r = measure(run, &texts[i]);
                if (r == 0)
                        report(run, &texts[i]);
        }
        for (size_t i = 0; i < ARRAY_SIZE(texts); ++i)
                for (unsigned side = 0; side < N_SIDES; ++side)
                        series_deinit(&texts[i].series[side]);
        return r;
}

const struct bench bench_keys = {
        "keys", "keys of a text from its tokens, against plain SHA-256", 5, run_keys};
