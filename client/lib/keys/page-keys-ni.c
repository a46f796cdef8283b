/* Keys of pages by the SHA instructions of x86. With one hash such a processor waits for its last
 * round half of the time, so two run at once: digests of two pages, or one digest and the chain. */
#include "client/lib/keys/page-keys.h"

#if defined(__x86_64__)
#include <assert.h>
#include <cpuid.h>
#include <endian.h>
#include <immintrin.h>
#include <stdatomic.h>
#include <string.h>

#include "base/macros.h"

#define INLINE_NI    __attribute__((always_inline, target("sha,sse4.1"))) static inline
#define NI           __attribute__((target("sha,sse4.1")))
#define BLOCK_BYTES  64u
#define DIGEST_BYTES 32u
#define QUADS        16u /* of rounds, in a block */

/* Most digests that are ahead of the chain. */
#define AHEAD 8u

/* FIPS 180-4, 4.2.2. */
static const uint32_t round_constants[4 * QUADS] __attribute__((aligned(16))) = {
        0x428a2f98,
        0x71374491,
        0xb5c0fbcf,
        0xe9b5dba5,
        0x3956c25b,
        0x59f111f1,
        0x923f82a4,
        0xab1c5ed5,
        0xd807aa98,
        0x12835b01,
        0x243185be,
        0x550c7dc3,
        0x72be5d74,
        0x80deb1fe,
        0x9bdc06a7,
        0xc19bf174,
        0xe49b69c1,
        0xefbe4786,
        0x0fc19dc6,
        0x240ca1cc,
        0x2de92c6f,
        0x4a7484aa,
        0x5cb0a9dc,
        0x76f988da,
        0x983e5152,
        0xa831c66d,
        0xb00327c8,
        0xbf597fc7,
        0xc6e00bf3,
        0xd5a79147,
        0x06ca6351,
        0x14292967,
        0x27b70a85,
        0x2e1b2138,
        0x4d2c6dfc,
        0x53380d13,
        0x650a7354,
        0x766a0abb,
        0x81c2c92e,
        0x92722c85,
        0xa2bfe8a1,
        0xa81a664b,
        0xc24b8b70,
        0xc76c51a3,
        0xd192e819,
        0xd6990624,
        0xf40e3585,
        0x106aa070,
        0x19a4c116,
        0x1e376c08,
        0x2748774c,
        0x34b0bcb5,
        0x391c0cb3,
        0x4ed8aa4a,
        0x5b9cca4f,
        0x682e6ff3,
        0x748f82ee,
        0x78a5636f,
        0x84c87814,
        0x8cc70208,
        0x90befffa,
        0xa4506ceb,
        0xbef9a3f7,
        0xc67178f2,
};

/* A hash input's end, ready to be reused for inputs with as many bytes. */
struct text_end {
        uint32_t n_blocks; /* of the end; 0: none is made */
        uint32_t n_bytes;  /* of the input */
};

enum job { JOB_NONE, JOB_DIGEST, JOB_CHAIN };

/* One of the two hashes under way. */
struct stream {
        __m128i abef, cdgh; /* state, as the instructions want it */
        const uint8_t *at;  /* blocks to hash: `n` of them, then those of `tail` */
        uint32_t n, n_tail;
        enum job job;
        uint32_t page;
        uint8_t tail[2 * BLOCK_BYTES]; /* end of the tokens, domain and padding */
        struct text_end end;           /* in the tail */
};

struct work {
        const uint32_t *tokens;
        uint32_t n_tokens, page_tokens, n_pages;
        uint8_t *keys;
        uint32_t n_begun;   /* pages whose digest was begun, from the first */
        uint32_t n_chained; /* pages that have their key */
        bool is_chaining;
        bool has_digest[AHEAD]; /* of page i: at i % AHEAD */
        uint8_t digests[AHEAD][DIGEST_BYTES];
        uint8_t chain[2 * BLOCK_BYTES]; /* parent, digest, last tokens, domain and padding */
        struct text_end chain_end;      /* behind the last tokens */
        struct stream streams[2];
};

/* Asked once: in a virtual machine CPUID takes longer than the keys of many pages. */
bool page_keys_has_sha_ni(void)
{
        static _Atomic int answer; /* 0: not asked yet; 1: yes; -1: no */
        int known = atomic_load_explicit(&answer, memory_order_relaxed);

        if (known == 0) {
                unsigned a, b = 0, c, d;

                known = __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("sse4.1") &&
                                        __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA)
                                ? 1
                                : -1;
                atomic_store_explicit(&answer, known, memory_order_relaxed);
        }
        return known > 0;
}

/* Computes words 16 and on, four at a time, in place of the 16 before. */
INLINE_NI void extend(__m128i w[4], unsigned quad)
{
        __m128i last = w[(quad + 3) % 4], x;

        x = _mm_sha256msg1_epu32(w[quad % 4], w[(quad + 1) % 4]);
        x = _mm_add_epi32(x, _mm_alignr_epi8(last, w[(quad + 2) % 4], 4));
        w[quad % 4] = _mm_sha256msg2_epu32(x, last);
}

