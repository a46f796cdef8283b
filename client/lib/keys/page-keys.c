/* The order in which a sequence's hashes are computed. With SHA instructions the chain runs beside
 * digests of later pages, two hashes at a time. Vectors compute the digests that the chain would
 * wait for. */
#include "client/lib/keys/page-keys.h"

#include <assert.h>
#include <stdbool.h>

#include "base/macros.h"

static_assert(__BYTE_ORDER == __LITTLE_ENDIAN, "token ids are hashed as they lie in memory");

/* Most digests that are ahead of the chain: one bit each of has_digest. */
#define AHEAD 64u
static_assert(AHEAD >= 2 * SHA256_MAX_LANES, "room for a vector's, behind those that wait");

/* Blocks of a page's digest that take no time, as the chain's two blocks run beside them. */
#define BESIDE_CHAIN 2u

/* A hash input's end, ready to be reused for inputs with as many bytes. */
struct text_end {
        uint32_t n_blocks; /* of the end; 0: none is made */
        uint32_t n_bytes;  /* of the input */
};

enum job { JOB_NONE, JOB_DIGEST, JOB_CHAIN };

/* One of the two hashes under way. */
struct stream {
        struct sha256_lane lane; /* its next n blocks, then those of `tail` */
        uint32_t n, n_tail;
        enum job job;
        uint32_t page;
        uint8_t tail[2 * SHA256_BLOCK_BYTES]; /* end of the tokens, domain and padding */
        struct text_end end;                  /* in the tail */
};

struct work {
        const struct page_keys_way *way;
        const uint32_t *tokens;
        uint32_t n_tokens, page_tokens, n_pages;
        uint32_t n_wide; /* pages that vectors may hash, from the first */
        uint8_t *keys;
        uint32_t n_begun;   /* pages whose digest was begun, from the first */
        uint32_t n_chained; /* pages that have their key */
        bool is_chaining;
        uint64_t has_digest;                     /* of page i: bit i % AHEAD */
        uint8_t (*digests)[SHA256_DIGEST_BYTES]; /* AHEAD of them, likewise */
        uint8_t chain[2 * SHA256_BLOCK_BYTES]; /* parent, digest, last tokens, domain and padding */
        struct text_end chain_end;             /* behind the last tokens */
        struct stream streams[2];
};

/* ---- inputs ------------------------------------------------------------------------------------
 */

/* SHA-256's padding takes at least this. */
#define PADDING_MIN (1u + sizeof(uint64_t))
static_assert(
        SHA256_BLOCK_BYTES - 1 + sizeof(PAGE_DOMAIN) - 1 + PADDING_MIN <= 2 * SHA256_BLOCK_BYTES,
        "a digest's text ends in two blocks");
static_assert(4 * CHAIN_TOKENS + sizeof(CHAIN_DOMAIN) - 1 + PADDING_MIN <= SHA256_BLOCK_BYTES,
        "the chain's text ends in work.chain");

/* Ends an input of n_bytes: its domain and SHA-256's padding come after the bytes past the last
 * whole block, which are, or will be, at `at`. Does nothing if the end there is the same. */
static void end_text(struct text_end *end, uint8_t *at, uint32_t n_bytes, const char *domain)
{
        uint32_t n = n_bytes % SHA256_BLOCK_BYTES, len = n + (uint32_t)strlen(domain);
        uint32_t n_blocks =
                (len + (uint32_t)PADDING_MIN + SHA256_BLOCK_BYTES - 1) / SHA256_BLOCK_BYTES;
        uint64_t bits = htobe64(8 * ((uint64_t)n_bytes - n + len));

        if (end->n_blocks > 0 && end->n_bytes == n_bytes)
                return;
        *end = (struct text_end){.n_blocks = n_blocks, .n_bytes = n_bytes};
        memset(at + n, 0, n_blocks * SHA256_BLOCK_BYTES - n);
        memcpy(at + n, domain, strlen(domain));
        at[len] = 0x80;
        memcpy(at + n_blocks * SHA256_BLOCK_BYTES - sizeof(bits), &bits, sizeof(bits));
}

