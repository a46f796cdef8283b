#include "client/lib/shared/fast.h"

#include <errno.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "base/fault-point.h"
#include "base/macros.h"

/* Keys whose buckets, lines and counters are prefetched together, so that memory latencies overlap.
 * The first block is smaller, as most misses come early. Of 8, 16 and 32, 16 was the best or near
 * it with 10 k and 102 k pages (kvlease-bench hit). */
#define BLOCK_KEYS       16
#define FIRST_BLOCK_KEYS 4

void fast_init(struct fast *f, struct shm_map *index, struct shm_map *pins, uint64_t version_epoch)
{
        const struct shm_index *h = index->base;
        struct shm_pins *p = pins->base;
        uint8_t *pins_base = pins->base;

        *f = (struct fast){
                .index_map = *index,
                .pins_map = *pins,
                .index = h,
                .buckets = (const void *)((const uint8_t *)index->base + h->buckets_offset),
                .lines = (const void *)((const uint8_t *)index->base + h->lines_offset),
                .pins = p,
                .magazine = (void *)(pins_base + p->magazine_offset),
                .counters = (void *)(pins_base + p->counters_offset),
                .seed = {h->seed[0], h->seed[1]},
                .n_buckets = h->n_buckets,
                .capacity_pages = h->capacity_pages,
                .version_epoch = version_epoch,
        };
        index->base = pins->base = NULL;
}

void fast_deinit(struct fast *f)
{
        shm_unmap(&f->index_map);
        shm_unmap(&f->pins_map);
        f->index = NULL;
}

/* ---- finding -----------------------------------------------------------------------------------
 */

/* Loads a word; not from an array of words, which the compiler would copy through the stack. */
static inline uint64_t load_word(const uint8_t *at)
{
        uint64_t word;

        memcpy(&word, at, sizeof(word));
        return word;
}

struct probe {
        const struct shm_bucket *bucket; /* home, or the one after it */
        uint32_t tag;                    /* upper half of the key's hash */
        uint32_t matches;                /* bit mask of slots with the tag that weren't tried */
        uint32_t page;                   /* of the last slot tried */
        bool is_home;
};

/* Returns a bit mask of the bucket's slots with the tag. Compares all at once: the key's slot can't
 * be predicted. */
#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__)
/* Compares four slots at once. No slot is torn; if one were, its line would show that. */
static inline __m128i match_four(const struct shm_bucket *b, unsigned first, __m128i tags)
{
        const __m128 *slots = (const __m128 *)(const void *)&b->slots[first];
        __m128 shown = _mm_shuffle_ps(slots[0], slots[1], _MM_SHUFFLE(3, 1, 3, 1));

        return _mm_cmpeq_epi32(_mm_castps_si128(shown), tags);
}

static inline uint32_t match_tags(const struct shm_bucket *b, uint32_t tag)
{
        __m128i tags = _mm_set1_epi32((int)tag);
        __m128i matches = _mm_packs_epi32(match_four(b, 0, tags), match_four(b, 4, tags));

        static_assert(SHM_BUCKET_SLOTS == 8, "two times four");
        return (uint32_t)_mm_movemask_epi8(_mm_packs_epi16(matches, _mm_setzero_si128()));
}
#else
static inline uint32_t match_tags(const struct shm_bucket *b, uint32_t tag)
{
        uint32_t matches = 0;

        for (unsigned i = 0; i < SHM_BUCKET_SLOTS; i++) {
                uint64_t slot = atomic_load_explicit(&b->slots[i], memory_order_relaxed);

                matches |= (uint32_t)((uint32_t)(slot >> 32) == tag) << i;
        }
        return matches;
}
#endif

/* Prefetches the key's home bucket. */
static inline void probe_init(const struct fast *f, struct probe *p, const uint8_t *key)
{
        uint64_t hash = hash_digest(f->seed, key);

        p->bucket = &f->buckets[shm_bucket_index(hash, f->n_buckets, 0)];
        p->tag = (uint32_t)(hash >> 32);
        p->is_home = true;
        __builtin_prefetch(p->bucket);
}

static inline void probe_start(struct probe *p)
{
        p->matches = match_tags(p->bucket, p->tag);
}

