/* Hits, pins and magazines in shared memory: the reader's half, against an evictor that plays the
 * daemon's. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/lib/shared/fast.h"
#include "tests/unit/fake-shm.h"
#include "tests/unit/test-support.h"

#define CAPACITY  64
#define CLIENT_ID 42
#define N_KEYS    40

struct world {
        struct fake_index index;
        struct fake_pins pins;
        struct fast fast;
        uint8_t keys[N_KEYS][SHM_KEY_BYTES];
};

static void key_of(uint8_t *key, uint32_t i)
{
        memset(key, 0, SHM_KEY_BYTES);
        memcpy(key, &i, sizeof(i));
        key[SHM_KEY_BYTES - 1] = 1;
}

/* Where key i lies: not in order. */
static uint32_t page_of(uint32_t i)
{
        return (i * 7 + 3) % CAPACITY;
}

static void world_open(struct world *w, uint32_t n_buckets)
{
        struct shm_map index, pins;

        fake_index_open(&w->index, CAPACITY, n_buckets);
        fake_pins_open(&w->pins, CAPACITY, CLIENT_ID);
        /* Both sides use the same mapping, because TSan knows atomics by their address. */
        index = (struct shm_map){w->index.header, w->index.bytes};
        pins = (struct shm_map){w->pins.header, w->pins.bytes};
        fast_init(&w->fast, &index, &pins, 1);
        for (uint32_t i = 0; i < N_KEYS; i++)
                key_of(w->keys[i], i);
}

static void world_close(struct world *w)
{
        fake_index_close(&w->index);
        fake_pins_close(&w->pins);
}

#define SCENE(fn, ...) TEST_ON(fn, struct world, w, world_open, world_close, ##__VA_ARGS__)

static void add_all(struct world *w)
{
        for (uint32_t i = 0; i < N_KEYS; i++)
                fake_index_add(&w->index, page_of(i), w->keys[i], (uint16_t)(i + 1), 100 + i);
}

static uint32_t n_pins(const struct world *w)
{
        uint32_t n = 0;

        for (uint32_t i = 0; i < CAPACITY; i++)
                n += w->pins.counters[i];
        return n;
}

/* ---- hits ----------------------------------------------------------------------------------- */

static void assert_miss(struct world *w)
{
        struct fast_hit hit;
        uint32_t page = 77;

        fast_lookup(&w->fast, w->keys[5], 1, &page, &hit);
        assert_true(hit.n_pages == 0 && page == 77 && n_pins(w) == 0);
}

static void assert_hit(struct world *w, uint32_t wanted)
{
        struct fast_hit hit;
        uint32_t page = 77;

        fast_lookup(&w->fast, w->keys[5], 1, &page, &hit);
        assert_true(hit.n_pages == 1 && page == wanted && w->pins.counters[page] == 1);
        assert_int_equal(fast_release(&w->fast, &page, 1, &page), 0);
}

TEST(test_what_is_no_hit)
{
        struct world w;
        struct shm_line *line;

        world_open(&w, 0);
        add_all(&w);
        line = &w.index.lines[page_of(5)];
        for (uint8_t s = 0; s < 16; s++) {
                line->state = 3 << 8 | s;
                if (s == PAGE_SEALED)
                        assert_hit(&w, page_of(5));
                else
                        assert_miss(&w);
        }
        line->state = 3 << 8 | PAGE_SEALED;
        for (unsigned i = 0; i < SHM_KEY_BYTES; i++) {
                line->key[i] ^= 1;
                assert_miss(&w);
                line->key[i] ^= 1;
        }
        assert_hit(&w, page_of(5));
        w.index.header->epoch++;
        assert_miss(&w);
        line->epoch++;
        assert_hit(&w, page_of(5));
        assert_false(fast_is_stale(&w.fast));
        w.index.header->version_epoch++;
        assert_true(fast_is_stale(&w.fast));
        world_close(&w);
}

/* ---- release -------------------------------------------------------------------------------- */

SCENE(test_release, 0)
{
        const uint32_t pages[] = {3, 4, 5}, twice[] = {3, 3};
        uint32_t page = 0;

        fast_pin(&w->fast, pages, 2);
        assert_int_equal(fast_release(&w->fast, pages, 3, &page), -EINVAL);
        assert_true(page == 5 && n_pins(w) == 2);
        assert_int_equal(fast_release(&w->fast, twice, 2, &page), -EINVAL);
        assert_true(page == 3 && n_pins(w) == 1 && w->pins.counters[3] == 0);
        assert_int_equal(fast_release(&w->fast, pages + 1, 1, &page), 0);
        assert_int_equal(fast_release(&w->fast, pages + 1, 1, &page), -EINVAL);
        assert_int_equal(n_pins(w), 0);
}

