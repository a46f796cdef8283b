/*
 * Hash map from uint64_t to uint64_t, open addressing, linear probing, backward-shift deletion. 16
 * bytes a slot. Doubles at 3/4 full, never shrinks. Each later put moves a few slots to the larger
 * table, so no call takes as long as moving all. MAP_KEY_NONE can't be put, and is always absent.
 * Seeded, as peers choose the keys (mapped sets, sessions). Not thread-safe.
 */
#ifndef KVL_BASE_MAP_H
#define KVL_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"

#define MAP_KEY_NONE UINT64_MAX

struct map_slot {
        uint64_t key, value;
};

struct map {
        struct map_slot *slots;    /* owned; keys inverted, so that 0 is empty */
        size_t n_slots, n_used;    /* n_used: in both tables */
        struct map_slot *old;      /* owned; the smaller table; NULL: all has moved */
        size_t n_old_slots, n_old; /* n_old: in use there */
        size_t old_at;             /* slots before it have moved */
        struct hash_seed seed;
};

void map_init(struct map *m);
void map_deinit(struct map *m);

/* Makes room so that the next `n` new keys can't fail. Returns 0 or -ENOMEM (no key is lost). If n
 * exceeds the map's size, the call takes as long as moving the whole map. */
int map_reserve(struct map *m, size_t n);

/* Adds or replaces. Returns 0 or -ENOMEM (unchanged). */
int map_put(struct map *m, uint64_t key, uint64_t value);

/* Returns a borrowed pointer to the value, valid until the next put or remove; NULL: absent. */
uint64_t *map_find(const struct map *m, uint64_t key);

/* Returns whether the key was there. */
bool map_remove(struct map *m, uint64_t key);

/* Iterates in no order: start with *iter = 0; false at the end. No puts meanwhile; after a removal
 * start over. */
bool map_next(const struct map *m, size_t *iter, struct map_slot *ret_slot);

#endif
