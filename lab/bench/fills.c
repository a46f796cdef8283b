/*
 * fills: a namespace is filled to its device's last page, and every page is looked up. A key
 * without an index slot can't be found, nor the rest of its text: there may be none. Each fill is a
 * daemon of its own, whose index has a seed of its own. Pages' memory is never touched.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/parse.h"
#include "client/lib/kvlease.h"
#include "tests/bench/bench.h"
#include "tests/bench/fixture.h"
#include "tests/integration/pattern.h"

#define QUICK_PAGES (16 * FIXTURE_TEXT)
#define PAGES       (1024 * FIXTURE_TEXT)
#define MAX_PAGES   (16 * PAGES)

/* Forms of keys. */
enum kind {
        KIND_TOKENS, /* those that kvl_keys() makes of random tokens */
        KIND_FIRST,  /* a count in the first 4 bytes, and the same 28 bytes after it */
        KIND_LAST,   /* the same 28 bytes, and a count in the last 4 */
        KIND_SPREAD, /* a count whose 32 bits are a bit of each byte */
        N_KINDS
};
static const char *const kind_names[N_KINDS] = {"tokens", "first", "last", "spread"};

static int make_text_keys(uint64_t *random, uint8_t *ret_keys)
{
        static const uint8_t no_parent[KVL_KEY_BYTES];
        static uint32_t tokens[FIXTURE_TEXT * FIXTURE_PAGE_TOKENS];

        for (size_t i = 0; i < ARRAY_SIZE(tokens); ++i)
                tokens[i] = (uint32_t)pattern_next(random);
        return kvl_keys(no_parent, tokens, ARRAY_SIZE(tokens), FIXTURE_PAGE_TOKENS, ret_keys);
}

static void make_key(enum kind kind, uint32_t count, uint8_t *ret_key)
{
        memset(ret_key, 0, KVL_KEY_BYTES);
        if (kind == KIND_FIRST)
                memcpy(ret_key, &count, sizeof(count));
        else if (kind == KIND_LAST)
                memcpy(ret_key + KVL_KEY_BYTES - sizeof(count), &count, sizeof(count));
        else
                for (unsigned i = 0; i < KVL_KEY_BYTES; ++i)
                        ret_key[i] = count >> i & 1;
}

static int make_keys(enum kind kind, uint64_t seed, uint32_t n_pages, uint8_t *ret_keys)
{
        int r = 0;

        for (uint32_t i = 0; r == 0 && kind == KIND_TOKENS && i < n_pages; i += FIXTURE_TEXT)
                r = make_text_keys(&seed, ret_keys + (size_t)i * KVL_KEY_BYTES);
        for (uint32_t i = 0; kind != KIND_TOKENS && i < n_pages; ++i)
                make_key(kind, (uint32_t)seed + i, ret_keys + (size_t)i * KVL_KEY_BYTES);
        return r ? bench_fail(kvl_last_error(), r) : 0;
}

static int one_fill(enum kind kind, uint64_t seed, uint32_t n_pages, double *ret_lost)
{
        struct fixture f = FIXTURE_INIT;
        struct fixture_client client = {0};
        uint8_t *keys = malloc((size_t)n_pages * KVL_KEY_BYTES);
        uint32_t *pages = malloc(n_pages * sizeof(*pages));
        uint64_t n_lost = 0;
        int r = keys && pages ? 0 : bench_fail("keys", -ENOMEM);

        if (r == 0)
                r = make_keys(kind, seed, n_pages, keys);
        if (r == 0)
                r = fixture_open(&f, n_pages, FIXTURE_PAGE_BYTES);
        if (r == 0)
                r = fixture_connect(&f, 0, &client);
        if (r == 0)
                r = fixture_publish(client.ns, seed, n_pages, keys, pages);
        if (r == 0)
                r = fixture_count_lost(client.ns, keys, n_pages, &n_lost);
        *ret_lost = (double)n_lost;
        fixture_disconnect(&client);
        fixture_close(&f);
        free(keys);
        free(pages);
        return r;
}

/* The argument: pages, whole texts of them. */
static int get_size(const struct bench_run *run, uint32_t *ret_pages)
{
        uint64_t n = run->quick ? QUICK_PAGES : PAGES;

        if (run->argument && (parse_u64(run->argument, &n) < 0 || n < FIXTURE_TEXT ||
                                     n > MAX_PAGES || n % FIXTURE_TEXT != 0))
                return bench_fail("fills [PAGES]: a multiple of 1,024, at most 16 M", -EINVAL);
        *ret_pages = (uint32_t)n;
        return 0;
}

static int run_fills(struct bench_run *run)
{
        double *n_lost = calloc((size_t)N_KINDS * run->rounds, sizeof(*n_lost));
        uint32_t n_pages = 0;
        int r = n_lost ? get_size(run, &n_pages) : bench_fail("rounds", -ENOMEM);
        char name[16];

        for (unsigned i = 0; r == 0 && i < run->rounds; ++i)
                for (unsigned kind = 0; r == 0 && kind < N_KINDS; ++kind)
                        r = one_fill((enum kind)kind, (uint64_t)i << 32 | 1, n_pages,
                                &n_lost[kind * run->rounds + i]);
        for (unsigned kind = 0; r == 0 && kind < N_KINDS; ++kind) {
                struct bench_result *result = bench_add(run, "1", "lost-%s-%s", kind_names[kind],
                        fixture_count_name(n_pages, name));

                result->median = bench_quantile(&n_lost[kind * run->rounds], run->rounds, 1);
                result->max_value = 0;
        }
        free(n_lost);
        return r;
}

const struct bench bench_fills = {
        .name = "fills",
        .help = "namespaces filled to the last page: pages that can't be found, in the worst round",
        .rounds = 3,
        .fn = run_fills,
        .argument = "[PAGES]",
};
