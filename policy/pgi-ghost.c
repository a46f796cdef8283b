#include "policy/pgi-ghost.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/macros.h"

/* The first size: 8 KiB. */
#define FIRST_SETS UINT32_C(64)

/* Ids are bits of a hash of a key, which clients choose. Entries only affect how well pages are
 * chosen, so there is no seed. 0 marks free entries. */
uint32_t pgi_ghost_tag(uint64_t id)
{
        uint32_t tag = (uint32_t)(id * UINT64_C(0x9e3779b97f4a7c15) >> 32);

        return tag ? tag : 1;
}

static struct pgi_ghost *set_in(const struct pgi_ghost_sets *sets, uint32_t tag, uint32_t ways)
{
        return &sets->entries[((uint64_t)tag * sets->n_sets >> 32) * ways];
}

/* Sets are in the order of tags, so the first ones are those that moved. */
static struct pgi_ghost *set_of(const struct pgi_ghosts *g, uint32_t tag)
{
        struct pgi_ghost *set = set_in(&g->now, tag, g->ways);

        if (set >= &g->now.entries[(size_t)g->n_moved * g->ways])
                return set;
        return set_in(&g->next, tag, g->ways);
}

static int make_sets(struct pgi_ghost_sets *sets, uint32_t n_sets, uint32_t ways)
{
        struct pgi_ghost *entries = calloc((size_t)n_sets * ways, sizeof(*entries));

        if (!entries)
                return -ENOMEM;
        *sets = (struct pgi_ghost_sets){.entries = entries, .n_sets = n_sets};
        return 0;
}

int pgi_ghosts_init(struct pgi_ghosts *g, uint32_t limit)
{
        assert(limit > 0);

        *g = (struct pgi_ghosts){.limit = limit, .ways = MIN(limit, PGI_GHOST_WAYS)};
        return make_sets(&g->now, MIN(limit / g->ways, FIRST_SETS), g->ways);
}

void pgi_ghosts_deinit(struct pgi_ghosts *g)
{
        free(g->now.entries);
        free(g->next.entries);
        *g = (struct pgi_ghosts){0};
}

void pgi_ghosts_expect(const struct pgi_ghosts *g, uint32_t tag)
{
        const struct pgi_ghost *set = set_of(g, tag);

        __builtin_prefetch(&set[0], 1);
        __builtin_prefetch(&set[g->ways / 2], 1);
        __builtin_prefetch(&set[g->ways - 1], 1);
}

bool pgi_ghosts_take(struct pgi_ghosts *g, uint32_t tag, struct pgi_ghost *ret_ghost)
{
        struct pgi_ghost *set = set_of(g, tag);

        for (uint32_t i = 0; i < g->ways; i++)
                if (set[i].tag == tag) {
                        *ret_ghost = set[i];
                        set[i] = (struct pgi_ghost){0};
                        g->n--;
                        return true;
                }
        return false;
}

/* The entry of the same tag, a free one, or the one used longest ago; in this order. */
static struct pgi_ghost *place_for(struct pgi_ghosts *g, uint32_t tag)
{
        struct pgi_ghost *set = set_of(g, tag), *place = set;

        for (uint32_t i = 0; i < g->ways; i++) {
                if (set[i].tag == tag)
                        return &set[i];
                if (place->tag != 0 && (set[i].tag == 0 || set[i].touched < place->touched))
                        place = &set[i];
        }
        return place;
}

bool pgi_ghosts_put(
        struct pgi_ghosts *g, const struct pgi_ghost *ghost, struct pgi_ghost *ret_forgotten)
{
        struct pgi_ghost *place = place_for(g, ghost->tag), old = *place;

        *place = *ghost;
        if (old.tag == 0) {
                g->n++;
                return false;
        }
        *ret_forgotten = old;
        return true;
}

static bool may_grow(const struct pgi_ghosts *g)
{
        return g->now.n_sets < g->limit / g->ways && g->n > pgi_ghosts_size(g) / 2;
}

static void move_set(struct pgi_ghosts *g,
        void (*forgotten)(void *data, const struct pgi_ghost *ghost), void *data)
{
        struct pgi_ghost *set = &g->now.entries[(size_t)g->n_moved++ * g->ways];
        struct pgi_ghost pushed_out;

        for (uint32_t i = 0; i < g->ways; i++) {
                if (set[i].tag == 0)
                        continue;
                g->n--;
                if (pgi_ghosts_put(g, &set[i], &pushed_out))
                        forgotten(data, &pushed_out);
        }
}

bool pgi_ghosts_grow(struct pgi_ghosts *g, uint32_t n_sets,
        void (*forgotten)(void *data, const struct pgi_ghost *ghost), void *data)
{
        uint32_t twice = MIN(g->limit / g->ways, g->now.n_sets * 2);

        if (!g->next.entries && (!may_grow(g) || make_sets(&g->next, twice, g->ways) < 0))
                return false;
        while (n_sets-- > 0 && g->n_moved < g->now.n_sets)
                move_set(g, forgotten, data);
        if (g->n_moved < g->now.n_sets)
                return true;
        free(g->now.entries);
        g->now = g->next;
        g->next = (struct pgi_ghost_sets){0};
        g->n_moved = 0;
        return false;
}

uint64_t pgi_ghosts_bytes(const struct pgi_ghosts *g)
{
        return ((uint64_t)g->now.n_sets + g->next.n_sets) * g->ways * sizeof(struct pgi_ghost);
}

uint64_t pgi_ghosts_limit_bytes(uint32_t limit)
{
        uint64_t ways = MIN(limit, PGI_GHOST_WAYS), most = limit / ways;
        uint64_t n_sets = MIN(most, (uint64_t)FIRST_SETS), before = 0;

        while (n_sets < most) {
                before = n_sets;
                n_sets = MIN(most, n_sets * 2);
        }
        return (n_sets + before) * ways * sizeof(struct pgi_ghost);
}

void pgi_ghosts_each(const struct pgi_ghosts *g,
        void (*visit)(void *data, const struct pgi_ghost *ghost), void *data)
{
        for (uint64_t i = (uint64_t)g->n_moved * g->ways; i < pgi_ghosts_size(g); i++)
                if (g->now.entries[i].tag != 0)
                        visit(data, &g->now.entries[i]);
        for (uint64_t i = 0; i < (uint64_t)g->next.n_sets * g->ways; i++)
                if (g->next.entries[i].tag != 0)
                        visit(data, &g->next.entries[i]);
}

struct census {
        const struct pgi_ghosts *ghosts;
        uint32_t n;
        bool astray;
};

static void check_ghost(void *data, const struct pgi_ghost *ghost)
{
        struct census *c = data;
        const struct pgi_ghost *set = set_of(c->ghosts, ghost->tag);

        c->n++;
        c->astray |= ghost < set || ghost >= set + c->ghosts->ways;
}

const char *pgi_ghosts_check(const struct pgi_ghosts *g)
{
        struct census c = {.ghosts = g};

        if (pgi_ghosts_size(g) > g->limit || g->next.n_sets > g->limit / g->ways)
                return "there is room for more ghosts than the limit";
        pgi_ghosts_each(g, check_ghost, &c);
        if (c.astray)
                return "a ghost is in another's set";
        return c.n == g->n ? NULL : "the number of ghosts is wrong";
}
