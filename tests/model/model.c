#include "tests/model/model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/core/detail.h"
#include "daemon/core/tenant.h"

/* Page and set sizes worked out by hand from BUDGET, EXTENT and GRANULARITY. */
const struct shape shapes[N_NS] = {
        {128, 1, 8, 16, 1024, false},
        {128, 3, 2, 21, 768, true},
        {192, 1, 4, 21, 768, false},
};

struct fake_device device;
struct store store;
struct tenant *tenants[N_TENANTS];
struct model_ns spaces[N_TENANTS][N_NS];
struct model_member members[N_MEMBERS];
int last_group;
uint64_t limits[N_TENANTS];
uint64_t now_nsec;
unsigned n_evicted, n_refused;
uint64_t seed, rng_state;
unsigned long step;
const char *op = "start";

void fail(const char *condition, int line, const char *format, ...)
{
        va_list ap;

        fprintf(stderr,
                "model_pages: --seed %llu, step %lu, %s: line %d: %s: ", (unsigned long long)seed,
                step, op, line, condition);
        va_start(ap, format);
        vfprintf(stderr, format, ap);
        va_end(ap);
        fputc('\n', stderr);
        exit(1);
}

/* splitmix64, in the public domain */
uint32_t rnd(uint32_t n)
{
        uint64_t z = rng_state += 0x9e3779b97f4a7c15;

        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return (uint32_t)((z ^ (z >> 31)) % n);
}

void key_bytes(int key, uint8_t out[KEY_BYTES])
{
        for (int i = 0; i < KEY_BYTES; i++)
                out[i] = (uint8_t)(key * 37 + i * (key + 11));
        out[0] = (uint8_t)key;
}

/* ---- the model ------------------------------------------------------------------------------ */

unsigned pins_of(const struct model_ns *ns, uint32_t page)
{
        int slot = (int)(ns - spaces[ns->tenant]);
        unsigned n = 0;

        for (int m = 0; m < N_MEMBERS; m++)
                if (members[m].real && members[m].tenant == ns->tenant &&
                        members[m].attach[slot].real)
                        n += members[m].attach[slot].pins[page];
        return n;
}

static bool is_mapped(const struct model_ns *ns, uint32_t set)
{
        int slot = (int)(ns - spaces[ns->tenant]);

        for (int m = 0; m < N_MEMBERS; m++)
                if (members[m].real && members[m].tenant == ns->tenant &&
                        members[m].attach[slot].real && members[m].attach[slot].mapped[set])
                        return true;
        return false;
}

bool set_is_bound(const struct model_ns *ns, uint32_t set)
{
        for (uint32_t i = 0; i < ns->set_pages; i++)
                if (ns->pages[set * ns->set_pages + i].state != M_FREE)
                        return true;
        return is_mapped(ns, set);
}

uint32_t bound_sets(const struct model_ns *ns)
{
        uint32_t n = 0;

        for (uint32_t set = 0; set < ns->n_pages / ns->set_pages; set++)
                n += set_is_bound(ns, set);
        return n;
}

uint64_t usage_of(int tenant)
{
        uint64_t bytes = 0;

        for (int i = 0; i < N_NS; i++)
                if (spaces[tenant][i].exists)
                        bytes += bound_sets(&spaces[tenant][i]) * spaces[tenant][i].set_bytes;
        return bytes;
}

uint64_t usage(void)
{
        uint64_t bytes = 0;

        for (int t = 0; t < N_TENANTS; t++)
                bytes += usage_of(t);
        return bytes;
}

static bool is_below(const struct model_ns *ns, int key, int top)
{
        for (; key != NONE; key = ns->parent[key])
                if (key == top)
                        return true;
        return false;
}

/* Neither it nor anything cached below it is pinned. */
bool is_evictable(const struct model_ns *ns, int top)
{
        for (int key = 0; key < N_KEYS; key++)
                if (ns->where[key] != NONE && is_below(ns, key, top) &&
                        pins_of(ns, (uint32_t)ns->where[key]) > 0)
                        return false;
        return true;
}

/* Out of the cache: gone at once, or when its last pin goes. */
static void model_drop(struct model_ns *ns, int key)
{
        struct model_page *p = &ns->pages[ns->where[key]];

        p->state = pins_of(ns, (uint32_t)ns->where[key]) > 0 ? M_GONE : M_FREE;
        ns->where[key] = NONE;
}

unsigned model_drop_subtree(struct model_ns *ns, int top)
{
        bool below[N_KEYS];
        unsigned n = 0;

        for (int key = 0; key < N_KEYS; key++)
                below[key] = ns->where[key] != NONE && is_below(ns, key, top);
        for (int key = 0; key < N_KEYS; key++)
                if (below[key]) {
                        model_drop(ns, key);
                        n++;
                }
        return n;
}

unsigned model_invalidate(struct model_ns *ns)
{
        unsigned n = 0;

        for (int key = 0; key < N_KEYS; key++)
                if (ns->where[key] != NONE) {
                        ns->pages[ns->where[key]].state = M_GONE;
                        ns->where[key] = NONE;
                        n++;
                }
        ns->epoch++;
        return n;
}

void model_unpin(struct model_attach *a, struct model_ns *ns, uint32_t page, unsigned n)
{
        CHECK(a->pins[page] >= n, "page %u", page);
        a->pins[page] -= n;
        if (ns->pages[page].state == M_GONE && pins_of(ns, page) == 0)
                ns->pages[page].state = M_FREE;
}