/* Finds the next page that could have the key; false: no more. */
static inline bool probe_next(const struct fast *f, struct probe *p)
{
        for (;;) {
                if (p->matches == 0) {
                        if (!p->is_home)
                                return false;
                        p->is_home = false;
                        if (++p->bucket == f->buckets + f->n_buckets)
                                p->bucket = f->buckets;
                        /* A key that moves to the other bucket is written there before it is
                         * removed here. */
                        atomic_thread_fence(memory_order_acquire);
                        p->matches = match_tags(p->bucket, p->tag);
                        continue;
                }
                /* The slot may have another key by now, which its line shows; an empty slot wraps
                 * around. */
                p->page =
                        (uint32_t)atomic_load_explicit(&p->bucket->slots[__builtin_ctz(p->matches)],
                                memory_order_relaxed) -
                        1;
                p->matches &= p->matches - 1;
                if (p->page < f->capacity_pages)
                        return true;
        }
}

static inline bool is_key(const uint8_t *a, const uint8_t *b)
{
        uint64_t other = 0;

#pragma GCC unroll 4
        for (unsigned i = 0; i < SHM_KEY_BYTES; i += sizeof(other))
                other |= load_word(a + i) ^ load_word(b + i);
        return other == 0;
}

/* Returns false, without a pin, if the page doesn't have the key, or is being removed. */
static inline bool pin_if_key(
        struct fast *f, uint32_t page, const uint8_t *key, uint64_t epoch, uint64_t *ret_generation)
{
        const struct shm_line *line = &f->lines[page];
        uint64_t state;

        atomic_fetch_add_explicit(&f->counters[page], 1, memory_order_seq_cst);
        shm_fence_after_rmw();
        FAULT_POINT("lookup-pinned");
        state = atomic_load_explicit(&line->state, memory_order_acquire);
        if ((uint8_t)state == PAGE_SEALED && is_key(line->key, key) && line->epoch == epoch) {
                FAULT_POINT("lookup-checked");
                *ret_generation = state >> 8;
                return true;
        }
        atomic_fetch_sub_explicit(&f->counters[page], 1, memory_order_release);
        return false;
}

/* Pins the probe's page, or a later one. */
static inline bool pin_probed(
        struct fast *f, struct probe *p, const uint8_t *key, uint64_t epoch, struct fast_hit *hit)
{
        do {
                if (!pin_if_key(f, p->page, key, epoch, &hit->generation))
                        continue;
                hit->n_tokens += f->lines[p->page].tokens;
                return true;
        } while (probe_next(f, p));
        return false;
}

/* Prefetches the block's buckets. */
static inline void begin_block(
        const struct fast *f, struct probe *probes, const uint8_t *keys, uint32_t n_keys)
{
        for (uint32_t i = 0; i < n_keys; i++)
                probe_init(f, &probes[i], keys + (size_t)i * SHM_KEY_BYTES);
}

/* Returns how many of the block's keys may be cached, from the first on. Prefetches their lines and
 * counters. */
static inline uint32_t probe_block(const struct fast *f, struct probe *probes, uint32_t n_keys)
{
        for (uint32_t i = 0; i < n_keys; i++) {
                probe_start(&probes[i]);
                if (!probe_next(f, &probes[i]))
                        return i;
                __builtin_prefetch(&f->lines[probes[i].page]);
                __builtin_prefetch(&f->counters[probes[i].page], 1);
        }
        return n_keys;
}

/* Returns how many of the block's keys are found and pinned, from the first on. */
static inline uint32_t pin_block(struct fast *f, struct probe *probes, const uint8_t *keys,
        uint32_t n_keys, uint64_t epoch, uint32_t *ret_pages, struct fast_hit *hit)
{
        for (uint32_t i = 0; i < n_keys; i++) {
                if (!pin_probed(f, &probes[i], keys + (size_t)i * SHM_KEY_BYTES, epoch, hit))
                        return i;
                ret_pages[i] = probes[i].page;
        }
        return n_keys;
}

/* Returns how many of the keys are found, from the first on. The next block begins before this one
 * is pinned: its buckets are fetched during the locked instructions. */
