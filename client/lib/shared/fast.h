/*
 * What a client does with pages in shared memory, without asking anybody (proto/shm.h): finds and
 * pins them, lets them go, takes pages granted ahead. No system call, no lock; all functions may be
 * called from any threads at the same time. The reader's half of the protocol with the evictor
 * (docs/ARCHITECTURE.md, "Readers and the evictor"):
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
        const struct shm_bucket *buckets;   /* in the index segment, as the lines */
        const struct shm_line *lines;
        struct shm_pins *pins;
        _Atomic uint32_t *magazine; /* in the pin segment, as the counters */
        _Atomic uint32_t *counters;
        struct hash_seed seed;
        uint32_t n_buckets, capacity_pages;
        uint64_t version_epoch;      /* of the namespace when it was opened */
        atomic_bool is_void;         /* the memory went with the daemon, as far as is known */
        _Atomic uint32_t cursor;     /* magazine slot to look at next: a hint */
        _Atomic uint64_t n_put_seen; /* of the magazine, with the cursor */
};

struct fast_hit {
        uint32_t n_pages; /* found and pinned */
        uint64_t n_tokens;
        uint64_t generation; /* of the last page */
};

/* Both are mapped and valid; taken. version_epoch: of NsShareReply. */
void fast_init(struct fast *f, struct shm_map *index, struct shm_map *pins, uint64_t version_epoch);

/* Unmaps. Safe where there is nothing, and to repeat. */
void fast_deinit(struct fast *f);

static inline bool fast_is_open(const struct fast *f)
{
        return f->index;
}

/* Another version of the weights has the namespace now, or its memory isn't there: KVL_STALE. */
static inline bool fast_is_stale(const struct fast *f)
{
        return atomic_load_explicit(&f->is_void, memory_order_relaxed) ||
               atomic_load_explicit(&f->index->version_epoch, memory_order_acquire) !=
                       f->version_epoch;
}

/* The longest run of cached pages for n_keys keys of 32 bytes, each pinned once. ret_pages: room
 * for n_keys. */
void fast_lookup(struct fast *f, const uint8_t *keys, uint32_t n_keys, uint32_t *ret_pages,
        struct fast_hit *ret_hit);

enum fast_key {
        FAST_MISS, /* or it changes just now */
        FAST_CACHED,
        FAST_PENDING, /* announced */
};

/* A word that has this value while a key is PENDING: to FUTEX_WAIT on, shared. Read-only. */
struct fast_word {
        const uint32_t *address;
        uint32_t value;
};

/*
 * What a key is, found as in a lookup, without asking for its page: where that is cached it is
 * pinned for the moment of looking. PENDING: *ret_word is set. A hint, as all that isn't pinned.
 */
enum fast_key fast_look(struct fast *f, const uint8_t *key, struct fast_word *ret_word);

/*
 * The longest run of cached pages for n_keys keys of 32 bytes, as a lookup finds it, but nothing is
 * pinned or written: a hint. ret_pages: room for n_keys. Returns how many.
 */
uint32_t fast_peek(const struct fast *f, const uint8_t *keys, uint32_t n_keys, uint32_t *ret_pages);

/* The generation of a page that is pinned. */
static inline uint64_t fast_generation(const struct fast *f, uint32_t page)
{
        return atomic_load_explicit(&f->lines[page].state, memory_order_relaxed) >> 8;
}

/* A lookup more, for the daemon's figures. Two threads at once may count one. */
static inline void fast_count(struct fast *f, uint32_t n_keys, uint32_t n_hits)
{
        _Atomic uint64_t *counters[] = {&f->pins->n_lookups, &f->pins->n_keys, &f->pins->n_hits};
        const uint32_t more[] = {1, n_keys, n_hits};

        for (unsigned i = 0; i < 3; i++)
                atomic_store_explicit(counters[i],
                        atomic_load_explicit(counters[i], memory_order_relaxed) + more[i],
                        memory_order_relaxed);
}

/* Pages that a lease would get now, as far as the daemon has looked. False: it hasn't said. */
bool fast_leasable(const struct fast *f, uint32_t *ret_n_pages);

/* Is it published, for sure? A page that is granted isn't. */
static inline bool fast_is_sealed(const struct fast *f, uint32_t page)
{
        return (uint8_t)atomic_load_explicit(&f->lines[page].state, memory_order_relaxed) ==
               PAGE_SEALED;
}

/* Pins the page where it has this key, is SEALED and can be found. False: it isn't pinned. */
bool fast_pin_key(struct fast *f, uint32_t page, const uint8_t *key);

/* One pin more of each; whether they are readable is the caller's business. */
void fast_pin(struct fast *f, const uint32_t *pages, uint32_t n_pages);

/*
 * One pin less of each. Pages are below the capacity. 0; -EINVAL: *ret_page isn't pinned, and none
 * is let go; or it is named more often than it is pinned (or let go by another thread meanwhile),
 * and those before it are: what was let go for a moment may be somebody else's already.
 */
int fast_release(struct fast *f, const uint32_t *pages, uint32_t n_pages, uint32_t *ret_page);

/*
 * One pin more of each, where this client has one: that keeps the page while the counter goes up.
 * Pages are below the capacity. 0; -EINVAL: *ret_page isn't pinned (or was let go by another thread
 * meanwhile), -EOVERFLOW: it is pinned 2^31 times; then none has another pin.
 */
int fast_pin_again(struct fast *f, const uint32_t *pages, uint32_t n_pages, uint32_t *ret_page);

/* By this connection, through this segment. A hint, where other threads pin and let go. */
static inline bool fast_is_pinned(const struct fast *f, uint32_t page)
{
        return atomic_load_explicit(&f->counters[page], memory_order_relaxed) > 0;
}

/*
 * Pages were granted: who read them before had let them go by then. The daemon saw to that, in
 * another process, which a thread sanitizer doesn't see: for it alone this looks at the counters
 * that were let go.
 */
static inline void fast_note_granted(const struct fast *f, const uint32_t *pages, uint32_t n_pages)
{
#if defined(__SANITIZE_THREAD__)
        for (uint32_t i = 0; i < n_pages; i++)
                (void)atomic_load_explicit(&f->counters[pages[i]], memory_order_acquire);
#endif
}

/* Pages are given back that nobody pinned: for a thread sanitizer, as above. */
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

/* Whether a REFILL should be submitted now, by the caller: few are left, or `came_up_short`. */
bool fast_take_refill(struct fast *f, bool came_up_short);

/* Takes that back: it couldn't be submitted. */
void fast_return_refill(struct fast *f);

#endif
