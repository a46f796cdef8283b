#include "daemon/core/reclaim/reclaim.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "daemon/core/cache/drop.h"
#include "daemon/core/cache/lines.h"
#include "daemon/core/cache/nsset.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/moves/transfer.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/memory/region.h"
#include "daemon/core/reclaim/recall.h"
#include "daemon/core/sessions/session.h"

/* Time between two weighings, for each NS_LOOK_PAGES of a large namespace, which take 0.1 ms: at
 * most a hundredth of the time. Not tuned. */
#define WEIGH_NSEC (10 * NSEC_PER_MSEC)

/* Looks at pages of a set that take as long as dropping one page. Not tuned. */
#define LOOKS_PER_PAGE 64

/* If a tenant's pages take more slices than this, not all sets are weighed at once: that would take
 * more than some 1.5 ms. Not tuned. */
#define WEIGH_SLICES 128

/* Then, over all its namespaces, sets are weighed for so many slices of looks, and one set more. A
 * look takes longer there, as it follows the tree. Not tuned. */
#define WEIGH_FEW_SLICES 32

/* Pages of other sets that build on a set: a set with more stays. Not tuned. */
#define WEIGH_BELOW_MAX 1024

static void count_own(struct tenant *t, uint64_t n)
{
        if (n > 0)
                blame_note(t, t, n, 0);
}

/* A leaf used since then is being continued now. If all other texts continue in lower tiers, they
 * have no leaf on the device, and the only leaf may be the page published last. Not tuned. */
#define FRESH_SEC 1

static bool is_fresh(const struct ns *ns, uint32_t page)
{
        return ns->tiers[TIER_DEVICE].pool->below &&
               ns_note(ns, page)->used_sec + FRESH_SEC > store_now_sec(ns->store);
}

/* Evicts leaves until the policy has none left; spares: not fresh ones. */
static bool evict_leaves(
        struct ns *ns, uint32_t n, uint64_t now_nsec, bool spares, uint64_t *n_evicted)
{
        struct lines_ahead ahead = {0};

        while (ns_n_room(ns) < n) {
                uint32_t victim = ns_victim(ns, TIER_DEVICE, EVICT_DROP);

                if (victim == NODE_NONE || (spares && is_fresh(ns, victim)))
                        return false;
                lines_prefetch_victims(&ahead, ns, victim);
                *n_evicted += ns_evict_leaf(ns, victim, ns->tenant);
        }
        return true;
}

/* Evicts a page with the pages that continue it in lower tiers, those first. Returns false if a
 * client reads one. */
static bool evict_tip(struct ns *ns, uint32_t page, uint64_t *n_evicted)
{
        uint32_t leaf;

        do {
                leaf = tree_leaf_below(&ns->tree, page);
                if (!page_is_idle(ns, leaf) || !ns_evict_leaf(ns, leaf, ns->tenant))
                        return false;
                (*n_evicted)++;
        } while (leaf != page);
        return true;
}

/* Tips that can't be evicted now and are skipped in one call. Not tuned. */
#define MAX_BLOCKED 16

static void evict_tips(struct ns *ns, uint32_t n, uint64_t now_nsec, uint64_t *n_evicted)
{
        uint32_t blocked[MAX_BLOCKED], n_blocked = 0;

        while (ns_n_room(ns) < n && n_blocked < MAX_BLOCKED) {
                uint32_t tip = ns_victim(ns, TIER_DEVICE, EVICT_DEMOTE);

                if (tip == NODE_NONE)
                        break;
                if (evict_tip(ns, tip, n_evicted))
                        continue;
                if (!page_is_idle(ns, tip)) /* it became held, and isn't returned again */
                        continue;
                ns->evict->lock(ns->policy, tip);
                blocked[n_blocked++] = tip;
        }
        while (n_blocked > 0)
                ns->evict->unlock(ns->policy, blocked[--n_blocked]);
}

bool reclaim_pages(struct ns *ns, uint32_t n, uint64_t now_nsec)
{
        uint64_t n_evicted = 0;

        do {
                if (!evict_leaves(ns, n, now_nsec, true, &n_evicted) && ns->tree.n_tiers > 1)
                        evict_tips(ns, n, now_nsec, &n_evicted);
                (void)evict_leaves(ns, n, now_nsec, false, &n_evicted);
        } while (ns_n_room(ns) < n && transfer_call_off(ns));
        count_own(ns->tenant, n_evicted);
        return ns_n_room(ns) >= n;
}