INLINE_NI void four_rounds(__m128i *abef, __m128i *cdgh, __m128i words)
{
        *cdgh = _mm_sha256rnds2_epu32(*cdgh, *abef, words);
        *abef = _mm_sha256rnds2_epu32(*abef, *cdgh, _mm_shuffle_epi32(words, 0x0e));
}

INLINE_NI __m128i reverse_bytes(__m128i words)
{
        return _mm_shuffle_epi8(
                words, _mm_set_epi64x(0x0c0d0e0f08090a0bULL, 0x0405060700010203ULL));
}

INLINE_NI void load_block(const uint8_t *at, __m128i w[4])
{
        for (int i = 0; i < 4; i++)
                w[i] = reverse_bytes(_mm_loadu_si128((const __m128i_u *)at + i));
}

/* Hashes n blocks of both. */
NI static void hash_blocks(struct stream *a, struct stream *b, uint32_t n)
{
        __m128i abef[2] = {a->abef, b->abef}, cdgh[2] = {a->cdgh, b->cdgh};

        for (uint32_t i = 0; i < n; i++) {
                __m128i old_abef[2] = {abef[0], abef[1]}, old_cdgh[2] = {cdgh[0], cdgh[1]};
                __m128i v[4], w[4];

                load_block(a->at + i * BLOCK_BYTES, v);
                load_block(b->at + i * BLOCK_BYTES, w);
#pragma GCC unroll 16
                for (unsigned quad = 0; quad < QUADS; quad++) {
                        __m128i k = _mm_load_si128((const __m128i *)(round_constants + 4 * quad));

                        if (quad >= 4) {
                                extend(v, quad);
                                extend(w, quad);
                        }
                        four_rounds(&abef[0], &cdgh[0], _mm_add_epi32(v[quad % 4], k));
                        four_rounds(&abef[1], &cdgh[1], _mm_add_epi32(w[quad % 4], k));
                }
                for (int s = 0; s < 2; s++) {
                        abef[s] = _mm_add_epi32(abef[s], old_abef[s]);
                        cdgh[s] = _mm_add_epi32(cdgh[s], old_cdgh[s]);
                }
        }
        a->abef = abef[0];
        a->cdgh = cdgh[0];
        b->abef = abef[1];
        b->cdgh = cdgh[1];
}

NI static void store_digest(const struct stream *s, uint8_t ret[DIGEST_BYTES])
{
        __m128i feba = _mm_shuffle_epi32(s->abef, 0x1b), dchg = _mm_shuffle_epi32(s->cdgh, 0xb1);
        __m128i_u *to = (__m128i_u *)ret;

        _mm_storeu_si128(to, reverse_bytes(_mm_blend_epi16(feba, dchg, 0xf0)));
        _mm_storeu_si128(to + 1, reverse_bytes(_mm_alignr_epi8(dchg, feba, 8)));
}

/* SHA-256's padding takes at least this. */
#define PADDING_MIN (1u + sizeof(uint64_t))
static_assert(BLOCK_BYTES - 1 + sizeof(PAGE_DOMAIN) - 1 + PADDING_MIN <= 2 * BLOCK_BYTES,
        "a digest's text ends in stream.tail");
static_assert(4 * CHAIN_TOKENS + sizeof(CHAIN_DOMAIN) - 1 + PADDING_MIN <= BLOCK_BYTES,
        "the chain's text ends in work.chain");

/* Ends an input of n_bytes: its domain and SHA-256's padding come after the bytes past the last
 * whole block, which are, or will be, at `at`. Does nothing if the end there is the same. */
static void end_text(struct text_end *end, uint8_t *at, uint32_t n_bytes, const char *domain)
{
        uint32_t n = n_bytes % BLOCK_BYTES, len = n + (uint32_t)strlen(domain);
        uint32_t n_blocks = (len + (uint32_t)PADDING_MIN + BLOCK_BYTES - 1) / BLOCK_BYTES;
        uint64_t bits = htobe64(8 * ((uint64_t)n_bytes - n + len));

        if (end->n_blocks > 0 && end->n_bytes == n_bytes)
                return;
        *end = (struct text_end){.n_blocks = n_blocks, .n_bytes = n_bytes};
        memset(at + n, 0, n_blocks * BLOCK_BYTES - n);
        memcpy(at + n, domain, strlen(domain));
        at[len] = 0x80;
        memcpy(at + n_blocks * BLOCK_BYTES - sizeof(bits), &bits, sizeof(bits));
}

static const uint32_t *tokens_of(const struct work *w, uint32_t page, uint32_t *ret_n)
{
        uint64_t first = (uint64_t)page * w->page_tokens;

        *ret_n = (uint32_t)MIN((uint64_t)w->page_tokens, w->n_tokens - first);
        return w->tokens + first;
}