static const uint32_t *tokens_of(const struct work *w, uint32_t page, uint32_t *ret_n)
{
        uint64_t first = (uint64_t)page * w->page_tokens;

        *ret_n = (uint32_t)MIN((uint64_t)w->page_tokens, w->n_tokens - first);
        return w->tokens + first;
}

/* Bytes of a page of n tokens that its digest covers. */
static uint32_t digest_bytes(uint32_t n)
{
        return 4 * (n - MIN(n, CHAIN_TOKENS));
}

static void set_digest(struct work *w, uint32_t page)
{
        w->has_digest |= UINT64_C(1) << page % AHEAD;
}

static bool can_chain(const struct work *w)
{
        return !w->is_chaining && (w->has_digest >> w->n_chained % AHEAD & 1);
}

/* ---- many digests at once ----------------------------------------------------------------------
 */

/* Returns how many pages vectors may hash, from the first: all are of one length. */
static uint32_t count_wide(const struct page_keys_way *way, uint32_t n_tokens, uint32_t page_tokens)
{
        bool is_beside_chain = way->pair->n_lanes > 1 &&
                               digest_bytes(page_tokens) < BESIDE_CHAIN * SHA256_BLOCK_BYTES;

        return way->wide && !is_beside_chain ? n_tokens / page_tokens : 0;
}

static bool wants_wide(const struct work *w)
{
        uint32_t n_left = w->n_wide > w->n_begun ? w->n_wide - w->n_begun : 0;

        if (n_left == 0 || w->n_begun + w->way->wide->n_lanes > w->n_chained + AHEAD)
                return false;
        /* A quarter of the lanes is as fast as one hash after the other, half of them as two. */
        if (w->way->pair->n_lanes == 1)
                return n_left >= w->way->wide->n_lanes / 4;
        return n_left >= w->way->wide->n_lanes / 2 && !w->is_chaining && !can_chain(w);
}

static void hash_wide(struct work *w)
{
        const struct sha256_wide *wide = w->way->wide;
        __attribute__((uninitialized)) struct sha256_text texts[SHA256_MAX_LANES];
        __attribute__((uninitialized)) uint8_t digests[SHA256_MAX_LANES][SHA256_DIGEST_BYTES];
        uint32_t n_digests = MIN(wide->n_lanes, w->n_wide - w->n_begun);
        uint32_t bytes = digest_bytes(w->page_tokens), rest = bytes % SHA256_BLOCK_BYTES;
        struct text_end end = {0};

        end_text(&end, texts[0].tail, bytes, PAGE_DOMAIN);
        for (uint32_t i = 0; i < wide->n_lanes; i++) {
                /* Lanes too many hash the first page again. */
                uint32_t n, page = w->n_begun + (i < n_digests ? i : 0);

                texts[i].at = (const uint8_t *)tokens_of(w, page, &n);
                if (i > 0)
                        memcpy(texts[i].tail + rest, texts[0].tail + rest,
                                end.n_blocks * SHA256_BLOCK_BYTES - rest);
                memcpy(texts[i].tail, texts[i].at + bytes - rest, rest);
        }
        wide->hash(texts, bytes / SHA256_BLOCK_BYTES, end.n_blocks, digests);
        for (uint32_t i = 0; i < n_digests; i++, w->n_begun++) {
                memcpy(w->digests[w->n_begun % AHEAD], digests[i], SHA256_DIGEST_BYTES);
                set_digest(w, w->n_begun);
        }
}

/* ---- two hashes at a time ----------------------------------------------------------------------
 */

static void begin_digest(struct work *w, struct stream *s)
{
        uint32_t n, bytes, rest;
        const uint32_t *tokens = tokens_of(w, w->n_begun, &n);

        bytes = digest_bytes(n);
        rest = bytes % SHA256_BLOCK_BYTES;

        s->job = JOB_DIGEST;
        s->page = w->n_begun++;
        s->lane.at = (const uint8_t *)tokens;
        s->n = bytes / SHA256_BLOCK_BYTES;
        /* All pages but the last end alike. */
        end_text(&s->end, s->tail, bytes, PAGE_DOMAIN);
        memcpy(s->tail, s->lane.at + bytes - rest, rest);
        s->n_tail = s->end.n_blocks;
        if (s->n == 0) {
                s->lane.at = s->tail;
                s->n = s->n_tail;
                s->n_tail = 0;
        }
}

