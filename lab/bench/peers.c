/*
 * peers: a text of 128 pages of 64 tokens that is cached is found, held and let go of, by kvlease
 * and by other prefix caches: by keys that are known, and from tokens. Any text of those that are
 * resident is asked for. Each peer is measured in blocks between blocks of kvlease's own hits.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "client/lib/kvlease.h"
#include "tests/bench/bench.h"
#include "tests/bench/fixture.h"
#include "lab/bench/peer-process.h"
#include "tests/bench/redis.h"
#include "tests/integration/pattern.h"

#define PAGE_TOKENS 64u /* this and what follows as lab/bench/peers has it */
#define TEXT_PAGES  128u
#define TEXT_TOKENS (TEXT_PAGES * PAGE_TOKENS)
#define TEXT_BYTES  (TEXT_PAGES * KVL_KEY_BYTES)
#define VOCABULARY  128000u
#define SLACK_PAGES 4096u /* for magazines: nothing is evicted */
#define PAGE_STRIDE 7919u /* a prime: pages of neighbouring keys lie anywhere */
#define BLOCK       50u   /* hits, after as many that warm up */
#define BLOCKS      2u    /* of a round */
#define REDIS_VALUE "page1234"
#define FROM_TOKENS "-tokens" /* rows of modules that end so */
#define MEMO_BYTES  (UINT64_C(256) << 20)

/* How a hit of kvlease gets its keys. */
enum from { FROM_KEYS, FROM_HASHES, FROM_MEMO };
static const char *const own_rows[] = {"kvlease", "kvlease-tokens", "kvlease-memo"};

struct site {
        struct fixture fixture;
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        struct kvl_key_memo *memo; /* of all texts */
        uint8_t root[KVL_KEY_BYTES];
        uint8_t *keys;   /* owned: of all texts */
        uint32_t *pages; /* owned */
        uint32_t n_texts;
        uint64_t random;
        struct redis redis;
        struct redis_request request;
};

/* A module of lab/bench/peers, which has rows of its own; or what is measured here, with one. */
struct peer {
        const char *name, *row;       /* row: NULL of a module, as all that follows */
        int (*start)(struct site *s); /* 0 or -errno, told; redis_stop() it in any case. Or NULL */
        int (*block)(struct site *s, unsigned n, struct series *to_series);
        enum from from; /* of kvlease beside a module's rows from tokens; FROM_KEYS: FROM_HASHES */
};

/* A row of a peer, and kvlease beside it. */
struct pair {
        enum from from; /* kvlease's */
        struct series peer, own;
};

static void make_text(uint32_t number, uint32_t tokens[TEXT_TOKENS])
{
        for (uint32_t i = 0; i < TEXT_TOKENS; ++i)
                tokens[i] = (number * 8191u + i * 127u) % VOCABULARY;
}

/* ---- kvlease -------------------------------------------------------------------------------- */

static int open_namespace(struct site *s)
{
        struct kvl_connect_options o = {.size = sizeof(o),
                .socket_path = s->fixture.socket,
                .client_name = "kvlease-bench"};
        struct kvl_layout layout = {.size = sizeof(layout),
                .model = "peers",
                .version = "1",
                .dtype = KVL_DTYPE_F16,
                .n_layers = 1,
                .n_kv_heads = 1,
                .head_size = 64,
                .page_tokens = PAGE_TOKENS,
                .n_planes = 1,
                .plane_page_bytes = FIXTURE_PAGE_BYTES,
                .tp_size = 1};
        int r = kvl_connect(&o, &s->conn);

        if (r == 0)
                r = kvl_key_root(&layout, s->root);
        if (r == 0)
                r = kvl_ns_open(s->conn, "peers", &layout, NULL, 0, &s->ns);
        if (r)
                return bench_fail(kvl_last_error(), r);
        if (!kvl_uses_shm(s->ns))
                return bench_fail("memory isn't shared with kvleased: no figures", -EOPNOTSUPP);
        return 0;
}

