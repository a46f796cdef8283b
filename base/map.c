#include "base/map.h"
#include "base/macros.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define MAP_MIN_SLOTS 16 /* power of two; 256 bytes, not tuned */

void map_init(struct map *m)
{
        *m = (struct map){.seed = hash_seed_random()};
}

void map_deinit(struct map *m)
{
        free(m->slots);
        *m = (struct map){0};
}

static size_t slot_of(const struct map *m, uint64_t key)
{
        return hash_bytes(m->seed, &key, sizeof(key)) & (m->n_slots - 1);
}

/* The slot that has the key, or the empty one where it belongs. */
static struct map_slot *probe(const struct map *m, uint64_t key)
{
        size_t i = slot_of(m, key);

        while (m->slots[i].key != key && m->slots[i].key != MAP_KEY_NONE)
                i = (i + 1) & (m->n_slots - 1);
        return &m->slots[i];
}

static int map_resize(struct map *m, size_t n_slots)
{
        struct map bigger = {.n_slots = n_slots, .n_used = m->n_used, .seed = m->seed};

        bigger.slots = calloc(n_slots, sizeof(*bigger.slots));
        if (!bigger.slots)
                return -ENOMEM;
        for (size_t i = 0; i < n_slots; i++)
                bigger.slots[i].key = MAP_KEY_NONE;
        for (size_t i = 0; i < m->n_slots; i++)
                if (m->slots[i].key != MAP_KEY_NONE)
                        *probe(&bigger, m->slots[i].key) = m->slots[i];
        free(m->slots);
        *m = bigger;
        return 0;
}

int map_reserve(struct map *m, size_t n)
{
        size_t n_slots = MAX(m->n_slots, (size_t)MAP_MIN_SLOTS), want;

        if (__builtin_add_overflow(m->n_used, n, &want))
                return -ENOMEM;
        while (n_slots / 4 * 3 < want) {
                if (n_slots > SIZE_MAX / 2)
                        return -ENOMEM;
                n_slots *= 2;
        }
        return n_slots == m->n_slots ? 0 : map_resize(m, n_slots);
}

int map_put(struct map *m, uint64_t key, uint64_t value)
{
        uint64_t *found = map_find(m, key);
        int r;

        if (found) {
                *found = value;
                return 0;
        }
        r = map_reserve(m, 1);
        if (r < 0)
                return r;
        *probe(m, key) = (struct map_slot){key, value};
        m->n_used++;
        return 0;
}

uint64_t *map_find(const struct map *m, uint64_t key)
{
        struct map_slot *s;

        assert(key != MAP_KEY_NONE);
        if (m->n_used == 0)
                return NULL;
        s = probe(m, key);
        return s->key == key ? &s->value : NULL;
}

bool map_remove(struct map *m, uint64_t key)
{
        uint64_t *found = map_find(m, key);
        size_t mask = m->n_slots - 1, hole, i;

        if (!found)
                return false;
        hole = (size_t)(container_of(found, struct map_slot, value) - m->slots);
        /* Moves back every follower that the hole would cut off from its home slot. */
        for (i = (hole + 1) & mask; m->slots[i].key != MAP_KEY_NONE; i = (i + 1) & mask) {
                size_t home = slot_of(m, m->slots[i].key);

                if (((i - home) & mask) >= ((i - hole) & mask)) {
                        m->slots[hole] = m->slots[i];
                        hole = i;
                }
        }
        m->slots[hole].key = MAP_KEY_NONE;
        m->n_used--;
        return true;
}

/* Before *iter all are free: no follower of one that is removed comes to lie there. */
bool map_take(struct map *m, size_t *iter, size_t max, struct map_slot *ret_slot)
{
        for (; max > 0 && *iter < m->n_slots; max--, (*iter)++) {
                if (m->slots[*iter].key == MAP_KEY_NONE)
                        continue;
                *ret_slot = m->slots[*iter];
                return map_remove(m, ret_slot->key);
        }
        return false;
}

bool map_next(const struct map *m, size_t *iter, struct map_slot *ret_slot)
{
        for (; *iter < m->n_slots; (*iter)++) {
                if (m->slots[*iter].key == MAP_KEY_NONE)
                        continue;
                *ret_slot = m->slots[(*iter)++];
                return true;
        }
        return false;
}