#define HELD UINT32_MAX /* in counts of pages: includes a pinned page */

static uint32_t add_counts(uint32_t a, uint32_t b)
{
        return (uint32_t)MIN((uint64_t)a + b, (uint64_t)HELD);
}

/* Sets below[i], which is zero or HELD before, to the pages at or below node i, or HELD if one is
 * pinned. Children first. */
static void count_tree(const struct ns *ns, uint32_t root, uint32_t *below)
{
        uint32_t node = tree_leaf_below(&ns->tree, root), up, next;

        for (;; node = next == NODE_NONE ? up : tree_leaf_below(&ns->tree, next)) {
                below[node] = add_counts(below[node], 1);
                if (node == root)
                        return;
                up = tree_parent(&ns->tree, node);
                next = tree_next_sibling(&ns->tree, node);
                below[up] = add_counts(below[up], below[node]);
        }
}

static void mark_held(uint32_t page, void *below)
{
        ((uint32_t *)below)[page] = HELD;
}

/* Counts all subtrees of the namespace in one pass. NULL: no memory. */
static uint32_t *count_subtrees(const struct ns *ns)
{
        const struct tree *t = &ns->tree;
        uint32_t *below = calloc(t->n_nodes, sizeof(*below));

        if (below)
                ns_find_pinned(ns, mark_held, below);
        if (below)
                nsset_find_held(ns, mark_held, below);
        for (uint32_t node = 0; below && node < t->n_nodes; node++)
                if (tree_has(t, node) && tree_parent(t, node) == NODE_NONE)
                        count_tree(ns, node, below);
        return below;
}

/* Counts of subtrees: of the whole namespace, or computed on request. */
struct scales {
        const uint32_t *below; /* count_subtrees(); NULL: not counted */
        uint64_t look;         /* looks at a record that one page costs then */
        uint64_t looks;        /* left for one set */
};

static bool is_held(const struct ns *ns, uint32_t page)
{
        return ns_is_pinned(ns, page) || !nsset_may_evict(ns, page);
}

/* Returns the pages at or below this one; HELD if one is pinned, or if looks run out. */
static uint32_t count_below(const struct ns *ns, uint32_t top, struct scales *s)
{
        uint32_t n = 0;

        if (s->below)
                return s->below[top];
        for (uint32_t node = top; node != NODE_NONE; node = tree_next_below(&ns->tree, top, node)) {
                if (s->looks < s->look || is_held(ns, node))
                        return HELD;
                s->looks -= s->look;
                n++;
        }
        return n;
}

/* Cost of a set: bytes that leave the cache with it, pages below in other sets included. COST_HELD:
 * a page there is granted or pinned, or not all can be looked at. A branch that leaves the set and
 * returns counts twice: the cost is never too low. */
#define COST_HELD UINT64_MAX

/* Is the page cached, or held by a window alone? */
static bool may_go(const struct ns *ns, uint32_t page)
{
        return ns_page(ns, page)->state == PAGE_SEALED || ns_page_is_kept(ns, page);
}

/* Returns the pages lost with this page, unless another page of the set counts them; HELD. */
static uint32_t page_cost(const struct extent_set *set, uint32_t page, struct scales *s)
{
        const struct ns *ns = set->ns;
        const struct page *p = ns_page(ns, page);
        uint32_t parent;

        if (p->state == PAGE_FREE || p->state == PAGE_NULL)
                return 0;
        if (!may_go(ns, page) || (s->below ? s->below[page] == HELD : is_held(ns, page)))
                return HELD;
        if (p->state == PAGE_DETACHED)
                return 1; /* and the rest of its window */
        if (ns_page_is_stale(ns, p))
                return 0;
        parent = tree_parent(&ns->tree, page);
        return parent == NODE_NONE || parent / ns->geometry.set_pages != set->index
                       ? count_below(ns, page, s)
                       : 0;
}