static uint32_t lookup_run(struct fast *f, const uint8_t *keys, uint32_t n_keys, uint64_t epoch,
        uint32_t *ret_pages, struct fast_hit *hit)
{
        /* Written before it is read: zeroing a block takes as long as two keys. */
        struct probe probes[2][BLOCK_KEYS] __attribute__((uninitialized));
        uint32_t n_found = 0, n = MIN(n_keys, (uint32_t)FIRST_BLOCK_KEYS);
        unsigned turn = 0;

        begin_block(f, probes[turn], keys, n);
        while (n > 0) {
                const uint8_t *at = keys + (size_t)n_found * SHM_KEY_BYTES;
                uint32_t n_probed = probe_block(f, probes[turn], n), n_next = 0, n_pinned;

                if (n_probed == n)
                        n_next = MIN(n_keys - n_found - n, (uint32_t)BLOCK_KEYS);
                begin_block(f, probes[turn ^ 1], at + (size_t)n * SHM_KEY_BYTES, n_next);
                n_pinned =
                        pin_block(f, probes[turn], at, n_probed, epoch, ret_pages + n_found, hit);
                n_found += n_pinned;
                if (n_pinned < n)
                        break;
                n = n_next;
                turn ^= 1;
        }
        return n_found;
}

static uint32_t lookup_one(struct fast *f, const uint8_t *key, uint64_t epoch, uint32_t *ret_page,
        struct fast_hit *hit)
{
        struct probe p;

        probe_init(f, &p, key);
        probe_start(&p);
        if (!probe_next(f, &p) || !pin_probed(f, &p, key, epoch, hit))
                return 0;
        *ret_page = p.page;
        return 1;
}

void fast_lookup(struct fast *f, const uint8_t *keys, uint32_t n_keys, uint32_t *ret_pages,
        struct fast_hit *ret_hit)
{
        uint64_t epoch = atomic_load_explicit(&f->index->epoch, memory_order_acquire);

        *ret_hit = (struct fast_hit){0};
        ret_hit->n_pages = n_keys == 1 ? lookup_one(f, keys, epoch, ret_pages, ret_hit)
                                       : lookup_run(f, keys, n_keys, epoch, ret_pages, ret_hit);
}

/* ---- looking without pinning -------------------------------------------------------------------
 */

/* The daemon may write any of the key's words while it is read. */
typedef uint64_t __attribute__((may_alias)) key_word;

/* Whether the line shows the key. It may change meanwhile, so the answer counts only if its state
 * is the same afterwards. */
static bool line_shows(const struct shm_line *line, const uint8_t *key, uint64_t epoch)
{
        const key_word *shown = (const key_word *)line->key;
        uint64_t wanted[SHM_KEY_BYTES / sizeof(uint64_t)];
        uint64_t other = __atomic_load_n(&line->epoch, __ATOMIC_RELAXED) ^ epoch;

        memcpy(wanted, key, sizeof(wanted));
        for (unsigned i = 0; i < ARRAY_SIZE(wanted); i++)
                other |= __atomic_load_n(&shown[i], __ATOMIC_RELAXED) ^ wanted[i];
        return other == 0;
}

static bool is_pending(
        struct fast *f, uint32_t page, const uint8_t *key, uint64_t epoch, struct fast_word *ret)
{
        const struct shm_line *line = &f->lines[page];
        uint64_t state = atomic_load_explicit(&line->state, memory_order_acquire);

        if ((uint8_t)state != PAGE_PENDING || !line_shows(line, key, epoch))
                return false;
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load_explicit(&line->state, memory_order_relaxed) != state)
                return false;
        *ret = (struct fast_word){(const uint32_t *)&line->state, (uint32_t)state};
        return true;
}

enum fast_key fast_look(struct fast *f, const uint8_t *key, struct fast_word *ret_word)
{
        uint64_t epoch = atomic_load_explicit(&f->index->epoch, memory_order_acquire), generation;
        struct probe p;

        probe_init(f, &p, key);
        probe_start(&p);
        while (probe_next(f, &p)) {
                if (is_pending(f, p.page, key, epoch, ret_word))
                        return FAST_PENDING;
                /* After the check for PENDING: the line may be SEALED by now. */
                if (!pin_if_key(f, p.page, key, epoch, &generation))
                        continue;
                atomic_fetch_sub_explicit(&f->counters[p.page], 1, memory_order_release);
                return FAST_CACHED;
        }
        return FAST_MISS;
}

