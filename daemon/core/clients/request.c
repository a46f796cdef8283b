#include "daemon/core/clients/request.h"

#include "daemon/core/state/listeners.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "policy/expect.h"

uint64_t request_id(const struct attach *a, uint64_t request)
{
        struct hash_seed client = {a->member->id, 0};

        return request == 0 ? 0 : hash_bytes(client, &request, sizeof(request)) | 1;
}

void request_tell(struct ns *ns, uint64_t request, enum request_event what, uint32_t value)
{
        const struct store *s = ns->store;

        ns->learnt.has_work = ns->learnt.unsaved = true;
        if (s->owner.on_request)
                s->owner.on_request(ns, request, what, value, s->owner.data);
}

void request_end(struct attach *a, uint64_t request, uint32_t ending, uint64_t now_nsec)
{
        const struct evict_ops *evict = a->ns->evict;

        store_set_now(a->ns->store, now_nsec);
        if (request == 0)
                return;
        if (evict->ending)
                evict->ending(a->ns->policy, request_id(a, request), ending);
        evict->request_end(a->ns->policy, request_id(a, request), now_nsec);
        request_tell(a->ns, request_id(a, request), REQUEST_ENDED, ending);
}

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
