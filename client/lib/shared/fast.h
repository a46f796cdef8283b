/*
 * Client operations on pages in shared memory, without a request to the daemon (proto/shm.h): finds
 * and pins pages, releases them, takes pages granted ahead. No system calls, no locks, thread-safe.
 * The reader's half of the protocol with the evictor (docs/develop/ARCHITECTURE.md, "Readers and
 * the evictor"):
 *
 *   add 1 to the page's counter; full fence; look at its line:
 *   SEALED, the key, the epoch: it is ours.  else: take the 1 back, not found.  Never a loop.
 */
#ifndef KVL_LIB_FAST_H
#define KVL_LIB_FAST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "client/lib/shared/shm.h"

struct fast {
        struct shm_map index_map, pins_map; /* owned */
        const struct shm_index *index;      /* NULL: the namespace isn't shared */
        const struct shm_bucket *buckets;   /* in the index segment, like `lines` */
        const struct shm_line *lines;
        struct shm_pins *pins;
        _Atomic uint32_t *magazine; /* in the pin segment, like `counters` */
        _Atomic uint32_t *counters;
        struct hash_seed seed;
        uint32_t n_buckets, capacity_pages;
        uint64_t version_epoch;      /* the namespace's when it was opened */
        atomic_bool is_void;         /* the memory is assumed lost with the daemon */
        _Atomic uint32_t cursor;     /* magazine slot to look at next: a hint */
        _Atomic uint64_t n_put_seen; /* the magazine's n_put that `cursor` belongs to */
};

struct fast_hit {
        uint32_t n_pages; /* found and pinned */
        uint64_t n_tokens;
        uint64_t generation; /* of the last page */
};

/* Takes both segments, which are mapped and valid. version_epoch: of NsShareReply. */
void fast_init(struct fast *f, struct shm_map *index, struct shm_map *pins, uint64_t version_epoch);

/* Unmaps. Idempotent. */
void fast_deinit(struct fast *f);

static inline bool fast_is_open(const struct fast *f)
{
        return f->index;
}

/* The namespace has another version of the weights now, or its memory is lost: KVL_STALE. */
static inline bool fast_is_stale(const struct fast *f)
{
        return atomic_load_explicit(&f->is_void, memory_order_relaxed) ||
               atomic_load_explicit(&f->index->version_epoch, memory_order_acquire) !=
                       f->version_epoch;
}

/* Finds the longest run of cached pages for n_keys keys of 32 bytes, and pins each once. ret_pages:
 * n_keys entries. */
void fast_lookup(struct fast *f, const uint8_t *keys, uint32_t n_keys, uint32_t *ret_pages,
        struct fast_hit *ret_hit);

enum fast_key {
        FAST_MISS, /* or its page is changing */
        FAST_CACHED,
        FAST_PENDING, /* announced */
};

/* A word that has this value while a key is PENDING: for FUTEX_WAIT, shared. Read-only. */
struct fast_word {
        const uint32_t *address;
        uint32_t value;
};

/* Returns a key's state, found as in a lookup. A cached page is pinned only while it is looked at.
 * PENDING: *ret_word is set. A hint, as nothing stays pinned. */
enum fast_key fast_look(struct fast *f, const uint8_t *key, struct fast_word *ret_word);

/* Finds the longest run of cached pages for n_keys keys of 32 bytes, but pins and writes nothing: a
 * hint. ret_pages: n_keys entries. Returns how many. */
uint32_t fast_peek(const struct fast *f, const uint8_t *keys, uint32_t n_keys, uint32_t *ret_pages);

/* The generation of a pinned page. */
static inline uint64_t fast_generation(const struct fast *f, uint32_t page)
{
        return atomic_load_explicit(&f->lines[page].state, memory_order_relaxed) >> 8;
}

/* Counts a lookup, for the daemon's figures. Two concurrent threads may count one. */
static inline void fast_count(struct fast *f, uint32_t n_keys, uint32_t n_hits)
{
        _Atomic uint64_t *counters[] = {&f->pins->n_lookups, &f->pins->n_keys, &f->pins->n_hits};
        const uint32_t more[] = {1, n_keys, n_hits};

        for (unsigned i = 0; i < 3; i++)
                atomic_store_explicit(counters[i],
                        atomic_load_explicit(counters[i], memory_order_relaxed) + more[i],
                        memory_order_relaxed);
}

/* Pages that a lease would get now, by the daemon's last count. Returns false if it has none. */
bool fast_leasable(const struct fast *f, uint32_t *ret_n_pages);

/* Whether the page is certainly published. A granted page isn't. */
static inline bool fast_is_sealed(const struct fast *f, uint32_t page)
{
        return (uint8_t)atomic_load_explicit(&f->lines[page].state, memory_order_relaxed) ==
               PAGE_SEALED;
}

/* Pins the page if it has this key, is SEALED and can be found. Returns whether it did. */
bool fast_pin_key(struct fast *f, uint32_t page, const uint8_t *key);

/* Adds a pin to each. The caller makes sure that they are readable. */
void fast_pin(struct fast *f, const uint32_t *pages, uint32_t n_pages);

/*
 * Releases one pin of each. Pages are below the capacity. Returns 0; -EINVAL: *ret_page isn't
 * pinned, and nothing was released.
 *
 * Exception: if it is named more often than it is pinned, or another thread released it meanwhile,
 * the pages before it are released. They stay so, as released pages may already be reused.
 */
int fast_release(struct fast *f, const uint32_t *pages, uint32_t n_pages, uint32_t *ret_page);

/* Adds a pin to each page of which this client has one, which keeps the page meanwhile. Pages are
 * below the capacity. Returns 0; -EINVAL: *ret_page isn't pinned (or another thread released it
 * meanwhile); -EOVERFLOW: it is pinned 2^31 times. After an error none has another pin. */
int fast_pin_again(struct fast *f, const uint32_t *pages, uint32_t n_pages, uint32_t *ret_page);

/* Whether this connection has pinned the page through this segment. A hint if other threads pin and
 * release. */
static inline bool fast_is_pinned(const struct fast *f, uint32_t page)
{
        return atomic_load_explicit(&f->counters[page], memory_order_relaxed) > 0;
}

/* Pages were granted; earlier readers have released them. The daemon, another process, made sure of
 * that, which a thread sanitizer can't see. Only for the sanitizer this reads the counters that
 * were released. */
static inline void fast_note_granted(const struct fast *f, const uint32_t *pages, uint32_t n_pages)
{
#if defined(__SANITIZE_THREAD__)
        for (uint32_t i = 0; i < n_pages; i++)
                (void)atomic_load_explicit(&f->counters[pages[i]], memory_order_acquire);
#endif
}

/* Pages without pins are given back: for a thread sanitizer, as above. */
static inline void fast_note_freed(const struct fast *f, const uint32_t *pages, uint32_t n_pages)
{
#if defined(__SANITIZE_THREAD__)
        for (uint32_t i = 0; i < n_pages; i++)
                if (pages[i] < f->capacity_pages)
                        (void)atomic_fetch_add_explicit(
                                &f->counters[pages[i]], 0, memory_order_release);
#endif
}

/* Claims up to n_pages from the magazine. Returns how many. */
uint32_t fast_claim(struct fast *f, uint32_t n_pages, uint32_t *ret_pages);

/* Whether the caller should submit a REFILL now: few pages are left, or `came_up_short`. */
bool fast_take_refill(struct fast *f, bool came_up_short);

/* Undoes fast_take_refill(): the REFILL couldn't be submitted. */
void fast_return_refill(struct fast *f);

#endif