/* Whether the page was SEALED with this key when looked at. */
static bool is_cached(const struct fast *f, uint32_t page, const uint8_t *key, uint64_t epoch)
{
        const struct shm_line *line = &f->lines[page];
        uint64_t state = atomic_load_explicit(&line->state, memory_order_acquire);

        if ((uint8_t)state != PAGE_SEALED || !line_shows(line, key, epoch))
                return false;
        atomic_thread_fence(memory_order_acquire);
        return atomic_load_explicit(&line->state, memory_order_relaxed) == state;
}

/* Does begin_block(), probe_block() and pin_block(), without pins. */
static uint32_t peek_block(const struct fast *f, const uint8_t *keys, uint32_t n_keys,
        uint64_t epoch, uint32_t *ret_pages)
{
        /* Written before it is read: zeroing it takes as long as two keys. */
        struct probe probes[BLOCK_KEYS] __attribute__((uninitialized));

        begin_block(f, probes, keys, n_keys);
        n_keys = probe_block(f, probes, n_keys);
        for (uint32_t i = 0; i < n_keys; i++) {
                const uint8_t *key = keys + (size_t)i * SHM_KEY_BYTES;

                while (!is_cached(f, probes[i].page, key, epoch))
                        if (!probe_next(f, &probes[i]))
                                return i;
                ret_pages[i] = probes[i].page;
        }
        return n_keys;
}

uint32_t fast_peek(const struct fast *f, const uint8_t *keys, uint32_t n_keys, uint32_t *ret_pages)
{
        uint64_t epoch = atomic_load_explicit(&f->index->epoch, memory_order_acquire);
        uint32_t n_found = 0, n, found;

        do {
                n = MIN(n_keys - n_found, n_found == 0 ? (uint32_t)FIRST_BLOCK_KEYS : BLOCK_KEYS);
                found = peek_block(
                        f, keys + (size_t)n_found * SHM_KEY_BYTES, n, epoch, ret_pages + n_found);
                n_found += found;
        } while (found == n && n_found < n_keys);
        return n_found;
}

/* ---- pins --------------------------------------------------------------------------------------
 */

/* A reader sees all that was written to a page before its publish. The daemon, another process,
 * ensures that. A thread sanitizer doesn't know the daemon: for it the publisher's pin does. */
#if defined(__SANITIZE_THREAD__)
#define PUBLISHERS_PIN memory_order_release
#else
#define PUBLISHERS_PIN memory_order_relaxed
#endif

bool fast_pin_key(struct fast *f, uint32_t page, const uint8_t *key)
{
        uint64_t epoch = atomic_load_explicit(&f->index->epoch, memory_order_acquire), generation;

        return pin_if_key(f, page, key, epoch, &generation);
}

void fast_pin(struct fast *f, const uint32_t *pages, uint32_t n_pages)
{
        for (uint32_t i = 0; i < n_pages; i++) {
                atomic_fetch_add_explicit(&f->counters[pages[i]], 1, PUBLISHERS_PIN);
                FAULT_POINT("publish-pinned");
        }
}

/* Half of a counter's range, as other threads may be adding to it. */
#define MAX_PINS (UINT32_C(1) << 31)

/* Adds a pin to a pinned page only: an unpinned one could be evicted meanwhile. */
static int add_pin(_Atomic uint32_t *counter)
{
        uint32_t n = atomic_load_explicit(counter, memory_order_relaxed);

        do {
                if (n == 0)
                        return -EINVAL;
                if (n >= MAX_PINS)
                        return -EOVERFLOW;
        } while (!atomic_compare_exchange_weak_explicit(
                counter, &n, n + 1, memory_order_relaxed, memory_order_relaxed));
        return 0;
}

int fast_pin_again(struct fast *f, const uint32_t *pages, uint32_t n_pages, uint32_t *ret_page)
{
        uint32_t i = 0;
        int r = 0;

        while (i < n_pages && r == 0) {
                r = add_pin(&f->counters[pages[i]]);
                if (r == 0)
                        i++;
        }
        if (r == 0)
                return 0;
        *ret_page = pages[i];
        while (i-- > 0)
                atomic_fetch_sub_explicit(&f->counters[pages[i]], 1, memory_order_release);
        return r;
}

