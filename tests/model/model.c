#include "daemon/core/memory/idle-sets.h"
#include "tests/model/model.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/core/cache/pages.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/core.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/state/shared.h"
#include "proto/status.h"

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
unsigned n_evicted, n_refused, n_claimed, n_taken_back, n_recalled, n_unmapped;
unsigned long last_serial;
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

static unsigned socket_pins_of(const struct model_ns *ns, uint32_t page)
{
        int slot = (int)(ns - spaces[ns->tenant]);
        unsigned n = 0;

        for (int m = 0; m < N_MEMBERS; m++)
                if (members[m].real && members[m].tenant == ns->tenant &&
                        members[m].attach[slot].real)
                        n += members[m].attach[slot].pins[page];
        return n;
}

unsigned pins_of(const struct model_ns *ns, uint32_t page)
{
        int slot = (int)(ns - spaces[ns->tenant]);
        unsigned n = socket_pins_of(ns, page);

        for (int m = 0; m < N_MEMBERS; m++)
                if (members[m].real && members[m].tenant == ns->tenant &&
                        members[m].attach[slot].real)
                        n += members[m].attach[slot].counts[page];
        return n;
}

bool set_is_mapped(const struct model_ns *ns, uint32_t set)
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
        return set_is_mapped(ns, set);
}