static uint64_t set_cost(const struct extent_set *set, struct scales *s)
{
        const struct ns *ns = set->ns;
        uint32_t n = ns->geometry.set_pages, first = set->index * n;
        uint64_t n_pages = 0;

        for (uint32_t page = first; page < first + n; page++) {
                uint32_t cost = page_cost(set, page, s);

                if (cost == HELD)
                        return COST_HELD;
                n_pages += cost;
        }
        return n_pages * layout_page_bytes(&ns->layout);
}

static bool has_unmapped_set(const struct ns_tier *tier)
{
        list_for_each (set, &tier->sets_bound, struct extent_set, link)
                if (set->n_mapped == 0)
                        return true;
        return false;
}

/* May the set be freed at all? If a lease waits for more sets, an idle set stays; sets that are
 * made ahead don't count. */
static bool is_on_scales(const struct extent_set *set)
{
        const struct ns *ns = set->ns;

        return set->n_mapped == 0 &&
               !(set->tier == &ns->device && set_is_idle(set) && ns->waits.n > 0);
}

/* Weighs all sets; without memory for counts, none can be freed. Returns the number of pages looked
 * at. */
static uint64_t weigh_all(struct ns *ns, struct ns_tier *tier)
{
        _cleanup_free_ uint32_t *below = NULL;

        list_for_each (set, &tier->sets_bound, struct extent_set, link) {
                if (!is_on_scales(set))
                        continue;
                if (!below)
                        below = count_subtrees(ns);
                if (below)
                        set->cost_bytes = set_cost(set, &(struct scales){.below = below});
        }
        return below ? ns->tree.n_nodes : 0;
}

/* Returns the looks that a page costs: its record and node, a counter for each client, and the
 * other namespaces of a set. */
static uint64_t look_of(const struct ns *ns)
{
        uint64_t n = ns->catalog.set ? 4 : 1;

        list_for_each (a, &ns->clients.attachments, struct attach, ns_link)
                n++;
        return n;
}

/* Weighs sets from the one bound last on, and moves them to the front of the list, so that others
 * follow next time. Returns the number of looks. */
static uint64_t weigh_few(struct ns *ns, struct ns_tier *tier, uint64_t most)
{
        uint64_t look = look_of(ns), n_looks = 0;
        uint64_t of_set = look * (ns->geometry.set_pages + WEIGH_BELOW_MAX);

        for (uint32_t n = tier->n_sets; n > 0 && n_looks < most; n--) {
                struct extent_set *set = list_last(&tier->sets_bound, struct extent_set, link);
                struct scales s = {.look = look, .looks = of_set};

                list_remove(&set->link);
                list_prepend(&tier->sets_bound, &set->link);
                if (!is_on_scales(set))
                        continue;
                set->cost_bytes = set_cost(set, &s);
                n_looks += of_set - s.looks + look;
        }
        return n_looks;
}

static bool has_weighed_set(const struct ns_tier *tier)
{
        list_for_each (set, &tier->sets_bound, struct extent_set, link)
                if (set->cost_bytes != COST_HELD)
                        return true;
        return false;
}

/* Limits how often sets are weighed. But a lease is not refused by old weights if sets were freed
 * or unmapped since. */
static bool is_time_to_weigh(const struct ns *ns, const struct ns_tier *tier)
{
        return ns->store->now_nsec >= tier->weigh_after_nsec ||
               (tier->has_lighter && !has_weighed_set(tier));
}

/* most: looks; UINT64_MAX: weighs all sets. Returns the number of looks. */
static uint64_t weigh_tier(
        struct ns *ns, struct ns_tier *tier, const struct ns *spare, uint64_t most)
{
        uint64_t now_nsec = ns->store->now_nsec, n_looks;

        if (most == 0 || !is_time_to_weigh(ns, tier))
                return 0;
        tier->has_lighter = false;
        if (has_unmapped_set(tier)) {
                ns_look_again(ns, NS_LOOK_PAGES);
                if (tier == &ns->device)
                        magazine_drain_ns(ns);
                idle_sets_drain_except(ns->store, spare); /* idle sets aren't weighed */
        }
        list_for_each (set, &tier->sets_bound, struct extent_set, link)
                set->cost_bytes = COST_HELD;
        n_looks = most == UINT64_MAX ? weigh_all(ns, tier) : weigh_few(ns, tier, most);
        if (n_looks > NS_LOOK_PAGES || most != UINT64_MAX)
                tier->weigh_after_nsec = now_nsec + n_looks * WEIGH_NSEC / NS_LOOK_PAGES;
        return n_looks;
}

