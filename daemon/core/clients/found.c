#include "daemon/core/clients/found.h"

#include "daemon/core/clients/request.h"
#include "daemon/core/state/listeners.h"
#include "daemon/core/state/store.h"
#include "policy/expect.h"

/* A lookup found the page as its deepest: that counts for its ancestors, too (drop_leaf()). */
uint32_t found_note(struct attach *a, uint32_t page, uint64_t request)
{
        struct ns *ns = a->ns;
        uint32_t n_walked;

        ns_note_use(ns, page);
        ns_note(ns, page)->was_found = 1;
        ns->evict->touch(ns->policy, page, request_id(a, request), ns->store->now_nsec);
        n_walked = expect_touched(ns->expect, page, ns_note(ns, page)->depth);
        ns->store->listeners->page_found(a, page);
        request_tell(ns, request_id(a, request), REQUEST_FOUND, page);
        return n_walked;
}

void count_lookups(struct ns *ns, uint64_t n_lookups, uint64_t n_keys, uint64_t n_hits)
{
        struct store_counters *c = &ns->store->counters;

        ns->counters.keys += n_keys;
        ns->counters.hits += n_hits;
        c->lookups += n_lookups;
        c->lookup_keys += n_keys;
        c->lookup_hits += n_hits;
}

uint32_t touch_page(
        struct attach *a, uint32_t page, uint32_t generation, uint64_t request, uint64_t now_nsec)
{
        struct ns *ns = a->ns;
        const struct page *p = ns_page(ns, page);
        uint32_t n_walked;

        store_set_now(ns->store, now_nsec);
        if (!p || p->state != PAGE_SEALED || ns_page_is_stale(ns, p) ||
                (uint32_t)p->generation != generation)
                return 0;
        n_walked = found_note(a, page, request);
        /* Also counts the policy's walk, which happens now or when the request ends. */
        return n_walked + MIN((uint32_t)ns_note(ns, page)->depth, EVICT_WALK_PAGES);
}
