#include "daemon/core/cache/expire.h"

#include "base/clock.h"
#include "daemon/core/cache/drop.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/state/shared.h"

/* Page notes are in seconds. */
#define ROUND_MIN_NSEC NSEC_PER_SEC
/* A page expires late by at most 1/10 of its time. Not tuned. */
#define ROUNDS 10

uint64_t expire_nsec(const struct ns *ns)
{
        return ns->catalog.expiry.after_nsec > 0 ? ns->catalog.expiry.after_nsec
                                                 : ns->tenant->attrs.expire_nsec;
}

/* Returns the time between the beginnings of two rounds; 0: none. */
static uint64_t round_nsec(const struct ns *ns)
{
        uint64_t a = expire_nsec(ns), b = ns->tenant->attrs.expire_unused_nsec;
        uint64_t shortest = a > 0 && b > 0 ? MIN(a, b) : MAX(a, b);

        return shortest > 0 ? MAX(shortest / ROUNDS, ROUND_MIN_NSEC) : 0;
}

static bool is_older(uint32_t now_sec, uint32_t then_sec, uint64_t limit_nsec)
{
        return limit_nsec > 0 && (uint64_t)(now_sec - then_sec) * NSEC_PER_SEC >= limit_nsec;
}

static bool is_due(const struct ns *ns, uint32_t page)
{
        const struct page_note *n = ns_note(ns, page);
        uint32_t published_sec = ns_page(ns, page)->published_sec;
        uint32_t now_sec = store_now_sec(ns->store);

        return is_older(now_sec, n->used_sec, expire_nsec(ns)) ||
               (!n->was_found &&
                       is_older(now_sec, published_sec, ns->tenant->attrs.expire_unused_nsec));
}

/* Is the page an idle leaf? Held pages are checked again when they are released. */
static bool is_idle_leaf(const struct ns *ns, uint32_t page)
{
        const struct page *p = ns_page(ns, page);

        return p->state == PAGE_SEALED && !ns_page_is_stale(ns, p) && !page_is_held(p) &&
               tree_is_leaf(&ns->tree, page);
}

/* Expires the page if it is due, then its parents that became leaves, while they are due. */
static void expire_from(struct ns *ns, uint32_t page)
{
        while (page != NODE_NONE && is_idle_leaf(ns, page) && is_due(ns, page)) {
                uint32_t up = tree_parent(&ns->tree, page);

                if (!ns_expire_leaf(ns, page))
                        return;
                page = up;
        }
}

/* Looks at consecutive pages of one set. */
static void look_at_run(struct ns *ns, uint32_t first, uint32_t n)
{
        bool any = shared_run_is_pinned(ns, first, n);

        for (uint32_t page = first; page < first + n; page++) {
                if (ns_page(ns, page)->state != PAGE_SEALED)
                        continue;
                if (any && shared_is_pinned(ns, page))
                        ns_note_use(ns, page);
                else
                        expire_from(ns, page);
        }
}

/* Continues the round. Returns the number of page records looked at; 0: it has ended. */
static uint32_t go_on_with_round(struct ns *ns)
{
        uint32_t set_pages = ns->geometry.set_pages, page = ns->catalog.expiry.page;
        uint32_t left = set_pages - page % set_pages; /* in its set */

        if (page >= ns->geometry.capacity_pages)
                return 0;
        if (!ns_page(ns, page)) {
                ns->catalog.expiry.page += left;
                return 1;
        }
        left = MIN(left, SHARED_RUN_PAGES);
        ns->catalog.expiry.page += left;
        look_at_run(ns, page, left);
        return left;
}

bool expire_begin(struct store *s, uint64_t now_nsec)
{
        bool any = false;

        store_set_now(s, now_nsec);
        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link) {
                        uint64_t every = round_nsec(ns);

                        any |= ns->catalog.expiry.is_under_way;
                        if (every == 0 || ns->catalog.expiry.is_under_way ||
                                s->now_nsec < ns->catalog.expiry.round_nsec + every)
                                continue;
                        ns->catalog.expiry.round_nsec = s->now_nsec;
                        ns->catalog.expiry.page = 0;
                        ns->catalog.expiry.is_under_way = any = true;
                }
        return any;
}

bool expire_work(struct store *s, uint32_t budget)
{
        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link) {
                        while (ns->catalog.expiry.is_under_way && budget > 0) {
                                uint32_t n = go_on_with_round(ns);

                                ns->catalog.expiry.is_under_way = n > 0;
                                budget -= MIN(n, budget);
                        }
                        if (ns->catalog.expiry.is_under_way)
                                return true;
                }
        return false;
}

uint64_t expire_deadline(const struct store *s)
{
        uint64_t first = UINT64_MAX;

        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        if (round_nsec(ns) > 0 && ns_count_findable(ns) > 0)
                                first = MIN(first, ns->catalog.expiry.round_nsec + round_nsec(ns));
        return first;
}
