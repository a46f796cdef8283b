/*
 * keys: from token ids to keys. kvl_keys() of texts of several lengths and page sizes, and the same
 * by libcrypto's SHA-256 in place of the processor's lanes; against libcrypto's plain SHA-256 of as
 * many bytes, page after page.
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
#define MAX_TOKENS  65536u
#define MAX_PAGES   (MAX_TOKENS / PAGE_TOKENS)
#define MAX_RATIO   1.15 /* bound: kvl_keys() by plain SHA-256 */
#define N_BLOCK     20u

enum { OWN, LIBCRYPTO, PLAIN, N_SIDES };

struct text {
        unsigned n_pages, page_tokens;
        struct series series[N_SIDES];
};

static uint32_t tokens[MAX_TOKENS];
static uint8_t keys[MAX_PAGES * KVL_KEY_BYTES];
static const uint8_t root[KVL_KEY_BYTES];

/* ---- one text -------------------------------------------------------------------------------- */

static void hash_plainly(const void *bytes, size_t n, uint8_t *ret_digest)
{
        SHA256_CTX c;

        SHA256_Init(&c);
        SHA256_Update(&c, bytes, n);
        SHA256_Final(ret_digest, &c);
}

/* Both hashes of a page, of any bytes: nothing is put together and none waits for another. */
static void hash_pages(const struct text *t)
{
        for (uint32_t i = 0; i < t->n_pages; ++i) {
                const uint32_t *page = tokens + i * t->page_tokens;

                hash_plainly(page, t->page_tokens * sizeof(*page), keys + i * KVL_KEY_BYTES);
                hash_plainly(page, 2 * (size_t)KVL_KEY_BYTES, keys + i * KVL_KEY_BYTES);
        }
}

/* The last one. */
static const struct page_keys_way *libcrypto_way(void)
{
        unsigned i = 0;

        while (page_keys_way_at(i + 1))
                ++i;
        return page_keys_way_at(i);
}

static int one_text(struct text *t, unsigned side)
{
        const struct page_keys_way *libcrypto = libcrypto_way();
        uint64_t start = now_nsec();
        int r = 0;

        if (side == OWN)
                r = kvl_keys(root, tokens, t->n_pages * t->page_tokens, t->page_tokens, keys);
        else if (side == LIBCRYPTO)
                page_keys(
                        libcrypto, root, tokens, t->n_pages * t->page_tokens, t->page_tokens, keys);
        else
                hash_pages(t);
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
        struct bench_result *r = bench_add(run, "us", "keys-%u-of-%u", t->n_pages, t->page_tokens);

        series_report(r, &t->series[OWN], &t->series[PLAIN], "sha256");
        r->max_ratio = MAX_RATIO;
        r = bench_add(run, "us", "keys-%u-of-%u-libcrypto", t->n_pages, t->page_tokens);
        series_report(r, &t->series[LIBCRYPTO], &t->series[PLAIN], "sha256");
        r->max_ratio = MAX_RATIO;
}

static int run_texts(struct bench_run *run)
{
        struct text texts[] = {{8, PAGE_TOKENS}, {128, PAGE_TOKENS}, {MAX_PAGES, PAGE_TOKENS},
                {512, 16}, {32, 256}, {32, 1024}};
        int r = 0;

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

static int run_keys(struct bench_run *run)
{
        int cores[N_CORES];
        int r = bench_find_cores(cores);

        if (r == 0)
                r = bench_pin(0, cores[CORE_CLIENT]);
        return r == 0 ? run_texts(run) : r;
}

const struct bench bench_keys = {
        "keys", "keys of a text from its tokens, against plain SHA-256", 5, run_keys};
