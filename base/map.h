/*
 * Hash map from uint64_t to uint64_t, open addressing, linear probing, backward-shift deletion.
 * Grows by doubling at 3/4 full, shrinks never; 16 bytes a slot. What it has then moves to the
 * larger table a few slots at a time, with each key that is put after that: no call takes as long
 * as all of it. Any key but UINT64_MAX.
 * For what one peer holds (mapped sets, sessions), hence seeded. Not thread-safe.
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
        struct map_slot *slots;    /* owned; keys inverted, so that 0 is none */
        size_t n_slots, n_used;    /* n_used: in both tables */
        struct map_slot *old;      /* owned; the smaller table; NULL: all of it has moved */
        size_t n_old_slots, n_old; /* n_old: in use there */
        size_t old_at;             /* those before it have moved */
        struct hash_seed seed;
};

void map_init(struct map *m);
void map_deinit(struct map *m);

/* Makes room so that the next `n` new keys can't fail. 0 or -ENOMEM (nothing it has is lost). More
 * than the map has already takes as long as all that is there. */
int map_reserve(struct map *m, size_t n);

/* Adds or replaces. 0 or -ENOMEM (map unchanged). */
int map_put(struct map *m, uint64_t key, uint64_t value);

/* Borrowed pointer to the value, valid until the next put or remove; NULL where absent. */
uint64_t *map_find(const struct map *m, uint64_t key);

/* True where the key was there. */
bool map_remove(struct map *m, uint64_t key);

/*
 * Iterates in no order: start with *iter = 0; false at the end. Nothing may be put meanwhile;
 * removing is allowed only by starting over.
 */
bool map_next(const struct map *m, size_t *iter, struct map_slot *ret_slot);

#endif
