/*
 * Evicted pages by id, with PGI's data about them. From these PGI learns the age at which pages are
 * asked for again, and recognizes texts that return. Bounded. PURE. Not thread-safe.
 *
 * A hash table of sets of PGI_GHOST_WAYS entries without links, 16 bytes an entry. A full set
 * forgets its least recently used entry. Of an id 32 bits of a hash are kept: among a million
 * ghosts one page in 4,000 is mistaken for another, which only affects that page's part in the
 * statistics.
 */
#ifndef KVL_POLICY_PGI_GHOST_H
#define KVL_POLICY_PGI_GHOST_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#define PGI_GHOST_WAYS UINT32_C(8)

/* Bound of a page's uses: more have no effect (pgi_shared_class()). */
#define PGI_ACCESS_BITS  14
#define PGI_MAX_ACCESSES ((UINT32_C(1) << PGI_ACCESS_BITS) - 1)

struct pgi_ghost {
        uint32_t tag;     /* of the id; 0: free */
        uint32_t touched; /* ticks */
        uint32_t stamp;   /* of pgi-lru.h */
        uint32_t accesses : PGI_ACCESS_BITS;
        uint32_t class : 8;
        uint32_t turn : 3;
        uint32_t kid : 5;
};
static_assert(
        sizeof(struct pgi_ghost) == 16, "docs/measure/PERFORMANCE.md has the bytes of a ghost");

/* n_sets sets of the same number of entries each. */
struct pgi_ghost_sets {
        struct pgi_ghost *entries; /* owned */
        uint32_t n_sets;
};

struct pgi_ghosts {
        struct pgi_ghost_sets now;
        struct pgi_ghost_sets next; /* while it grows: twice as many */
        uint32_t n_moved;           /* sets of now that have moved to next, from the first on */
        uint32_t ways;
        uint32_t n;     /* in use */
        uint32_t limit; /* entries, at most */
};

/* limit > 0. 0 or -ENOMEM. Then pgi_ghosts_deinit(), safe on a zeroed struct. */
int pgi_ghosts_init(struct pgi_ghosts *g, uint32_t limit);
void pgi_ghosts_deinit(struct pgi_ghosts *g);

/* The tag that stands for an id. Never 0. */
uint32_t pgi_ghost_tag(uint64_t id);

/* Prefetches the memory of a tag's entry. */
void pgi_ghosts_expect(const struct pgi_ghosts *g, uint32_t tag);

/* Removes the entry of a tag. Returns true with *ret_ghost if there was one. */
bool pgi_ghosts_take(struct pgi_ghosts *g, uint32_t tag, struct pgi_ghost *ret_ghost);

/* Adds an entry. Returns true if *ret_forgotten made room for it (or had the same tag). */
bool pgi_ghosts_put(
        struct pgi_ghosts *g, const struct pgi_ghost *ghost, struct pgi_ghost *ret_forgotten);

/*
 * Doubles the sets if more than half of the entries are in use and the limit allows; up to n_sets
 * of them a call, so that none takes long. Without memory they don't grow, and more is forgotten.
 * Entries without room (sets fill unevenly) are given to forgotten(). Returns true while it
 * continues.
 */
bool pgi_ghosts_grow(struct pgi_ghosts *g, uint32_t n_sets,
        void (*forgotten)(void *data, const struct pgi_ghost *ghost), void *data);

/* Number of entries, without growth in progress. */
static inline uint32_t pgi_ghosts_size(const struct pgi_ghosts *g)
{
        return g->now.n_sets * g->ways;
}

/* The i-th entry, 0..pgi_ghosts_size()-1, free ones included (tag 0). Not while it grows. */
static inline const struct pgi_ghost *pgi_ghosts_at(const struct pgi_ghosts *g, uint32_t i)
{
        return &g->now.entries[i];
}

uint64_t pgi_ghosts_bytes(const struct pgi_ghosts *g);

/* Upper bound of pgi_ghosts_bytes() with this limit: during the last growth the old sets exist as
 * well. */
uint64_t pgi_ghosts_limit_bytes(uint32_t limit);

/* Visits all, also while it grows. */
void pgi_ghosts_each(const struct pgi_ghosts *g,
        void (*visit)(void *data, const struct pgi_ghost *ghost), void *data);

/* Debug: NULL, or a static sentence naming an inconsistency. */
const char *pgi_ghosts_check(const struct pgi_ghosts *g);

#endif
