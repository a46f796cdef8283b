#include "tests/bench/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/macros.h"
#include "proto/shm.h"

/* Keys worked on together, so that their cache misses overlap; as the library's. Not tuned. */
#define CHUNK 16u

struct table {
        struct shm_bucket *buckets;
        struct shm_line *lines;
        _Atomic uint32_t *counters;
        uint32_t n_buckets;
        struct hash_seed seed;
};

int table_new(uint32_t capacity_pages, struct table **ret)
{
        struct table *t = calloc(1, sizeof(*t));

        if (!t)
                return -ENOMEM;
        t->n_buckets =
                (uint32_t)(SHM_SLOTS_PER_PAGE * (uint64_t)capacity_pages / SHM_BUCKET_SLOTS + 1);
        t->seed = hash_seed_random();
        t->buckets = aligned_alloc(64, t->n_buckets * sizeof(struct shm_bucket));
        t->lines = aligned_alloc(64, capacity_pages * sizeof(struct shm_line));
        t->counters = calloc(capacity_pages, sizeof(*t->counters));
        if (!t->buckets || !t->lines || !t->counters) {
                table_free(t);
                return -ENOMEM;
        }
        memset((void *)t->buckets, 0, t->n_buckets * sizeof(struct shm_bucket));
        memset((void *)t->lines, 0, capacity_pages * sizeof(struct shm_line));
        *ret = t;
        return 0;
}

void table_free(struct table *t)
{
        if (!t)
                return;
        free(t->buckets);
        free(t->lines);
        free((void *)t->counters);
        free(t);
}

static inline struct shm_bucket *bucket_of(const struct table *t, uint64_t hash, unsigned n)
{
        return &t->buckets[shm_bucket_index(hash, t->n_buckets, n)];
}

static unsigned count_used(
        const struct table *t, uint64_t hash, unsigned bucket, _Atomic uint64_t **ret_room)
{
        struct shm_bucket *b = bucket_of(t, hash, bucket);
        unsigned n = 0;

        *ret_room = NULL;
        for (unsigned i = 0; i < SHM_BUCKET_SLOTS; ++i)
                if (atomic_load(&b->slots[i]) != 0)
                        n++;
                else
                        *ret_room = &b->slots[i];
        return n;
}

/* Inserts at the daemon's place for it (daemon/core/state/shared.c). */
bool table_insert(struct table *t, const uint8_t key[32], uint32_t page, uint16_t tokens)
{
        _Atomic uint64_t *at, *next;
        unsigned home;
        uint64_t hash = hash_digest(t->seed, key);
        struct shm_line *line = &t->lines[page];

        memcpy(line->key, key, SHM_KEY_BYTES);
        line->tokens = tokens;
        atomic_store(&line->state, PAGE_SEALED);
        home = count_used(t, hash, 0, &at);
        if (home >= SHM_HOME_SLOTS && count_used(t, hash, 1, &next) < home)
                at = next;
        if (!at)
                return false;
        atomic_store(at, shm_slot(hash, page));
        return true;
}

struct probe {
        uint64_t hash;
        unsigned bucket;  /* 0: home, 1: the next */
        uint32_t matches; /* slots of it with the tag, as bits, that weren't tried */
        uint32_t page;
};

/* All slots at once: the key's slot can't be predicted. */
static inline uint32_t match(const struct shm_bucket *b, uint64_t hash)
{
        uint32_t matches = 0;

        for (unsigned i = 0; i < SHM_BUCKET_SLOTS; ++i) {
                uint64_t slot = atomic_load_explicit(&b->slots[i], memory_order_relaxed);

                matches |= (uint32_t)(slot >> 32 == hash >> 32) << i;
        }
        return matches;
}

