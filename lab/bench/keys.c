/*
 * keys: from token ids to keys. kvl_keys() of texts of several lengths and page sizes, and the same
 * by libcrypto's SHA-256 in place of the processor's lanes; against libcrypto's plain SHA-256 of as
 * many bytes, page after page. Then prompts of conversations that grow turn by turn: with a memo,
 * against kvl_keys(). SGLang's tree compares the tokens of such prompts, too, and hashes none.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The plain functions: the least that a hash costs. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include "base/macros.h"
#include "client/lib/keys/page-keys.h"
#include "client/lib/kvlease.h"
#include "tests/bench/bench.h"
#include "tests/integration/pattern.h"
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

/* ---- conversations --------------------------------------------------------------------------- */

#define N_TALKS     256u
#define N_TURNS     16u
#define SYSTEM      1024u /* tokens that all begin with */
#define TURN        600u  /* new tokens of a prompt, on average */
#define TALK_TOKENS (SYSTEM + N_TURNS * 2 * TURN)
#define MEMO_BYTES  (UINT64_C(64) << 20)
#define MAX_HASHED  0.2 /* bound: bytes hashed with the memo, by those without */

struct talks {
        uint32_t (*tokens)[TALK_TOKENS]; /* owned; N_TALKS */
        uint32_t n_tokens[N_TALKS];
        uint64_t random;
        struct kvl_key_memo *memo;
        struct series with, without;
        uint64_t asked_bytes, hashed_bytes; /* of all tokens, and of pages that were hashed */
};

/* Times a prompt's keys both ways. */
static int one_prompt(struct talks *t, const uint32_t *prompt, uint32_t n)
{
        static uint8_t plain[TALK_TOKENS / PAGE_TOKENS + 1][KVL_KEY_BYTES];
        static uint8_t own[TALK_TOKENS / PAGE_TOKENS + 1][KVL_KEY_BYTES];
        uint32_t n_pages = (n + PAGE_TOKENS - 1) / PAGE_TOKENS, n_hashed = 0;
        uint64_t start = now_nsec();
        int r = kvl_keys(root, prompt, n, PAGE_TOKENS, plain[0]);

        series_add(&t->without, bench_usec_since(start));
        start = now_nsec();
        if (r == 0)
                r = kvl_key_memo_keys(t->memo, root, prompt, n, own[0], &n_hashed);
        series_add(&t->with, bench_usec_since(start));
        if (r == 0 && memcmp(own, plain, (size_t)n_pages * KVL_KEY_BYTES) != 0)
                r = -EIO;
        t->asked_bytes += n * sizeof(*prompt);
        t->hashed_bytes += (n - (uint64_t)(n_pages - n_hashed) * PAGE_TOKENS) * sizeof(*prompt);
        return r ? bench_fail("keys with a memo", r) : 0;
}

/* A turn of each conversation, then the next of each. */
static int one_round(struct talks *t, unsigned n_talks)
{
        int r = kvl_key_memo_new(PAGE_TOKENS, MEMO_BYTES, &t->memo);

        for (unsigned i = 0; i < n_talks; ++i)
                t->n_tokens[i] = SYSTEM;
        for (unsigned turn = 0; r == 0 && turn < N_TURNS; ++turn)
                for (unsigned i = 0; r == 0 && i < n_talks; ++i) {
                        t->n_tokens[i] += (uint32_t)(1 + pattern_next(&t->random) % (2 * TURN));
                        r = one_prompt(t, t->tokens[i], t->n_tokens[i]);
                }
        kvl_key_memo_free(TAKE(t->memo));
        series_close_round(&t->with);
        series_close_round(&t->without);
        return r;
}

static int measure_talks(struct bench_run *run, struct talks *t)
{
        unsigned n_talks = run->quick ? 8 : N_TALKS;
        int r = t->tokens ? 0 : -ENOMEM;

        for (unsigned i = 0; r == 0 && i < n_talks; ++i)
                for (unsigned k = 0; k < TALK_TOKENS; ++k)
                        t->tokens[i][k] = k < SYSTEM ? k : (uint32_t)pattern_next(&t->random);
        if (r == 0)
                r = series_init(&t->with, n_talks * N_TURNS, run->rounds);
        if (r == 0)
                r = series_init(&t->without, n_talks * N_TURNS, run->rounds);
        for (unsigned round = 0; r == 0 && round < run->rounds; ++round)
                r = one_round(t, n_talks);
        return r;
}

static int run_talks(struct bench_run *run)
{
        struct talks t = {.tokens = malloc(N_TALKS * sizeof(*t.tokens)), .random = 1};
        int r = measure_talks(run, &t);

        if (r == 0) {
                struct bench_result *bytes = bench_add(run, "bytes", "turns-hashed");

                bytes->baseline = "without";
                bytes->median = (double)t.hashed_bytes / run->rounds;
                bytes->baseline_median = (double)t.asked_bytes / run->rounds;
                bytes->max_ratio = MAX_HASHED;
                series_report(bench_add(run, "us", "turns"), &t.with, &t.without, "kvl_keys");
        }
        series_deinit(&t.with);
        series_deinit(&t.without);
        free(t.tokens);
        return r;
}

static int run_keys(struct bench_run *run)
{
        int cores[N_CORES];
        int r = bench_find_cores(cores);

        if (r == 0)
                r = bench_pin(0, cores[CORE_CLIENT]);
        if (r == 0)
                r = run_texts(run);
        return r == 0 ? run_talks(run) : r;
}

const struct bench bench_keys = {
        "keys", "keys of a text from its tokens, against plain SHA-256", 5, run_keys};
