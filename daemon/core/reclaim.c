#include "daemon/core/reclaim.h"

#include <assert.h>
#include <stdlib.h>

#include "daemon/core/group.h"
#include "daemon/core/ns.h"
#include "daemon/core/store.h"
#include "daemon/core/tenant.h"
#include "policy/share.h"

bool reclaim_pages(struct ns *ns, uint32_t n, uint64_t now_nsec)
{
        assert(ns->keep_idle_sets);

        while (ns_n_room(ns) < n) {
                uint32_t victim = ns->evict->victim(ns->policy, now_nsec);

                if (victim == NODE_NONE)
                        return false;
                (void)ns_evict_leaf(ns, victim);
        }
        return true;
}

#define HELD UINT32_MAX /* in counts of pages: a pinned one is among them */

static uint32_t add_counts(uint32_t a, uint32_t b)
{
        return (uint32_t)MIN((uint64_t)a + b, (uint64_t)HELD);
}

/* below[i], zero before or HELD: the pages at or below node i, HELD where one is pinned. Children
 * first. */
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

/* Of the whole namespace in one pass. NULL: no memory. */
static uint32_t *count_subtrees(const struct ns *ns)
{
        const struct tree *t = &ns->tree;
        uint32_t *below = calloc(t->n_nodes, sizeof(*below));

        if (below)
                ns_find_pinned(ns, mark_held, below);
        for (uint32_t node = 0; below && node < t->n_nodes; node++)
                if (tree_has(t, node) && tree_parent(t, node) == NODE_NONE)
                        count_tree(ns, node, below);
        return below;
}

/*
 * Bytes that leave the cache with the set: what lies below its pages goes too, in whichever set.
 * COST_HELD where something there is granted or pinned. A branch that leaves the set and comes back
 * is counted twice: the cost is never too low.
 */
#define COST_HELD UINT64_MAX
static uint64_t set_cost(const struct extent_set *set, const uint32_t *below)
{
        const struct ns *ns = set->ns;
        uint32_t n = ns->geometry.set_pages, first = set->index * n, parent;
        uint64_t n_pages = 0;

        for (uint32_t i = 0; i < n; i++) {
                const struct page *p = &set->pages[i];

                if (p->state == PAGE_FREE || p->state == PAGE_NULL)
                        continue;
                if (p->state != PAGE_SEALED || below[first + i] == HELD)
                        return COST_HELD;
                if (ns_page_is_stale(ns, p))
                        continue;
                parent = tree_parent(&ns->tree, first + i);
                if (parent == NODE_NONE || parent / n != set->index)
                        n_pages += below[first + i];
        }
        return n_pages * ns->layout.plane_page_bytes * ns->layout.n_planes;
}

static bool has_unmapped_set(const struct ns *ns)
{
        list_for_each (set, &ns->sets_bound, struct extent_set, link)
                if (set->n_mapped == 0)
                        return true;
        return false;
}

/* Without memory to count in, no set of the namespace gives way. */
static void weigh_ns(struct ns *ns)
{
        _cleanup_free_ uint32_t *below = NULL;

        if (has_unmapped_set(ns)) {
                ns_look_again(ns, NS_LOOK_PAGES);
                magazine_drain_ns(ns);
        }
        list_for_each (set, &ns->sets_bound, struct extent_set, link) {
                set->cost_bytes = COST_HELD;
                if (set->n_mapped > 0 || (set_is_idle(set) && ns_awaits_sets(ns)))
                        continue;
                if (!below)
                        below = count_subtrees(ns);
                if (below)
                        set->cost_bytes = set_cost(set, below);
        }
}

static bool may_take_from(const struct ns *ns, const struct pool *pool, const struct ns *spare)
{
        return ns != spare && (!pool || ns->pool == pool);
}

/* What cheapest_set() goes by; gives idle sets back by the way. Evicting sets makes others cheaper,
 * never dearer: it need not be done again after each. */
static void weigh_sets(struct tenant *t, const struct pool *pool, const struct ns *spare)
{
        list_for_each (ns, &t->namespaces, struct ns, link)
                if (may_take_from(ns, pool, spare))
                        weigh_ns(ns);
}