int fast_release(struct fast *f, const uint32_t *pages, uint32_t n_pages, uint32_t *ret_page)
{
        for (uint32_t i = 0; i < n_pages; i++)
                if (atomic_load_explicit(&f->counters[pages[i]], memory_order_relaxed) == 0) {
                        *ret_page = pages[i];
                        return -EINVAL;
                }
        for (uint32_t i = 0; i < n_pages; i++) {
                uint32_t n =
                        atomic_fetch_sub_explicit(&f->counters[pages[i]], 1, memory_order_release);

                FAULT_POINT("release-half");
                if (n > 0)
                        continue;
                atomic_fetch_add_explicit(&f->counters[pages[i]], 1, memory_order_relaxed);
                *ret_page = pages[i];
                return -EINVAL;
        }
        return 0;
}

/* ---- the magazine ------------------------------------------------------------------------------
 */

static uint32_t n_left(const struct fast *f)
{
        uint64_t put = atomic_load_explicit(&f->pins->n_put, memory_order_acquire);
        uint64_t left = put - atomic_load_explicit(&f->pins->n_taken, memory_order_relaxed);

        /* A larger number: pages were claimed before they were counted, or taken back. */
        return left <= SHM_MAGAZINE_SLOTS ? (uint32_t)left : 0;
}

bool fast_leasable(const struct fast *f, uint32_t *ret_n_pages)
{
        uint32_t shown = atomic_load_explicit(&f->index->leasable, memory_order_relaxed);

        if (shown == 0)
                return false;
        *ret_n_pages = fast_is_stale(f) ? 0 : shown - 1 + n_left(f);
        return true;
}

/* Returns the slot to look at first: the daemon fills the first empty slots. */
static uint32_t first_slot(struct fast *f)
{
        uint64_t put = atomic_load_explicit(&f->pins->n_put, memory_order_relaxed);

        if (atomic_load_explicit(&f->n_put_seen, memory_order_relaxed) == put)
                return atomic_load_explicit(&f->cursor, memory_order_relaxed);
        atomic_store_explicit(&f->n_put_seen, put, memory_order_relaxed);
        return 0;
}

static bool claim_slot(struct fast *f, uint32_t slot, uint32_t *ret_page)
{
        uint32_t page;

        __builtin_prefetch(&f->magazine[(slot + 16) % SHM_MAGAZINE_SLOTS], 1); /* a line ahead */
        if (atomic_load_explicit(&f->magazine[slot], memory_order_relaxed) == 0)
                return false;
        page = atomic_exchange_explicit(&f->magazine[slot], 0, memory_order_acq_rel) - 1;
        FAULT_POINT("lease-claimed");
        if (page >= f->capacity_pages)
                return false;
        *ret_page = page;
        return true;
}

uint32_t fast_claim(struct fast *f, uint32_t n_pages, uint32_t *ret_pages)
{
        uint32_t n = 0, slot;

        n_pages = MIN(n_pages, n_left(f));
        if (n_pages == 0)
                return 0;
        slot = first_slot(f);
        for (uint32_t i = 0; i < SHM_MAGAZINE_SLOTS && n < n_pages; i++) {
                n += claim_slot(f, slot, &ret_pages[n]);
                slot = (slot + 1) % SHM_MAGAZINE_SLOTS;
        }
        atomic_store_explicit(&f->cursor, slot, memory_order_relaxed);
        atomic_fetch_add_explicit(&f->pins->n_taken, n, memory_order_relaxed);
        fast_note_granted(f, ret_pages, n);
        return n;
}

bool fast_take_refill(struct fast *f, bool came_up_short)
{
        uint32_t level = atomic_load_explicit(&f->pins->level, memory_order_relaxed);

        if (!came_up_short && n_left(f) >= level / 2)
                return false;
        if (atomic_load_explicit(&f->pins->refill_asked, memory_order_relaxed) != 0 ||
                atomic_exchange_explicit(&f->pins->refill_asked, 1, memory_order_relaxed) != 0)
                return false;
        FAULT_POINT("refill-asked");
        return true;
}

void fast_return_refill(struct fast *f)
{
        atomic_store_explicit(&f->pins->refill_asked, 0, memory_order_relaxed);
}