/* ---- the magazine --------------------------------------------------------------------------- */

#define N_CLAIMERS 4
#define N_FILLINGS 2000 /* at most: on a busy machine as many as there is time for */
#define FILL_NSEC  (10 * NSEC_PER_SEC)

struct claimer {
        struct world *w;
        _Atomic bool *is_over;
        uint32_t n_got[CAPACITY];
};

static void *claim_all(void *data)
{
        struct claimer *c = data;
        uint32_t pages[3], n;
        bool was_over;

        do {
                was_over = *c->is_over;
                n = fast_claim(&c->w->fast, 3, pages);
                for (uint32_t i = 0; i < n; i++)
                        c->n_got[pages[i]]++;
        } while (n > 0 || !was_over);
        return NULL;
}

/* Each page is got once, by one of the threads. */
SCENE(test_claims_by_threads, 0)
{
        struct claimer claimers[N_CLAIMERS] = {0};
        pthread_t threads[N_CLAIMERS];
        _Atomic bool is_over = false;
        uint64_t until = clock_now_nsec() + FILL_NSEC;
        uint32_t n_fillings = 0;

        for (int i = 0; i < N_CLAIMERS; i++) {
                claimers[i].w = w;
                claimers[i].is_over = &is_over;
                assert_int_equal(pthread_create(&threads[i], NULL, claim_all, &claimers[i]), 0);
        }
        for (; n_fillings < N_FILLINGS && clock_now_nsec() < until; n_fillings++) {
                /* Filled as a whole, so that the claimers have the machine for themselves. */
                while (w->pins.header->n_put != w->pins.header->n_taken)
                        sched_yield();
                for (uint32_t page = 0; page < CAPACITY; page++)
                        fake_pins_put(&w->pins, page);
        }
        is_over = true;
        for (int i = 0; i < N_CLAIMERS; i++)
                pthread_join(threads[i], NULL);
        for (uint32_t page = 0; page < CAPACITY; page++) {
                uint32_t n = 0;

                for (int i = 0; i < N_CLAIMERS; i++)
                        n += claimers[i].n_got[page];
                assert_int_equal(n, n_fillings);
        }
}

/* ---- readers and the evictor ---------------------------------------------------------------- */

#define N_READERS   2
#define N_TEXTS     16 /* of the keys that come and go: more than there are pages for */
#define N_HOT_PAGES 8
#define N_LOOKUPS   200000

struct content {
        uint32_t text;
        uint32_t copy[15];
};

struct reader {
        struct world *w;
        struct content *contents;
        _Atomic int *n_running;
        unsigned seed;
        uint32_t n_hits, n_wrong;
};

static void *read_all(void *data)
{
        struct reader *r = data;
        struct fast_hit hit;
        uint32_t page;

        for (int i = 0; i < N_LOOKUPS; i++) {
                uint32_t text = (uint32_t)rand_r(&r->seed) % N_TEXTS;

                fast_lookup(&r->w->fast, r->w->keys[text], 1, &page, &hit);
                if (hit.n_pages == 0)
                        continue;
                r->n_hits++;
                for (int j = 0; j < 15; j++)
                        r->n_wrong += r->contents[page].copy[j] != text;
                r->n_wrong += fast_release(&r->w->fast, &page, 1, &page) != 0;
        }
        --*r->n_running;
        return NULL;
}

/* Retires a page like daemon/core/state/shared.h; false: it is pinned. */
static bool retire(struct world *w, uint32_t page)
{
        struct shm_line *line = &w->index.lines[page];
        uint64_t state = line->state;

        if (atomic_load_explicit(&w->pins.counters[page], memory_order_relaxed) > 0)
                return false;
        atomic_exchange(&line->state, (state & ~UINT64_C(0xff)) | PAGE_RETIRING);
        atomic_thread_fence(memory_order_seq_cst);
        if (atomic_load_explicit(&w->pins.counters[page], memory_order_acquire) == 0)
                return true;
        atomic_store_explicit(&line->state, state, memory_order_release);
        return false;
}

static void replace(struct world *w, struct content *contents, uint32_t page, uint32_t text)
{
        uint64_t hash = hash_digest(FAKE_SEED, w->index.lines[page].key);
        uint64_t generation = w->index.lines[page].state >> 8;

        for (unsigned i = 0; i < 2 * SHM_BUCKET_SLOTS; i++) {
                uint64_t mine = shm_slot(hash, page);

                atomic_compare_exchange_strong(
                        &w->index.buckets[shm_bucket_index(hash, w->index.header->n_buckets,
                                                  i / SHM_BUCKET_SLOTS)]
                                 .slots[i % SHM_BUCKET_SLOTS],
                        &mine, 0);
        }
        w->index.lines[page].state = (generation + 1) << 8 | PAGE_FREE;
        contents[page].text = text;
        for (int j = 0; j < 15; j++)
                contents[page].copy[j] = text;
        fake_index_add(&w->index, page, w->keys[text], 16, generation + 1);
}