/* It goes, unless a client has pinned something in it meanwhile. */
static void evict_set(struct extent_set *set)
{
        struct ns *ns = set->ns;
        uint32_t n = ns->geometry.set_pages, first = set->index * n;

        ns->keep_idle_sets = true;
        set->recall.in_visit = true;
        for (uint32_t page = first; page < first + n; page++) {
                struct page *p = ns_page(ns, page);

                if (ns_page_is_stale(ns, p))
                        ns_sweep_page(ns, page);
                else if (p->state == PAGE_SEALED)
                        ns_drop_subtree(ns, page, EVICT_PRESSURE);
        }
        set->recall.in_visit = false;
        if (set_is_idle(set))
                set_unbind(set);
        else
                set->cost_bytes = COST_HELD;
        ns_trim(ns);
}

/*
 * The weighed set of one tenant that takes the least with it; pool NULL: on any device. Of equals
 * the one bound last: it continues what the earlier ones began. NULL: none.
 */
static struct extent_set *cheapest_set(
        struct tenant *t, const struct pool *pool, const struct ns *spare)
{
        struct extent_set *best = NULL;

        list_for_each (ns, &t->namespaces, struct ns, link) {
                if (!may_take_from(ns, pool, spare))
                        continue;
                list_for_each (set, &ns->sets_bound, struct extent_set, link)
                        if (set->cost_bytes != COST_HELD &&
                                (!best || set->cost_bytes <= best->cost_bytes))
                                best = set;
        }
        return best;
}

bool reclaim_sets_of_tenant(struct tenant *t, const struct ns *spare, uint64_t bytes)
{
        if (account_fits(&t->account, bytes))
                return true;
        weigh_sets(t, NULL, spare);
        while (!account_fits(&t->account, bytes)) {
                struct extent_set *set = cheapest_set(t, NULL, spare);

                if (!set)
                        return false;
                evict_set(set);
        }
        return true;
}

static uint64_t charged_in(const struct tenant *t, const struct pool *pool)
{
        uint64_t bytes = 0;

        list_for_each (ns, &t->namespaces, struct ns, link)
                if (ns->pool == pool)
                        bytes += ns_charged_bytes(ns);
        return bytes;
}

/* In the order of who is furthest over; shares[i] is of tenants[i]. */
static struct extent_set *set_of_furthest(struct pool *pool, const struct ns *spare,
        struct share_tenant *shares, struct tenant **tenants, size_t n)
{
        size_t i;

        while ((i = share_furthest_over(shares, n)) != SIZE_MAX) {
                struct extent_set *set;

                weigh_sets(tenants[i], pool, spare);
                set = cheapest_set(tenants[i], pool, spare);
                if (set || tenants[i] == spare->tenant)
                        return set;
                shares[i].charged_bytes = 0;
        }
        return NULL;
}

static struct share_tenant share_of(const struct tenant *t, const struct pool *pool)
{
        return (struct share_tenant){
                .charged_bytes = charged_in(t, pool),
                .weight = t->attrs.weight,
                .priority = t->attrs.priority,
        };
}

static struct extent_set *pick_set(struct pool *pool, const struct ns *spare)
{
        struct tenant *asking = spare->tenant;
        _cleanup_free_ struct share_tenant *shares = NULL;
        _cleanup_free_ struct tenant **tenants = NULL;
        size_t n = 0;

        list_for_each (t, &asking->store->tenants, struct tenant, link)
                n++;
        shares = calloc(n, sizeof(*shares));
        tenants = calloc(n, sizeof(*tenants));
        if (!shares || !tenants)
                return NULL; /* then nobody gives way: the lease is refused */
        /* In front, as ties go to the lower index: nobody gives way to an equal. */
        tenants[0] = asking;
        n = 1;
        list_for_each (t, &asking->store->tenants, struct tenant, link)
                if (t != asking)
                        tenants[n++] = t;
        for (size_t i = 0; i < n; i++)
                shares[i] = share_of(tenants[i], pool);
        return set_of_furthest(pool, spare, shares, tenants, n);
}

bool reclaim_sets_of_pool(struct pool *pool, const struct ns *spare, uint64_t bytes)
{
        while (!account_fits(&pool->account, bytes)) {
                struct extent_set *set = pick_set(pool, spare);

                if (account_fits(&pool->account, bytes))
                        break;
                if (!set)
                        return false;
                evict_set(set);
        }
        return true;
}
