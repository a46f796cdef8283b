#include "daemon/core/requests/invalidate.h"

#include <errno.h>

#include "daemon/core/catalog/pages.h"
#include "daemon/core/memory/settle.h"
#include "daemon/core/moves/space.h"
#include "daemon/core/objects/group.h"
#include "daemon/core/objects/listeners.h"
#include "daemon/core/objects/ns.h"
#include "daemon/core/objects/store.h"

static int check_may_begin(const struct attach *a, struct detail *detail)
{
        int r = attach_check_version(a, detail);

        if (r != 0 || drop_has_room(a->ns))
                return r;
        return detail_set(detail, -EAGAIN,
                "%d invalidations of namespace %s are under way, the most there may be: ask again "
                "when some are answered",
                DROPS_MAX, a->ns->name);
}

int drop_key(struct drop *d, struct attach *a, const uint8_t key[KEY_BYTES], struct detail *detail)
{
        SETTLE_AT_END(ns_store(a->ns));
        int r;

        drop_init(d);
        r = check_may_begin(a, detail);
        if (r != 0)
                return r;
        space_drop_unclaimed(a->ns);
        ns_store(a->ns)->listeners->key_invalidated(a->ns);
        d->kind = DROP_SUBTREE;
        d->reason = (struct drop_reason){.why = EVICT_INVALIDATE, .cause = CAUSE_KEY};
        d->top = d->at = ns_find_page(a->ns, key);
        (void)drop_begin(d, a->ns, ns_store(a->ns)->drop_slice_pages);
        return 0;
}

int drop_tag(struct drop *d, struct attach *a, uint64_t tag, struct detail *detail)
{
        SETTLE_AT_END(ns_store(a->ns));
        int r;

        drop_init(d);
        r = check_may_begin(a, detail);
        if (r != 0)
                return r;
        space_drop_unclaimed(a->ns);
        ns_store(a->ns)->listeners->key_invalidated(a->ns);
        d->kind = DROP_TAG;
        d->reason = (struct drop_reason){.why = EVICT_INVALIDATE, .cause = CAUSE_TAG};
        d->tag = tag;
        (void)drop_begin(d, a->ns, ns_store(a->ns)->drop_slice_pages);
        return 0;
}
