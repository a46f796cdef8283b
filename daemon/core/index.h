/*
 * Key index of one namespace: key -> page. Open addressing, slots of {tag, page}, sized once for
 * the namespace's capacity (at most half full; untouched memory costs nothing), never grown: no
 * rehash ever stalls the loop. The keys themselves are in the pages. Loop thread only.
 */
#ifndef KVL_CORE_INDEX_H
#define KVL_CORE_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"

#define KEY_BYTES 32
#define PAGE_NONE UINT32_MAX

struct index_slot {
        uint32_t tag;      /* hash of the key: its low bits are the home slot */
        uint32_t page_one; /* page + 1; 0: empty */
};

struct index {
        struct index_slot *slots; /* owned */
        uint32_t n_slots;         /* power of two */
        uint32_t n_used;
        struct hash_seed seed;
};

/* Compares a page's key; called with what was given to index_find. */
typedef bool (*index_match_fn)(const void *pages, uint32_t page, const uint8_t key[KEY_BYTES]);

/* Slots are found by 32 bits of hash and stay at most half full. */
#define INDEX_MAX_PAGES (UINT32_C(1) << 30)

/* 0 or -ENOMEM. capacity: most pages it will ever hold at once, 1..INDEX_MAX_PAGES. */
int index_init(struct index *ix, uint32_t capacity);
void index_deinit(struct index *ix);

/* Page or PAGE_NONE. */
uint32_t index_find(const struct index *ix, const uint8_t key[KEY_BYTES], index_match_fn match,
        const void *pages);

/* The key is not in it, and it holds fewer than capacity. */
void index_insert(struct index *ix, const uint8_t key[KEY_BYTES], uint32_t page);

/* The pair is in it. */
void index_remove(struct index *ix, const uint8_t key[KEY_BYTES], uint32_t page);

/* Is this pair in it? For the checker: compares no key, so it also tells where a key was
 * overwritten. */
bool index_has(const struct index *ix, const uint8_t key[KEY_BYTES], uint32_t page);

#endif