static int publish_text(struct site *s, uint32_t number, const uint32_t *leased, uint32_t n_leased)
{
        uint32_t tokens[TEXT_TOKENS], *pages = s->pages + number * TEXT_PAGES;
        uint8_t *keys = s->keys + (size_t)number * TEXT_BYTES;
        struct kvl_publish p = {.size = sizeof(p),
                .pages = pages,
                .keys = keys,
                .n_pages = TEXT_PAGES,
                .last_tokens = PAGE_TOKENS};
        int r;

        make_text(number, tokens);
        r = kvl_keys(s->root, tokens, TEXT_TOKENS, PAGE_TOKENS, keys);
        for (uint32_t i = 0; i < TEXT_PAGES; ++i)
                pages[i] = leased[((uint64_t)number * TEXT_PAGES + i) * PAGE_STRIDE % n_leased];
        if (r == 0)
                r = kvl_publish(s->ns, &p, NULL, NULL);
        return r ? r : kvl_release(s->ns, pages, TEXT_PAGES);
}

static int fill(struct site *s)
{
        uint32_t n = s->n_texts * TEXT_PAGES, *leased = malloc(n * sizeof(*leased));
        int r = leased ? 0 : -ENOMEM;

        for (uint32_t i = 0; r == 0 && i < n; i += TEXT_PAGES)
                r = kvl_lease(s->ns, 0, TEXT_PAGES, leased + i);
        for (uint32_t i = 0; r == 0 && i < s->n_texts; ++i)
                r = publish_text(s, i, leased, n);
        free(leased);
        return r ? bench_fail(kvl_last_error(), r) : 0;
}

/* Puts the tokens of all texts into a memo, as an engine that was asked for them before. */
static int fill_memo(struct site *s)
{
        static uint32_t tokens[TEXT_TOKENS];
        static uint8_t keys[TEXT_BYTES];
        int r = kvl_key_memo_new(PAGE_TOKENS, MEMO_BYTES, &s->memo);

        for (uint32_t i = 0; r == 0 && i < s->n_texts; ++i) {
                make_text(i, tokens);
                r = kvl_key_memo_keys(s->memo, s->root, tokens, TEXT_TOKENS, keys, NULL);
        }
        return r ? bench_fail(kvl_last_error(), r) : 0;
}

static int site_open(struct site *s, uint32_t n_texts)
{
        uint32_t n_pages = n_texts * TEXT_PAGES;
        int r;

        *s = (struct site){.fixture = FIXTURE_INIT,
                .redis = REDIS_INIT,
                .n_texts = n_texts,
                .random = n_texts};
        s->keys = malloc((size_t)n_texts * TEXT_BYTES);
        s->pages = malloc(n_pages * sizeof(*s->pages));
        if (!s->keys || !s->pages)
                return bench_fail("keys", -ENOMEM);
        r = fixture_open(&s->fixture, n_pages + n_pages / 16 + SLACK_PAGES, FIXTURE_PAGE_BYTES);
        if (r == 0)
                r = open_namespace(s);
        if (r == 0)
                r = fill(s);
        return r < 0 ? r : fill_memo(s);
}

static void site_close(struct site *s)
{
        kvl_disconnect(s->conn);
        fixture_close(&s->fixture);
        kvl_key_memo_free(s->memo);
        free(s->keys);
        free(s->pages);
}

/* Measures a hit of a text. Its keys, or its tokens, are in the CPU's cache, as a caller has just
 * made or read them. */
static int hit(struct site *s, enum from from, double *ret_usec)
{
        static uint32_t tokens[TEXT_TOKENS], found[TEXT_PAGES];
        static uint8_t keys[TEXT_BYTES];
        uint32_t number = (uint32_t)(pattern_next(&s->random) % s->n_texts), n_found = 0;
        uint64_t start, n_tokens;
        int r = 0;

        make_text(number, tokens);
        memcpy(keys, s->keys + (size_t)number * TEXT_BYTES, TEXT_BYTES);
        start = now_nsec();
        if (from == FROM_HASHES)
                r = kvl_keys(s->root, tokens, TEXT_TOKENS, PAGE_TOKENS, keys);
        else if (from == FROM_MEMO)
                r = kvl_key_memo_keys(s->memo, s->root, tokens, TEXT_TOKENS, keys, NULL);
        if (r == 0)
                r = kvl_lookup(s->ns, 0, keys, TEXT_PAGES, found, &n_found, &n_tokens);
        if (r == 0)
                r = kvl_release(s->ns, found, n_found);
        *ret_usec = bench_usec_since(start);
        if (r)
                return bench_fail(kvl_last_error(), r);
        return n_found == TEXT_PAGES ? 0 : bench_fail("a hit didn't find its pages", -EIO);
}