void model_close(struct model_member *m, int slot)
{
        struct model_ns *ns = &spaces[m->tenant][slot];
        struct model_attach *a = &m->attach[slot];
        bool last = true;

        for (uint32_t page = 0; page < ns->n_pages; page++)
                if (a->pins[page] > 0)
                        model_unpin(a, ns, page, a->pins[page]);
        *a = (struct model_attach){0};
        for (int i = 0; i < N_MEMBERS; i++)
                if (members[i].real && members[i].group == m->group && members[i].attach[slot].real)
                        last = false;
        for (uint32_t page = 0; last && page < ns->n_pages; page++)
                if (ns->pages[page].state == M_GRANTED && ns->pages[page].group == m->group)
                        ns->pages[page].state = M_FREE;
}

/* ---- learning what was evicted, comparing --------------------------------------------------- */

struct ns *real_ns(const struct model_ns *ns)
{
        char name[16];

        snprintf(name, sizeof(name), "n%d", (int)(ns - spaces[ns->tenant]));
        return ns_find(tenants[ns->tenant], name);
}

static uint32_t real_page_of(const struct ns *real, int key)
{
        uint8_t bytes[KEY_BYTES];

        key_bytes(key, bytes);
        return ns_find_page(real, bytes);
}

/* After what may evict or sweep: which cached pages went, and were they fit to go? */
static void learn_ns(struct model_ns *ns, bool may_evict)
{
        struct ns *real = real_ns(ns);
        bool went[N_KEYS];

        for (int key = 0; key < N_KEYS; key++) {
                went[key] = ns->where[key] != NONE && real_page_of(real, key) == PAGE_NONE;
                CHECK(!went[key] || (may_evict && is_evictable(ns, key)),
                        "tenant %d ns n%d: key %d was evicted, it was in use or nothing asked for "
                        "room",
                        ns->tenant, (int)(ns - spaces[ns->tenant]), key);
        }
        for (int key = 0; key < N_KEYS; key++) {
                if (ns->where[key] != NONE && !went[key])
                        for (int up = ns->parent[key]; up != NONE; up = ns->parent[up])
                                CHECK(!went[up], "key %d went before %d below it", up, key);
        }
        for (int key = 0; key < N_KEYS; key++)
                if (went[key]) {
                        model_drop(ns, key);
                        n_evicted++;
                }
        /* Unpinned pages of an older epoch: swept. */
        for (uint32_t page = 0; page < ns->n_pages; page++) {
                const struct page *p = ns_page(real, page);

                if (ns->pages[page].state == M_GONE && pins_of(ns, page) == 0 &&
                        (!p || p->state != PAGE_SEALED))
                        ns->pages[page].state = M_FREE;
        }
}

void learn(bool may_evict)
{
        for (int t = 0; t < N_TENANTS; t++)
                for (int i = 0; i < N_NS; i++)
                        if (spaces[t][i].exists)
                                learn_ns(&spaces[t][i], may_evict);
}

static enum model_state state_of(const struct ns *real, uint32_t page)
{
        const struct page *p = ns_page(real, page);

        if (!p || p->state == PAGE_FREE || p->state == PAGE_NULL)
                return M_FREE;
        if (p->state == PAGE_GRANTED)
                return M_GRANTED;
        return p->state == PAGE_SEALED && !ns_page_is_stale(real, p) ? M_CACHED : M_GONE;
}

static void compare_ns(const struct model_ns *ns)
{
        const struct ns *real = real_ns(ns);

        CHECK(!real == !ns->exists, "tenant %d", ns->tenant);
        if (!real)
                return;
        CHECK(real->epoch == ns->epoch, "epoch %llu", (unsigned long long)real->epoch);
        CHECK(real->n_sets == bound_sets(ns), "%u sets bound", real->n_sets);
        for (uint32_t page = 0; page < ns->n_pages; page++) {
                const struct page *p = ns_page(real, page);

                CHECK(state_of(real, page) == ns->pages[page].state,
                        "tenant %d ns n%d page %u: is %d, model says %d", ns->tenant,
                        (int)(ns - spaces[ns->tenant]), page, state_of(real, page),
                        ns->pages[page].state);
                CHECK((p ? p->n_pins : 0) == pins_of(ns, page), "page %u", page);
                CHECK(!p == !set_is_bound(ns, page / ns->set_pages), "page %u", page);
        }
        for (int key = 0; key < N_KEYS; key++)
                CHECK(real_page_of(real, key) == (uint32_t)ns->where[key], "key %d", key);
}

void compare(void)
{
        uint64_t n_pages, n_sets;
        uint32_t n_members = 0, n_extents = 0;
        struct detail d = {0};

        CHECK(store_check(&store, &n_pages, &n_sets, &d) == 0, "%s", d.text);
        for (int t = 0; t < N_TENANTS; t++) {
                for (int i = 0; i < N_NS; i++) {
                        compare_ns(&spaces[t][i]);
                        if (spaces[t][i].exists)
                                n_extents += bound_sets(&spaces[t][i]) * shapes[i].n_planes;
                }
                CHECK(tenants[t]->account.charged_bytes == usage_of(t), "tenant %d", t);
        }
        CHECK(store_find_pool(&store, NULL)->account.charged_bytes == usage(), "pool");
        CHECK(device.n_extents == n_extents, "%u extents alive", device.n_extents);
        for (int m = 0; m < N_MEMBERS; m++)
                n_members += members[m].real != NULL;
        CHECK(store.n_members == n_members, "%u members", n_members);
}