bool is_withheld(const struct model_ns *ns, uint32_t page)
{
        uint32_t set = page / ns->set_pages;

        return ns->pages[page].state == M_FREE && !(ns->keep_zero && page == 0) &&
               ns->recalled[set] && set_is_bound(ns, set);
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

/* Neither the page nor anything cached below it is pinned. */
bool is_evictable(const struct model_ns *ns, int top)
{
        for (int key = 0; key < N_KEYS; key++)
                if (ns->where[key] != NONE && is_below(ns, key, top) &&
                        pins_of(ns, (uint32_t)ns->where[key]) > 0)
                        return false;
        return true;
}

/* Drops the page from the cache: it is freed at once, or with its last pin. */
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
        /* A page granted ahead could only be published as stale, so it is taken back. */
        for (uint32_t page = 0; page < ns->n_pages; page++)
                if (ns->pages[page].state == M_READY)
                        ns->pages[page].state = M_FREE;
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

int model_publish_one(const struct model_member *m, struct model_ns *ns, unsigned *pins,
        uint32_t page, int key, int parent, unsigned tokens, uint32_t *ret_page)
{
        if (page >= ns->n_pages || ns->pages[page].state != M_GRANTED ||
                ns->pages[page].group != m->group)
                return -EINVAL;
        if (ns->pages[page].grant_epoch != ns->epoch)
                return KVL_STATUS_STALE;
        if (ns->where[key] != NONE) {
                *ret_page = (uint32_t)ns->where[key];
                pins[*ret_page]++;
                return KVL_STATUS_DUPLICATE;
        }
        ns->pages[page] =
                (struct model_page){.state = M_CACHED, .key = key, .serial = ++last_serial};
        ns->where[key] = (int)page;
        ns->parent[key] = parent;
        ns->tokens[key] = tokens;
        pins[page]++;
        *ret_page = page;
        return 0;
}

bool model_free(
        const struct model_member *m, struct model_ns *ns, const uint32_t *pages, uint32_t n)
{
        bool seen[MAX_PAGES + 2] = {0};

        for (uint32_t i = 0; i < n; i++) {
                const struct model_page *p = &ns->pages[pages[i]];

                if (pages[i] >= ns->n_pages || seen[pages[i]] || p->state != M_GRANTED ||
                        p->group != m->group)
                        return false;
                seen[pages[i]] = true;
        }
        for (uint32_t i = 0; i < n; i++)
                ns->pages[pages[i]].state = M_FREE;
        return true;
}

void model_close(struct model_member *m, int slot)
{
        struct model_ns *ns = &spaces[m->tenant][slot];
        struct model_attach *a = &m->attach[slot];
        bool last = true;

        for (uint32_t page = 0; page < ns->n_pages; page++) {
                if (a->pins[page] > 0)
                        model_unpin(a, ns, page, a->pins[page]);
                if (ns->pages[page].state == M_READY && ns->pages[page].holder == a)
                        ns->pages[page].state = M_FREE;
        }
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

uint64_t learn_recalled(bool may_recall)
{
        uint64_t bytes = 0;

        for (int t = 0; t < N_TENANTS; t++)
                for (int i = 0; i < N_NS; i++) {
                        struct model_ns *ns = &spaces[t][i];

                        for (uint32_t s = 0; ns->exists && s < ns->n_pages / ns->set_pages; s++) {
                                const struct extent_set *set = real_ns(ns)->sets.at[s];
                                bool is = set && set->recall.state != RECALL_NONE;
                                bool soft = is && set->recall.kind == RECALL_SOFT;

                                CHECK(is || !ns->recalled[s] || !set_is_mapped(ns, s),
                                        "the recall of set %u was called off", s);
                                CHECK(!is || ns->recalled[s] || may_recall, "set %u is recalled",
                                        s);
                                CHECK(soft || !ns->soft[s] || !is || may_recall,
                                        "set %u is pressed for", s);
                                bytes += is && (!ns->recalled[s] || (ns->soft[s] && !soft))
                                                 ? ns->set_bytes
                                                 : 0;
                                ns->soft[s] = soft;
                                n_recalled += is && !ns->recalled[s];
                                ns->recalled[s] = is;
                        }
                }
        return bytes;
}

/* Is it in a recalled set, or below such a page? */
static bool is_purged(const struct model_ns *ns, int key)
{
        for (; key != NONE && ns->where[key] != NONE; key = ns->parent[key])
                if (ns->recalled[(uint32_t)ns->where[key] / ns->set_pages])
                        return true;
        return false;
}

static bool may_go(const struct model_ns *ns, int key, enum learn_how how)
{
        return how == MAY_PURGE ? is_purged(ns, key) : how != MAY_SWEEP && is_evictable(ns, key);
}

/* Which cached pages were evicted, and could they be? */
static void learn_evicted(struct model_ns *ns, enum learn_how how)
{
        struct ns *real = real_ns(ns);
        bool went[N_KEYS];

        for (int key = 0; key < N_KEYS; key++) {
                went[key] = ns->where[key] != NONE && real_page_of(real, key) == PAGE_NONE;
                CHECK(!went[key] || may_go(ns, key, how),
                        "tenant %d ns n%d: key %d was evicted, it was in use or nothing asked for room",
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
}

/* Dropped pages without pins are free: the sweep freed them, or the daemon looked again. */
static void learn_freed(struct model_ns *ns)
{
        for (uint32_t page = 0; page < ns->n_pages; page++) {
                const struct page *p = ns_page(real_ns(ns), page);

                if (ns->pages[page].state == M_GONE && pins_of(ns, page) == 0 &&
                        (!p || (p->state != PAGE_SEALED && p->state != PAGE_DETACHED)))
                        ns->pages[page].state = M_FREE;
        }
}

static void learn_taken_back(struct model_ns *ns, bool may_take)
{
        for (uint32_t page = 0; page < ns->n_pages; page++) {
                struct model_page *p = &ns->pages[page];

                if (p->state != M_READY || is_in_magazine(p, page))
                        continue;
                CHECK(may_take, "page %u was taken out of a magazine, nothing asked for room",
                        page);
                p->state = M_FREE;
                n_taken_back++;
        }
}

void learn_soft(int asking)
{
        for (int t = 0; t < N_TENANTS; t++)
                for (int i = 0; i < N_NS; i++) {
                        struct model_ns *ns = &spaces[t][i];

                        for (uint32_t s = 0; ns->exists && s < ns->n_pages / ns->set_pages; s++) {
                                const struct extent_set *set = real_ns(ns)->sets.at[s];

                                if (!set || set->recall.state == RECALL_NONE || ns->recalled[s])
                                        continue;
                                CHECK(t != asking && set->recall.kind == RECALL_SOFT &&
                                                !set_is_mapped(ns, s),
                                        "set %u of tenant %d is recalled for a lease", s, t);
                                ns->recalled[s] = ns->soft[s] = true;
                                n_recalled++;
                        }
                }
}

void learn(const struct model_ns *only, enum learn_how how)
{
        for (int t = 0; t < N_TENANTS; t++)
                for (int i = 0; i < N_NS; i++) {
                        struct model_ns *ns = &spaces[t][i];
                        bool gives = how == MAY_EVICT && only && only->tenant != t;

                        if (!ns->exists)
                                continue;
                        learn_evicted(ns, !only || ns == only || gives ? how : MAY_SWEEP);
                        learn_freed(ns);
                        learn_taken_back(ns, how == MAY_TAKE_BACK || gives);
                }
        learn_recalled(false);
}

/* Are all slots where the key could be in use? */
static bool slots_are_full(const struct ns *real, const uint8_t key[KEY_BYTES])
{
        const struct shared *s = &real->shared;
        uint64_t hash = shared_hash(s, key);

        for (uint32_t n = 0; n < 2 * SHM_BUCKET_SLOTS; n++) {
                uint32_t bucket = shm_bucket_index(hash, s->n_buckets, n / SHM_BUCKET_SLOTS);
                uint64_t slot = s->buckets[bucket].slots[n % SHM_BUCKET_SLOTS];
                const struct page *p = ns_page(real, (uint32_t)slot - 1);

                if (slot == 0 || p->state != PAGE_SEALED || ns_page_is_stale(real, p))
                        return false;
        }
        return true;
}

bool learn_unindexed(struct model_ns *ns, int key)
{
        const struct ns *real = real_ns(ns);
        uint32_t page = (uint32_t)ns->where[key];
        int parent = ns->parent[key];
        uint8_t bytes[KEY_BYTES];

        if (!ns_page(real, page)->unindexed)
                return false;
        key_bytes(key, bytes);
        CHECK((parent != NONE && ns->where[parent] == NONE) || ns->recalled[page / ns->set_pages] ||
                        slots_are_full(real, bytes),
                "page %u wasn't put into the index, which has room for key %d", page, key);
        model_drop(ns, key);
        return true;
}

static enum model_state state_of(const struct ns *real, uint32_t page)
{
        const struct page *p = ns_page(real, page);

        if (!p || p->state == PAGE_FREE || p->state == PAGE_NULL)
                return M_FREE;
        if (p->state == PAGE_GRANTED)
                return p->ready ? M_READY : M_GRANTED;
        return p->state == PAGE_SEALED && !ns_page_is_stale(real, p) ? M_CACHED : M_GONE;
}

/* The daemon may not know of a claimed page yet, unless it has just looked. */
static void compare_late(const struct model_ns *ns, uint32_t page, bool has_looked)
{
        const struct ns *real = real_ns(ns);
        const struct page *p = ns_page(real, page);
        enum model_state is = state_of(real, page), should_be = ns->pages[page].state;

        CHECK(is == should_be || (!has_looked && is == M_READY && should_be == M_GRANTED),
                "tenant %d ns n%d page %u: is %d, model says %d", ns->tenant,
                (int)(ns - spaces[ns->tenant]), page, is, should_be);
        if (p && p->watched && !ns_page_is_stale(real, p))
                CHECK(!has_looked || pins_of(ns, page) > 0, "page %u is watched in vain", page);
}

static void compare_ns(const struct model_ns *ns, bool has_looked)
{
        const struct ns *real = real_ns(ns);

        CHECK(!real == !ns->exists, "tenant %d", ns->tenant);
        if (!real)
                return;
        CHECK(real->epoch == ns->epoch, "epoch %llu", (unsigned long long)real->epoch);
        CHECK(real->device.n_sets == bound_sets(ns), "%u sets bound", real->device.n_sets);
        for (uint32_t page = 0; page < ns->n_pages; page++) {
                const struct page *p = ns_page(real, page);

                compare_late(ns, page, has_looked);
                CHECK((p ? page_pins(p) : 0) == socket_pins_of(ns, page), "page %u", page);
                CHECK(!p == !set_is_bound(ns, page / ns->set_pages), "page %u", page);
        }
        for (int key = 0; key < N_KEYS; key++)
                CHECK(real_page_of(real, key) == (uint32_t)ns->where[key], "key %d", key);
}

/* Compares the client's segment with the model. */
static void compare_segment(const struct model_attach *a, const struct model_ns *ns)
{
        const struct pins *pins = &a->real->share;
        uint64_t n_ready = 0;

        CHECK(pins_is_open(pins) == a->shared, "segment");
        if (!a->shared)
                return;
        for (uint32_t page = 0; page < ns->n_pages; page++) {
                const struct model_page *p = &ns->pages[page];

                CHECK(pins->counters[page] == a->counts[page], "page %u has %u pins, not %u", page,
                        pins->counters[page], a->counts[page]);
                n_ready += p->state == M_READY && p->holder == a;
        }
        CHECK(pins->header->n_put - pins->header->n_taken == n_ready, "%llu pages in the magazine",
                (unsigned long long)n_ready);
}

/* Lets the daemon see the clients' stores in their segments. */
static void look(void)
{
        for (int t = 0; t < N_TENANTS; t++)
                list_for_each (ns, &tenants[t]->namespaces, struct ns, link) {
                        ns_look_again(ns, UINT32_MAX);
                        idle_sets_drain(ns->store);
                        list_for_each (a, &ns->clients.attachments, struct attach, ns_link)
                                CHECK(!a->magazine || magazine_sync(a), "tampered with");
                }
}

void compare(void)
{
        uint64_t n_pages, n_sets;
        uint32_t n_members = 0, n_extents = 0;
        bool looks = step / 64 % 2; /* for a while not, so that there is much to find out */
        struct detail d = {0};

        if (looks)
                look();
        idle_sets_drain(&store); /* as the server does at the end of each request */
        learn(NULL, MAY_SWEEP);
        CHECK(store_check(&store, &n_pages, &n_sets, &d) == 0, "%s", d.text);
        for (int t = 0; t < N_TENANTS; t++) {
                for (int i = 0; i < N_NS; i++) {
                        compare_ns(&spaces[t][i], looks);
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
        for (int m = 0; m < N_MEMBERS; m++)
                for (int i = 0; members[m].real && i < N_NS; i++)
                        if (members[m].attach[i].real)
                                compare_segment(
                                        &members[m].attach[i], &spaces[members[m].tenant][i]);
}