static int own_block(struct site *s, enum from from, unsigned n, struct series *to_series)
{
        double usec;
        int r = 0;

        for (unsigned i = 0; r == 0 && i < 2 * n; ++i) {
                r = hit(s, from, &usec);
                if (i >= n)
                        series_add(to_series, usec);
        }
        return r;
}

static int tokens_block(struct site *s, unsigned n, struct series *to_series)
{
        return own_block(s, FROM_HASHES, n, to_series);
}

static int memo_block(struct site *s, unsigned n, struct series *to_series)
{
        return own_block(s, FROM_MEMO, n, to_series);
}

/* ---- redis ---------------------------------------------------------------------------------- */

static int load_redis(struct site *s)
{
        struct redis_request q = {0};
        int r = 0;

        for (uint32_t i = 0; r == 0 && i < s->n_texts * TEXT_PAGES; i += TEXT_PAGES) {
                redis_request_reset(&q);
                for (uint32_t k = i; k < i + TEXT_PAGES; ++k)
                        redis_add_set(&q, s->keys + (size_t)k * KVL_KEY_BYTES, REDIS_VALUE,
                                strlen(REDIS_VALUE));
                r = redis_call(&s->redis, &q);
        }
        redis_request_free(&q);
        return r < 0 ? bench_fail("loading redis", r) : 0;
}

static int start_redis(struct site *s)
{
        int r = redis_start(&s->redis, s->fixture.cores[CORE_OTHER]);

        return r < 0 ? r : load_redis(s);
}

static int redis_block(struct site *s, unsigned n, struct series *to_series)
{
        int r = 0;

        for (unsigned i = 0; r == 0 && i < 2 * n; ++i) {
                uint32_t number = (uint32_t)(pattern_next(&s->random) % s->n_texts);
                uint64_t start;

                redis_request_reset(&s->request);
                redis_add_mget(&s->request, s->keys + (size_t)number * TEXT_BYTES, TEXT_PAGES,
                        REDIS_VALUE, strlen(REDIS_VALUE));
                start = now_nsec();
                r = redis_call(&s->redis, &s->request);
                if (i >= n)
                        series_add(to_series, bench_usec_since(start));
        }
        return r < 0 ? bench_fail("redis", r) : 0;
}

/* ---- peers ---------------------------------------------------------------------------------- */

static const struct peer peers[] = {{"tokens", "kvlease-tokens", NULL, tokens_block},
        {"memo", "kvlease-memo", NULL, memo_block},
        {"redis", "redis-mget", start_redis, redis_block}, {.name = "table"}, {.name = "python"},
        {.name = "vllm"}, {.name = "lmcache"}, {.name = "lmcache_mp"}, {.name = "mooncake"},
        /* These compare tokens with those of earlier texts, and hash none. */
        {.name = "sglang", .from = FROM_MEMO}, {.name = "sglang_python", .from = FROM_MEMO}};