/* Weighing all sets walks over all pages of the tenant's namespaces. */
static bool may_weigh_all(const struct tenant *t)
{
        uint64_t most = (uint64_t)WEIGH_SLICES * t->store->drop_slice_pages, n = 0;

        list_for_each (ns, &t->namespaces, struct ns, link)
                n += (uint64_t)ns_n_sets(ns) * ns->geometry.set_pages;
        return n <= most;
}

/* The sets to choose from. */
struct place {
        const struct ns *spare;  /* except this one; NULL: none */
        const struct pool *pool; /* NULL: any of `tier` */
        enum tier_kind tier;
};

static bool may_take_from(struct ns *ns, const struct place *p)
{
        return ns != p->spare && (!p->pool || ns_tier_on(ns, p->pool));
}

/* Computes the costs for cheapest_set(), and frees idle sets. Evicting sets only makes others
 * cheaper: once is enough. */
static void weigh_sets(struct tenant *t, const struct place *p)
{
        uint64_t few = (uint64_t)WEIGH_FEW_SLICES * t->store->drop_slice_pages, n;
        uint64_t most = may_weigh_all(t) ? UINT64_MAX : few;

        list_for_each (ns, &t->namespaces, struct ns, link) {
                if (!may_take_from(ns, p))
                        continue;
                n = weigh_tier(ns, &ns->tiers[p->tier], p->spare, most);
                if (most != UINT64_MAX)
                        most -= MIN(n, most);
        }
}

/* Has the set become held since it was weighed? */
static bool has_become_held(const struct extent_set *set)
{
        if (set->n_mapped > 0)
                return true;
        for (uint32_t i = 0; i < set->ns->geometry.set_pages; i++) {
                const struct page *p = &set->pages[i];

                if (page_pins(p) > 0 ||
                        (!may_go(set->ns, set->index * set->ns->geometry.set_pages + i) &&
                                p->state != PAGE_FREE && p->state != PAGE_NULL))
                        return true;
        }
        return false;
}

/* Evicts the set at once, for a lease of `by`, unless a client has pinned a page in it meanwhile.
 * No caller uses the set. */
static void evict_set(struct extent_set *set, const struct ns *spare, const struct tenant *by)
{
        const struct drop_reason reason = {.why = EVICT_PRESSURE, .by = by};
        struct ns *ns = set->ns;
        struct tenant *t = ns->tenant;
        uint32_t n = ns->geometry.set_pages, first = set->index * n;
        uint64_t before = t->counters.evictions;

        if (has_become_held(set)) {
                set->cost_bytes = COST_HELD;
                return;
        }
        (void)sessions_leave_set(set);
        for (uint32_t page = first; page < first + n; page++) {
                struct page *p = ns_page(ns, page);

                if (ns_page_is_stale(ns, p))
                        ns_sweep_page(ns, page);
                else if (p->state == PAGE_SEALED)
                        ns_drop_subtree(ns, page, reason);
        }
        blame_note(t, by, t->counters.evictions - before, set_is_idle(set));
        set->tier->has_lighter |= set_is_idle(set);
        if (set_is_idle(set))
                set_unbind(set);
        else
                set->cost_bytes = COST_HELD;
        idle_sets_drain_except(t->store, spare); /* others that became idle */
}

/* Returns the tenant's cheapest weighed set; of equal ones the one bound last, to continue earlier
 * choices. NULL: none. */
static struct extent_set *cheapest_set(struct tenant *t, const struct place *p)
{
        struct extent_set *best = NULL;

        list_for_each (ns, &t->namespaces, struct ns, link) {
                if (!may_take_from(ns, p))
                        continue;
                list_for_each (set, &ns->tiers[p->tier].sets_bound, struct extent_set, link)
                        if (set->cost_bytes != COST_HELD &&
                                (!best || set->cost_bytes <= best->cost_bytes))
                                best = set;
        }
        return best;
}

/* Is the tenant over its limit, and memory being taken back already? Then no more is taken. */
static bool is_shrinking(const struct tenant *t, enum tier_kind tier)
{
        return !account_fits(&t->accounts[tier], 0) && recall_is_under_way(t, tier);
}

