#include "base/map.h"
#include "base/macros.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define MAP_MIN_SLOTS 16 /* power of two; 256 bytes, not tuned */

/* Slots of the smaller table that each put moves. The smaller table of n slots has 3/4 n in use
 * when the larger one begins, which is as full after 3/4 n more keys. So at least 7/3 slots must
 * move with each. Not tuned. */
#define MAP_MOVES 4

void map_init(struct map *m)
{
        *m = (struct map){.seed = hash_seed_random()};
}

void map_deinit(struct map *m)
{
        free(m->slots);
        free(m->old);
        *m = (struct map){0};
}

/* ---- one table ------------------------------------------------------------------------------- */

struct table {
        struct map_slot *slots;
        size_t mask;
        struct hash_seed seed;
};

static struct table table_of(const struct map *m)
{
        return (struct table){m->slots, m->n_slots - 1, m->seed};
}

static struct table old_of(const struct map *m)
{
        return (struct table){m->old, m->n_old_slots - 1, m->seed};
}

static size_t home_of(struct table t, const struct map_slot *s)
{
        uint64_t key = ~s->key;

        return hash_bytes(t.seed, &key, sizeof(key)) & t.mask;
}

/* Returns the slot of the key, or the empty one where it belongs. */
static struct map_slot *probe(struct table t, uint64_t key)
{
        size_t i = hash_bytes(t.seed, &key, sizeof(key)) & t.mask;

        while (t.slots[i].key != ~key && t.slots[i].key != 0)
                i = (i + 1) & t.mask;
        return t.slots + i;
}

/* Moves back every follower that the hole would cut off from its home slot. */
static void take_out(struct table t, size_t hole)
{
        for (size_t i = (hole + 1) & t.mask; t.slots[i].key != 0; i = (i + 1) & t.mask) {
                size_t home = home_of(t, &t.slots[i]);

                if (((i - home) & t.mask) >= ((i - hole) & t.mask)) {
                        t.slots[hole] = t.slots[i];
                        hole = i;
                }
        }
        t.slots[hole].key = 0;
}

/* ---- both ------------------------------------------------------------------------------------ */

/* Looks at n slots of the smaller table, and moves their keys. All slots before old_at are free, so
 * no follower of a removed key moves there. */
static void move_some(struct map *m, size_t n)
{
        for (; n > 0 && m->n_old > 0; n--) {
                struct map_slot s = m->old[m->old_at];

                if (s.key == 0) {
                        m->old_at++;
                        continue;
                }
                take_out(old_of(m), m->old_at);
                m->n_old--;
                *probe(table_of(m), ~s.key) = s;
        }
        if (m->n_old > 0)
                return;
        free(m->old);
        m->old = NULL;
        m->n_old_slots = m->old_at = 0;
}

static int map_resize(struct map *m, size_t n_slots)
{
        struct map_slot *slots = calloc(n_slots, sizeof(*slots));

        if (!slots)
                return -ENOMEM;
        move_some(m, SIZE_MAX); /* usually all has moved, except before a very large reservation */
        m->old = m->slots;
        m->n_old_slots = m->n_slots;
        m->n_old = m->n_used;
        m->slots = slots;
        m->n_slots = n_slots;
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

        assert(key != MAP_KEY_NONE);
        if (found) {
                *found = value;
                return 0;
        }
        r = map_reserve(m, 1);
        if (r < 0)
                return r;
        move_some(m, MAP_MOVES);
        *probe(table_of(m), key) = (struct map_slot){~key, value};
        m->n_used++;
        return 0;
}

/* Returns NULL if the key isn't in the table. */
static struct map_slot *look_up(struct table t, uint64_t key)
{
        struct map_slot *s = t.slots ? probe(t, key) : NULL;

        return s && s->key != 0 ? s : NULL;
}

uint64_t *map_find(const struct map *m, uint64_t key)
{
        struct map_slot *s;

        if (m->n_used == 0 || key == MAP_KEY_NONE)
                return NULL;
        s = look_up(table_of(m), key);
        if (!s)
                s = look_up(old_of(m), key);
        return s ? &s->value : NULL;
}

bool map_remove(struct map *m, uint64_t key)
{
        struct map_slot *s = m->n_used > 0 ? look_up(table_of(m), key) : NULL;

        if (s) {
                take_out(table_of(m), (size_t)(s - m->slots));
                m->n_used--;
                return true;
        }
        s = m->n_old > 0 ? look_up(old_of(m), key) : NULL;
        if (!s)
                return false;
        take_out(old_of(m), (size_t)(s - m->old));
        m->n_old--;
        m->n_used--;
        return true;
}

/* The smaller table's slots come first. */
static struct map_slot *slot_at(const struct map *m, size_t i)
{
        return i < m->n_old_slots ? &m->old[i] : &m->slots[i - m->n_old_slots];
}

/* All slots before *iter are free, so no follower of a removed key moves there. */
bool map_next(const struct map *m, size_t *iter, struct map_slot *ret_slot)
{
        for (; *iter < m->n_old_slots + m->n_slots; (*iter)++) {
                const struct map_slot *s = slot_at(m, *iter);

                if (s->key == 0)
                        continue;
                *ret_slot = (struct map_slot){~s->key, s->value};
                (*iter)++;
                return true;
        }
        return false;
}
