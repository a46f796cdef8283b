#include "daemon/core/clients/request.h"

#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"

uint64_t request_id(const struct attach *a, uint64_t request)
{
        struct hash_seed client = {a->member->id, 0};

        return request == 0 ? 0 : hash_bytes(client, &request, sizeof(request)) | 1;
}

void request_tell(struct ns *ns, uint64_t request, enum request_event what, uint32_t page)
{
        const struct store *s = ns->store;

        ns->learnt.has_work = ns->learnt.unsaved = true;
        if (s->owner.on_request)
                s->owner.on_request(ns, request, what, page, s->owner.data);
}

void request_end(struct attach *a, uint64_t request, uint64_t now_nsec)
{
        store_set_now(a->ns->store, now_nsec);
        if (request == 0)
                return;
        a->ns->evict->request_end(a->ns->policy, request_id(a, request), now_nsec);
        request_tell(a->ns, request_id(a, request), REQUEST_ENDED, PAGE_NONE);
}