bool reclaim_sets_of_tenant(
        struct tenant *t, enum tier_kind tier, const struct ns *spare, uint64_t bytes)
{
        const struct place place = {.spare = spare, .tier = tier};

        if (account_fits(&t->accounts[tier], bytes))
                return true;
        if (is_shrinking(t, tier))
                return false;
        weigh_sets(t, &place);
        while (!account_fits(&t->accounts[tier], bytes)) {
                struct extent_set *set = cheapest_set(t, &place);

                if (!set)
                        return false;
                evict_set(set, spare, spare ? t : NULL);
        }
        return true;
}

/* Returns about how many page records freeing a weighed set takes: its own, and pages below them.
 */
static uint64_t pages_to_evict(const struct extent_set *set)
{
        return set->cost_bytes / layout_page_bytes(&set->ns->layout) +
               set->ns->geometry.set_pages / LOOKS_PER_PAGE + 1;
}

/* Makes recalls sort sets by their pages in use. */
static void forget_costs(struct tenant *t, enum tier_kind tier)
{
        list_for_each (ns, &t->namespaces, struct ns, link)
                list_for_each (set, &ns->tiers[tier].sets_bound, struct extent_set, link)
                        set->cost_bytes = 0;
}

/* Evicts the tenant's cheapest sets in this tier until its account fits, at most drop_slice_pages
 * pages now. */
static void evict_slice(struct tenant *t, enum tier_kind tier)
{
        const struct place place = {.tier = tier};
        uint64_t left = t->store->drop_slice_pages;
        struct extent_set *set;

        weigh_sets(t, &place);
        while (!account_fits(&t->accounts[tier], 0) && (set = cheapest_set(t, &place))) {
                uint64_t n = pages_to_evict(set);

                if (n > left)
                        return;
                left -= n;
                evict_set(set, NULL, NULL);
        }
}

void reclaim_over_limits(struct tenant *t)
{
        bool all = true;

        idle_sets_drain(t->store); /* idle sets aren't charged any longer */
        for (enum tier_kind tier = 0; tier < TIER_COUNT; tier++) {
                if (account_fits(&t->accounts[tier], 0))
                        continue;
                if (may_weigh_all(t))
                        evict_slice(t, tier);
                else
                        forget_costs(t, tier);
                all &= account_fits(&t->accounts[tier], 0);
        }
        if (!all)
                (void)recall_over_limit(t);
}

bool reclaim_set_of_tenant(struct tenant *t, const struct ns *spare)
{
        const struct place place = {.spare = spare, .tier = TIER_DEVICE};
        uint64_t before = t->account.charged_bytes;
        struct extent_set *set;

        if (is_shrinking(t, TIER_DEVICE))
                return false;
        weigh_sets(t, &place);
        while (t->account.charged_bytes >= before && (set = cheapest_set(t, &place)))
                evict_set(set, spare, t);
        return t->account.charged_bytes < before;
}

bool reclaim_set_of_share(
        struct pool_share *victim, const struct ns *spare, const struct tenant *by)
{
        const struct place place = {spare, victim->pool, victim->pool->tier};
        uint64_t before = victim->charged_bytes;
        struct extent_set *set;

        weigh_sets(victim->tenant, &place);
        while (victim->charged_bytes >= before && (set = cheapest_set(victim->tenant, &place)))
                evict_set(set, spare, by);
        return victim->charged_bytes < before;
}

bool ns_sweep(struct ns *ns, uint32_t budget)
{
        uint32_t set_pages = ns->geometry.set_pages;
        bool more = sessions_sweep(ns, &budget);

        for (; budget > 0 && ns->catalog.n_stale > 0; budget--) {
                if (ns->catalog.sweep_page >= ns->geometry.capacity_pages)
                        ns->catalog.sweep_page = 0;
                if (ns_page(ns, ns->catalog.sweep_page))
                        ns_sweep_page(ns, ns->catalog.sweep_page++);
                else /* the rest of a set that isn't bound */
                        ns->catalog.sweep_page += set_pages - ns->catalog.sweep_page % set_pages;
        }
        return more || ns->catalog.n_stale > 0;
}