static void begin_digest(struct work *w, struct stream *s)
{
        uint32_t n, bytes, rest;
        const uint32_t *tokens = tokens_of(w, w->n_begun, &n);

        bytes = 4 * (n - MIN(n, CHAIN_TOKENS));
        rest = bytes % BLOCK_BYTES;

        s->job = JOB_DIGEST;
        s->page = w->n_begun++;
        s->at = (const uint8_t *)tokens; /* u32 little-endian, as in memory */
        s->n = bytes / BLOCK_BYTES;
        /* All pages but the last end alike. */
        end_text(&s->end, s->tail, bytes, PAGE_DOMAIN);
        memcpy(s->tail, s->at + bytes - rest, rest);
        s->n_tail = s->end.n_blocks;
        if (s->n == 0) {
                s->at = s->tail;
                s->n = s->n_tail;
                s->n_tail = 0;
        }
}

static void begin_chain(struct work *w, struct stream *s)
{
        uint32_t n, n_last;
        const uint32_t *tokens = tokens_of(w, w->n_chained, &n);

        n_last = MIN(n, CHAIN_TOKENS);
        end_text(&w->chain_end, w->chain + BLOCK_BYTES, BLOCK_BYTES + 4 * n_last, CHAIN_DOMAIN);
        memcpy(w->chain + BLOCK_BYTES, tokens + n - n_last, 4 * n_last);
        w->is_chaining = true;
        w->has_digest[w->n_chained % AHEAD] = false;
        memcpy(w->chain + DIGEST_BYTES, w->digests[w->n_chained % AHEAD], DIGEST_BYTES);
        s->job = JOB_CHAIN;
        s->page = w->n_chained;
        s->at = w->chain;
        s->n = 2;
        s->n_tail = 0;
}

/* The chain first: its delay alone can't be made up for. */
static void stream_begin(struct work *w, struct stream *s)
{
        /* FIPS 180-4, 5.3.3. */
        s->abef = _mm_set_epi32(0x6a09e667, (int)0xbb67ae85, 0x510e527f, (int)0x9b05688c);
        s->cdgh = _mm_set_epi32(0x3c6ef372, (int)0xa54ff53a, 0x1f83d9ab, 0x5be0cd19);
        s->job = JOB_NONE;
        if (!w->is_chaining && w->has_digest[w->n_chained % AHEAD])
                begin_chain(w, s);
        else if (w->n_begun < w->n_pages && w->n_begun < w->n_chained + AHEAD)
                begin_digest(w, s);
}

static void stream_end(struct work *w, struct stream *s)
{
        if (s->job == JOB_DIGEST) {
                store_digest(s, w->digests[s->page % AHEAD]);
                w->has_digest[s->page % AHEAD] = true;
        } else {
                store_digest(s, w->chain);
                memcpy(w->keys + (uint64_t)s->page * DIGEST_BYTES, w->chain, DIGEST_BYTES);
                w->is_chaining = false;
                w->n_chained++;
        }
        s->job = JOB_NONE;
}

static void stream_advance(struct work *w, struct stream *s, uint32_t n)
{
        s->at += n * BLOCK_BYTES;
        s->n -= n;
        if (s->n == 0 && s->n_tail > 0) {
                s->at = s->tail;
                s->n = s->n_tail;
                s->n_tail = 0;
        }
        if (s->n == 0)
                stream_end(w, s);
}

void page_keys_sha_ni(const uint8_t parent[DIGEST_BYTES], const uint32_t *tokens, uint32_t n_tokens,
        uint32_t page_tokens, uint8_t *ret_keys)
{
        struct work w = {
                .tokens = tokens,
                .n_tokens = n_tokens,
                .page_tokens = page_tokens,
                .n_pages = (uint32_t)(((uint64_t)n_tokens + page_tokens - 1) / page_tokens),
                .keys = ret_keys,
        };
        struct stream *a = &w.streams[0], *b = &w.streams[1];

        memcpy(w.chain, parent, DIGEST_BYTES);
        while (w.n_chained < w.n_pages) {
                uint32_t n;

                if (a->job == JOB_NONE)
                        stream_begin(&w, a);
                if (b->job == JOB_NONE)
                        stream_begin(&w, b);
                /* One has a job: the chain, or the digest that it waits for, is begun if it isn't
                 * under way. Without a second job the first one is hashed twice. */
                if (a->job == JOB_NONE)
                        a->at = b->at;
                if (b->job == JOB_NONE)
                        b->at = a->at;
                n = a->job == JOB_NONE ? b->n : b->job == JOB_NONE ? a->n : MIN(a->n, b->n);
                hash_blocks(a, b, n);
                if (a->job != JOB_NONE)
                        stream_advance(&w, a, n);
                if (b->job != JOB_NONE)
                        stream_advance(&w, b, n);
        }
}

#else

bool page_keys_has_sha_ni(void)
{
        return false;
}

/* Not called if the processor lacks the instructions. */
void page_keys_sha_ni(const uint8_t parent[32], const uint32_t *tokens, uint32_t n_tokens,
        uint32_t page_tokens, uint8_t *ret_keys)
{
        page_keys_portable(parent, tokens, n_tokens, page_tokens, ret_keys);
}

#endif
