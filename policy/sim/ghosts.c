#include "policy/sim/ghosts.h"

#include <assert.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/macros.h"

#define UNUSED GHOST_QUEUES
#define FEWEST UINT64_C(64) /* entries at first; not tuned */

void ghosts_init(struct ghosts *g, uint32_t max)
{
        assert(max > 0);

        *g = (struct ghosts){.max = max};
        map_init(&g->index);
}

void ghosts_deinit(struct ghosts *g)
{
        map_deinit(&g->index);
        array_free(g->entries, g->n_entries, sizeof(*g->entries));
        array_free(g->links, g->n_links, sizeof(*g->links));
}

/* The map takes any key but one, whose ghost is mistaken for that of 0. */
static uint64_t key_of(uint64_t id)
{
        return id == MAP_KEY_NONE ? 0 : id;
}

static void put_ghost(struct ghosts *g, uint32_t entry, uint32_t queue)
{
        g->entries[entry].queue = queue;
        queue_add_newest(&g->queues[queue], g->links, entry);
}

static void forget_ghost(struct ghosts *g, uint32_t entry)
{
        struct ghost *e = &g->entries[entry];

        map_remove(&g->index, key_of(e->id));
        queue_unlink(&g->queues[e->queue], g->links, entry);
        put_ghost(g, entry, UNUSED);
}

/* Room for more entries, in the map too, if there may be any and there is memory. All are used. */
static void grow_entries(struct ghosts *g)
{
        uint32_t n = g->n_entries;
        uint32_t wanted = (uint32_t)MIN(MAX((uint64_t)n * 2, FEWEST), (uint64_t)g->max);
        void *entries = g->entries, *links = g->links;
        int r;

        if (n >= g->max || map_reserve(&g->index, wanted - n) < 0)
                return;
        r = array_reserve(&links, &g->n_links, wanted, g->max, sizeof(*g->links));
        g->links = links;
        if (r == 0)
                r = array_reserve(&entries, &g->n_entries, wanted, g->n_links, sizeof(*g->entries));
        g->entries = entries;
        for (; n < g->n_entries; n++)
                put_ghost(g, n, UNUSED);
}

void ghosts_drop_oldest(struct ghosts *g, unsigned queue)
{
        uint32_t entry = queue_oldest(&g->queues[queue]);

        if (entry != NODE_NONE)
                forget_ghost(g, entry);
}

/* NODE_NONE: no memory even for the first. */
static uint32_t take_unused(struct ghosts *g, unsigned queue)
{
        uint32_t entry;

        if (g->queues[UNUSED].n == 0)
                grow_entries(g);
        if (g->queues[UNUSED].n == 0)
                ghosts_drop_oldest(g, ghosts_count(g, queue) ? queue : 1 - queue);
        entry = queue_oldest(&g->queues[UNUSED]);
        if (entry != NODE_NONE)
                queue_unlink(&g->queues[UNUSED], g->links, entry);
        return entry;
}

void ghosts_add(struct ghosts *g, unsigned queue, uint64_t id, uint64_t value)
{
        uint32_t entry;
        int r;

        ghosts_take(g, id, NULL);
        entry = take_unused(g, queue);
        if (entry == NODE_NONE)
                return;
        g->entries[entry] = (struct ghost){.id = id, .value = value};
        put_ghost(g, entry, queue);
        r = map_put(&g->index, key_of(id), entry);
        assert(r == 0); /* as many as entries */
}

bool ghosts_take(struct ghosts *g, uint64_t id, struct ghost *ret)
{
        const uint64_t *entry = map_find(&g->index, key_of(id));

        if (!entry)
                return false;
        if (ret)
                *ret = g->entries[*entry];
        forget_ghost(g, (uint32_t)*entry);
        return true;
}

uint64_t ghosts_memory_bytes(const struct ghosts *g)
{
        return (uint64_t)g->n_entries * sizeof(*g->entries) +
               (uint64_t)g->n_links * sizeof(*g->links) +
               g->index.n_slots * sizeof(*g->index.slots);
}