static inline bool next_candidate(const struct table *t, struct probe *p)
{
        const struct shm_bucket *b = bucket_of(t, p->hash, p->bucket);

        while (p->matches == 0) {
                if (p->bucket == 1)
                        return false;
                b = bucket_of(t, p->hash, ++p->bucket);
                p->matches = match(b, p->hash);
        }
        p->page = (uint32_t)atomic_load_explicit(
                          &b->slots[__builtin_ctz(p->matches)], memory_order_relaxed) -
                  1;
        p->matches &= p->matches - 1;
        return true;
}

static inline bool is_key(const uint8_t *a, const uint8_t *b)
{
        uint64_t x[4], y[4];

        memcpy(x, a, sizeof(x));
        memcpy(y, b, sizeof(y));
        return ((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3])) == 0;
}

/* Counts the key's page, the candidate or a later one. False: it isn't there. */
static inline bool take(struct table *t, struct probe *p, const uint8_t *key, uint64_t *tokens)
{
        do {
                struct shm_line *line = &t->lines[p->page];

                atomic_fetch_add(&t->counters[p->page], 1);
                if (atomic_load_explicit(&line->state, memory_order_acquire) == PAGE_SEALED &&
                        is_key(line->key, key)) {
                        *tokens += line->tokens;
                        return true;
                }
                atomic_fetch_sub_explicit(&t->counters[p->page], 1, memory_order_release);
        } while (next_candidate(t, p));
        return false;
}

static uint32_t lookup_one(
        struct table *t, const uint8_t *key, uint32_t *ret_page, uint64_t *tokens)
{
        struct probe p = {.hash = hash_digest(t->seed, key)};

        p.matches = match(bucket_of(t, p.hash, 0), p.hash);
        if (!next_candidate(t, &p) || !take(t, &p, key, tokens))
                return 0;
        *ret_page = p.page;
        return 1;
}

/* Returns the keys found, from the first on. */
static uint32_t lookup_chunk(
        struct table *t, const uint8_t *keys, uint32_t n, uint32_t *ret_pages, uint64_t *tokens)
{
        struct probe probes[CHUNK];

        for (uint32_t i = 0; i < n; ++i) {
                probes[i] = (struct probe){.hash = hash_digest(t->seed, keys + i * SHM_KEY_BYTES)};
                __builtin_prefetch(bucket_of(t, probes[i].hash, 0));
        }
        for (uint32_t i = 0; i < n; ++i) {
                probes[i].matches = match(bucket_of(t, probes[i].hash, 0), probes[i].hash);
                if (!next_candidate(t, &probes[i])) {
                        n = i;
                        break;
                }
                __builtin_prefetch(&t->lines[probes[i].page]);
                __builtin_prefetch((void *)&t->counters[probes[i].page], 1);
        }
        for (uint32_t i = 0; i < n; ++i) {
                if (!take(t, &probes[i], keys + i * SHM_KEY_BYTES, tokens))
                        return i;
                ret_pages[i] = probes[i].page;
        }
        return n;
}

uint32_t table_lookup(struct table *t, const uint8_t *keys, uint32_t n_keys, uint32_t *ret_pages,
        uint64_t *ret_n_tokens)
{
        uint32_t done = 0, n, found;

        *ret_n_tokens = 0;
        if (n_keys == 1)
                return lookup_one(t, keys, ret_pages, ret_n_tokens);
        do {
                n = MIN(n_keys - done, CHUNK);
                found = lookup_chunk(
                        t, keys + (size_t)done * SHM_KEY_BYTES, n, ret_pages + done, ret_n_tokens);
                done += found;
        } while (found == n && done < n_keys);
        return done;
}

void table_release(struct table *t, const uint32_t *pages, uint32_t n_pages)
{
        for (uint32_t i = 0; i < n_pages; ++i) {
                if (i + CHUNK < n_pages)
                        __builtin_prefetch((void *)&t->counters[pages[i + CHUNK]], 1);
                atomic_fetch_sub_explicit(&t->counters[pages[i]], 1, memory_order_release);
        }
}
