#include "daemon/core/reclaim.h"

#include <assert.h>
#include <stdlib.h>

#include "daemon/core/ns.h"
#include "daemon/core/store.h"
#include "daemon/core/tenant.h"
#include "policy/share.h"

bool reclaim_pages(struct ns *ns, uint32_t n, uint64_t now_nsec)
{
        assert(ns->keep_idle_sets);

        while (ns->n_pages[PAGE_FREE] < n) {
                uint32_t victim = ns->evict->victim(ns->policy, now_nsec);

                if (victim == NODE_NONE)
                        return false;
                assert(ns_page(ns, victim)->n_pins == 0);
                ns_drop_subtree(ns, victim, EVICT_PRESSURE);
        }
        return true;
}

/* The node after `node` in preorder below `top`, NODE_NONE at the end; `deeper`: children too. */
static uint32_t next_below(const struct tree *t, uint32_t top, uint32_t node, bool deeper)
{
        if (deeper && !tree_is_leaf(t, node))
                return tree_first_child(t, node);
        while (node != top && tree_next_sibling(t, node) == NODE_NONE)
                node = tree_parent(t, node);
        return node == top ? NODE_NONE : tree_next_sibling(t, node);
}

/*
 * Nothing at or below `top` is pinned. Pages of the set get a mark, and what is below a marked one
 * is not walked again: a set costs one walk over its subtrees however its pages lie in them.
 */
static bool subtree_is_idle(struct extent_set *set, uint32_t top)
{
        const struct ns *ns = set->ns;
        bool deeper;

        for (uint32_t node = top; node != NODE_NONE;
                node = next_below(&ns->tree, top, node, deeper)) {
                struct page *p = ns_page(ns, node);

                if (p->n_pins > 0)
                        return false;
                deeper = p->mark == 0;
                p->mark = ns_set_of(ns, node) == set;
        }
        return true;
}

static bool page_is_evictable(struct extent_set *set, uint32_t page)
{
        const struct page *p = ns_page(set->ns, page);

        if (p->state == PAGE_FREE || p->state == PAGE_NULL)
                return true;
        if (p->state != PAGE_SEALED || p->n_pins > 0)
                return false;
        return ns_page_is_stale(set->ns, p) || p->mark || subtree_is_idle(set, page);
}

static bool set_is_evictable(struct extent_set *set)
{
        uint32_t n = set->ns->geometry.set_pages, first = set->index * n;
        bool evictable = true;

        for (uint32_t i = 0; i < n && evictable; i++)
                evictable = page_is_evictable(set, first + i);
        for (uint32_t i = 0; i < n; i++)
                set->pages[i].mark = 0;
        return evictable;
}

static void evict_set(struct extent_set *set)
{
        struct ns *ns = set->ns;
        uint32_t n = ns->geometry.set_pages, first = set->index * n;

        ns->keep_idle_sets = true;
        for (uint32_t page = first; page < first + n; page++) {
                struct page *p = ns_page(ns, page);

                if (ns_page_is_stale(ns, p))
                        ns_free_page(ns, page);
                else if (p->state == PAGE_SEALED)
                        ns_drop_subtree(ns, page, EVICT_PRESSURE);
        }
        assert(set_is_idle(set));
        ns_trim(ns);
}

/* The set with the least cached in it, of one tenant; pool NULL: on any device. NULL: none. */
static struct extent_set *cheapest_set(
        struct tenant *t, const struct pool *pool, const struct ns *spare)
{
        struct extent_set *best = NULL;

        list_for_each (ns, &t->namespaces, struct ns, link) {
                if (ns == spare || (pool && ns->pool != pool))
                        continue;
                list_for_each (set, &ns->sets_bound, struct extent_set, link) {
                        if (set->n_mapped > 0 || (best && set->n_usable - set->n_free >=
                                                                  best->n_usable - best->n_free))
                                continue;
                        if (set_is_evictable(set))
                                best = set;
                }
        }
        return best;
}

bool reclaim_sets_of_tenant(struct tenant *t, const struct ns *spare, uint64_t bytes)
{
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
                        bytes += ns->n_sets * ns->geometry.set_bytes;
        return bytes;
}

/* In the order of who is furthest over; shares[i] is of tenants[i]. */
static struct extent_set *set_of_furthest(struct pool *pool, const struct ns *spare,
        struct share_tenant *shares, struct tenant **tenants, size_t n)
{
        size_t i;

        while ((i = share_furthest_over(shares, n)) != SIZE_MAX) {
                struct extent_set *set = cheapest_set(tenants[i], pool, spare);

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

                if (!set)
                        return false;
                evict_set(set);
        }
        return true;
}