static void begin_chain(struct work *w, struct stream *s)
{
        uint32_t n, n_last;
        const uint32_t *tokens = tokens_of(w, w->n_chained, &n);

        n_last = MIN(n, CHAIN_TOKENS);
        end_text(&w->chain_end, w->chain + SHA256_BLOCK_BYTES, SHA256_BLOCK_BYTES + 4 * n_last,
                CHAIN_DOMAIN);
        memcpy(w->chain + SHA256_BLOCK_BYTES, tokens + n - n_last, 4 * n_last);
        w->is_chaining = true;
        w->has_digest &= ~(UINT64_C(1) << w->n_chained % AHEAD);
        memcpy(w->chain + SHA256_DIGEST_BYTES, w->digests[w->n_chained % AHEAD],
                SHA256_DIGEST_BYTES);
        s->job = JOB_CHAIN;
        s->page = w->n_chained;
        s->lane.at = w->chain;
        s->n = 2;
        s->n_tail = 0;
}

/* The chain first: its delay alone can't be made up for. */
static void stream_begin(struct work *w, struct stream *s)
{
        if (wants_wide(w))
                hash_wide(w);
        memcpy(s->lane.state, w->way->pair->initial, sizeof(s->lane.state));
        if (can_chain(w))
                begin_chain(w, s);
        else if (w->n_begun < w->n_pages && w->n_begun < w->n_chained + AHEAD)
                begin_digest(w, s);
}

static void stream_end(struct work *w, struct stream *s)
{
        if (s->job == JOB_DIGEST) {
                w->way->pair->digest(&s->lane, w->digests[s->page % AHEAD]);
                set_digest(w, s->page);
        } else {
                w->way->pair->digest(&s->lane, w->chain);
                memcpy(w->keys + (uint64_t)s->page * SHA256_DIGEST_BYTES, w->chain,
                        SHA256_DIGEST_BYTES);
                w->is_chaining = false;
                w->n_chained++;
        }
        s->job = JOB_NONE;
}

static void stream_advance(struct work *w, struct stream *s, uint32_t n)
{
        s->lane.at += (uint64_t)n * SHA256_BLOCK_BYTES;
        s->n -= n;
        if (s->n == 0 && s->n_tail > 0) {
                s->lane.at = s->tail;
                s->n = s->n_tail;
                s->n_tail = 0;
        }
        if (s->n == 0)
                stream_end(w, s);
}

/* Hashes as many blocks of both as the shorter one has; one of them alone if the other has no job.
 */
static void hash_both(struct work *w, struct stream *a, struct stream *b)
{
        uint32_t n;

        if (a->job == JOB_NONE)
                a = b;
        if (b->job == JOB_NONE)
                b = a;
        n = MIN(a->n, b->n);
        w->way->pair->hash(&a->lane, &b->lane, n);
        stream_advance(w, a, n);
        if (b != a)
                stream_advance(w, b, n);
}

void page_keys(const struct page_keys_way *way, const uint8_t parent[SHA256_DIGEST_BYTES],
        const uint32_t *tokens, uint32_t n_tokens, uint32_t page_tokens, uint8_t *ret_keys)
{
        __attribute__((uninitialized)) uint8_t digests[AHEAD][SHA256_DIGEST_BYTES];
        struct work w = {
                .way = way,
                .tokens = tokens,
                .n_tokens = n_tokens,
                .page_tokens = page_tokens,
                .n_pages = (uint32_t)(((uint64_t)n_tokens + page_tokens - 1) / page_tokens),
                .n_wide = count_wide(way, n_tokens, page_tokens),
                .keys = ret_keys,
                .digests = digests,
        };
        struct stream *a = &w.streams[0], *b = &w.streams[1];

        memcpy(w.chain, parent, SHA256_DIGEST_BYTES);
        /* One has a job: the chain, or the digest that it waits for, is begun if it isn't under
         * way. */
        while (w.n_chained < w.n_pages) {
                if (a->job == JOB_NONE)
                        stream_begin(&w, a);
                if (b->job == JOB_NONE)
                        stream_begin(&w, b);
                hash_both(&w, a, b);
        }
}