static bool ends_with(const char *text, const char *end)
{
        size_t n = strlen(text), n_end = strlen(end);

        return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

/* Starts a peer. One that is measured in this process gets its row in *ret as if it had one of its
 * own. */
static int start(struct site *s, const struct peer *peer, struct peer_process *ret)
{
        if (!peer->row)
                return peer_process_start(
                        ret, peer->name, s->n_texts, s->fixture.socket, s->fixture.cores);
        *ret = (struct peer_process){.n_rows = 1};
        snprintf(ret->rows[0], sizeof(ret->rows[0]), "%s", peer->row);
        return peer->start ? peer->start(s) : 0;
}

static int one_round(struct site *s, const struct peer *peer, struct peer_process *p, bool quick,
        struct pair pairs[PEER_MAX_ROWS])
{
        unsigned n = quick ? 2 : BLOCK;
        int r = 0;

        for (unsigned row = 0; row < p->n_rows; ++row) {
                struct pair *pair = &pairs[row];

                for (unsigned i = 0; r == 0 && i < BLOCKS; ++i) {
                        r = own_block(s, pair->from, n, &pair->own);
                        if (r == 0)
                                r = peer->row
                                            ? peer->block(s, n, &pair->peer)
                                            : peer_process_hits(p, peer->name, row, n, &pair->peer);
                }
                series_close_round(&pair->own);
                series_close_round(&pair->peer);
        }
        return r;
}

static void report(const struct site *s, const struct peer_process *p,
        struct pair pairs[PEER_MAX_ROWS], struct bench_run *run)
{
        char count[16];

        fixture_count_name(s->n_texts * TEXT_PAGES, count);
        for (unsigned row = 0; row < p->n_rows; ++row)
                series_report(bench_add(run, "us", "%s-%s", p->rows[row], count), &pairs[row].peer,
                        &pairs[row].own, own_rows[pairs[row].from]);
}

static int measure(
        struct site *s, const struct peer *peer, struct peer_process *p, struct bench_run *run)
{
        struct pair pairs[PEER_MAX_ROWS] = {0};
        int r = 0;

        for (unsigned row = 0; r == 0 && row < p->n_rows; ++row) {
                if (!peer->row && ends_with(p->rows[row], FROM_TOKENS))
                        pairs[row].from = peer->from ? peer->from : FROM_HASHES;
                r = series_init(&pairs[row].peer, BLOCKS * BLOCK, run->rounds);
                if (r == 0)
                        r = series_init(&pairs[row].own, BLOCKS * BLOCK, run->rounds);
        }
        for (unsigned round = 0; r == 0 && round < run->rounds; ++round)
                r = one_round(s, peer, p, run->quick, pairs);
        if (r == 0)
                report(s, p, pairs, run);
        for (unsigned row = 0; row < p->n_rows; ++row) {
                series_deinit(&pairs[row].peer);
                series_deinit(&pairs[row].own);
        }
        return r;
}

static int run_peer(struct site *s, const struct peer *peer, struct bench_run *run)
{
        struct peer_process p = {0};
        int r = start(s, peer, &p);

        if (r == 0)
                r = measure(s, peer, &p, run);
        peer_process_stop(&p);
        redis_stop(&s->redis);
        redis_request_free(&s->request);
        return r;
}

/* One that isn't there, or fails, is told and left out, unless it is the one that was named. */
static int run_site(struct bench_run *run, uint32_t n_texts)
{
        struct site *s = calloc(1, sizeof(*s));
        int r = s ? site_open(s, n_texts) : bench_fail("memory", -ENOMEM);

        for (unsigned i = 0; r == 0 && i < ARRAY_SIZE(peers); ++i) {
                int failed;

                if (run->argument && strcmp(run->argument, peers[i].name) != 0)
                        continue;
                failed = run_peer(s, &peers[i], run);
                if (run->argument)
                        r = failed;
        }
        if (s)
                site_close(s);
        free(s);
        return r;
}

static bool is_peer(const char *name)
{
        for (unsigned i = 0; i < ARRAY_SIZE(peers); ++i)
                if (strcmp(peers[i].name, name) == 0)
                        return true;
        fprintf(stderr, "kvlease-bench: peers: there is no %s; there are", name);
        for (unsigned i = 0; i < ARRAY_SIZE(peers); ++i)
                fprintf(stderr, " %s", peers[i].name);
        fputc('\n', stderr);
        return false;
}

static int run_peers(struct bench_run *run)
{
        static const uint32_t sizes[] = {80, 800}; /* texts: 10,240 and 102,400 pages */
        int r = 0;

        if (run->argument && !is_peer(run->argument))
                return -EINVAL;
        if (run->quick)
                return run_site(run, sizes[0] / 8);
        for (unsigned i = 0; r == 0 && i < ARRAY_SIZE(sizes); ++i)
                r = run_site(run, sizes[i]);
        return r;
}

const struct bench bench_peers = {"peers",
        "a hit of 128 pages, beside other prefix caches that are there", 7, run_peers,
        .argument = "[PEER]"};