static bool is_cached(const struct content *contents, uint32_t text)
{
        for (uint32_t page = 0; page < N_HOT_PAGES; page++)
                if (contents[page].text == text)
                        return true;
        return false;
}

SCENE(test_readers_and_evictor, 0)
{
        struct content contents[N_HOT_PAGES] = {0};
        struct reader readers[N_READERS] = {0};
        pthread_t threads[N_READERS];
        _Atomic int n_running = N_READERS;
        uint32_t n_evicted = 0, n_hits = 0;
        unsigned seed = 1;

        for (uint32_t page = 0; page < N_HOT_PAGES; page++)
                replace(w, contents, page, page);
        for (int i = 0; i < N_READERS; i++) {
                readers[i] = (struct reader){.w = w,
                        .contents = contents,
                        .n_running = &n_running,
                        .seed = 7u + (unsigned)i};
                assert_int_equal(pthread_create(&threads[i], NULL, read_all, &readers[i]), 0);
        }
        while (n_running > 0) {
                uint32_t page = (uint32_t)rand_r(&seed) % N_HOT_PAGES;
                uint32_t text = (uint32_t)rand_r(&seed) % N_TEXTS;

                if (is_cached(contents, text) || !retire(w, page))
                        continue;
                replace(w, contents, page, text);
                n_evicted++;
        }
        for (int i = 0; i < N_READERS; i++) {
                pthread_join(threads[i], NULL);
                assert_int_equal(readers[i].n_wrong, 0);
                n_hits += readers[i].n_hits;
        }
        assert_true(n_hits > N_LOOKUPS / 10 && n_evicted > N_LOOKUPS / 1000);
        assert_int_equal(n_pins(w), 0);
}

/* ---- segments ------------------------------------------------------------------------------- */

static int map_index(struct world *w, uint64_t bytes)
{
        struct shm_map map = {0};
        int r = shm_map_index(w->index.fd, bytes, CAPACITY, &map);

        shm_unmap(&map);
        return r;
}

static int map_pins(struct world *w, uint64_t client_id)
{
        struct shm_map map = {0};
        int r = shm_map_pins(w->pins.fd, w->pins.bytes, client_id, CAPACITY, &map);

        shm_unmap(&map);
        return r;
}

/* `what` as it shouldn't be, for one call. */
#define WRONG(what, value, call, code)               \
        do {                                         \
                __typeof__(what) was_right = (what); \
                (what) = (value);                    \
                assert_int_equal(call, code);        \
                (what) = was_right;                  \
        } while (0)

SCENE(test_broken_segments, 0)
{
        struct shm_index *x;
        struct shm_pins *p;

        x = w->index.header;
        p = w->pins.header;
        assert_int_equal(map_index(w, w->index.bytes), 0);
        assert_int_equal(map_index(w, w->index.bytes - 64), -EINVAL);
        assert_int_equal(map_index(w, 64), -EINVAL);
        WRONG(x->header.magic, 1, map_index(w, w->index.bytes), -EOPNOTSUPP);
        WRONG(x->header.version, 2, map_index(w, w->index.bytes), -EOPNOTSUPP);
        WRONG(x->header.kind, SHM_PINS, map_index(w, w->index.bytes), -EINVAL);
        WRONG(x->header.bytes, 4096, map_index(w, w->index.bytes), -EINVAL);
        WRONG(x->capacity_pages, CAPACITY + 1, map_index(w, w->index.bytes), -EINVAL);
        WRONG(x->n_buckets, 0, map_index(w, w->index.bytes), -EINVAL);
        WRONG(x->n_buckets, 1u << 31, map_index(w, w->index.bytes), -EINVAL);
        WRONG(x->buckets_offset, w->index.bytes, map_index(w, w->index.bytes), -EINVAL);
        WRONG(x->lines_offset, x->lines_offset + 64, map_index(w, w->index.bytes), -EINVAL);
        WRONG(x->lines_offset, 0, map_index(w, w->index.bytes), -EINVAL);
        WRONG(x->lines_offset, UINT64_MAX - 63, map_index(w, w->index.bytes), -EINVAL);
        assert_int_equal(map_pins(w, CLIENT_ID), 0);
        assert_int_equal(map_pins(w, CLIENT_ID + 1), -EINVAL);
        WRONG(p->magazine_slots, 4, map_pins(w, CLIENT_ID), -EINVAL);
        WRONG(p->magazine_offset, 4095, map_pins(w, CLIENT_ID), -EINVAL);
        WRONG(p->counters_offset, w->pins.bytes - 4, map_pins(w, CLIENT_ID), -EINVAL);
}
