#include "daemon/core/requests/invalidate.h"

#include <errno.h>

#include "daemon/core/catalog/pages.h"
#include "daemon/core/moves/space.h"
#include "daemon/core/objects/group.h"
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

static int drop_key_for(struct drop *d, struct attach *a, const uint8_t key[KEY_BYTES],
        uint64_t budget, struct detail *detail)
{
        int r;

        drop_init(d);
        r = check_may_begin(a, detail);
        if (r != 0)
                return r;
        space_drop_unclaimed(a->ns);
        d->kind = DROP_SUBTREE;
        d->reason = (struct drop_reason){.why = EVICT_INVALIDATE, .cause = CAUSE_KEY};
        d->top = d->at = ns_find_page(a->ns, key);
        (void)drop_begin(d, a->ns, budget);
        return 0;
}

static int drop_tag_for(
        struct drop *d, struct attach *a, uint64_t tag, uint64_t budget, struct detail *detail)
{
        int r;

        drop_init(d);
        r = check_may_begin(a, detail);
        if (r != 0)
                return r;
        space_drop_unclaimed(a->ns);
        d->kind = DROP_TAG;
        d->reason = (struct drop_reason){.why = EVICT_INVALIDATE, .cause = CAUSE_TAG};
        d->tag = tag;
        (void)drop_begin(d, a->ns, budget);
        return 0;
}

int drop_key(struct drop *d, struct attach *a, const uint8_t key[KEY_BYTES], struct detail *detail)
{
        return drop_key_for(d, a, key, ns_store(a->ns)->drop_slice_pages, detail);
}

int drop_tag(struct drop *d, struct attach *a, uint64_t tag, struct detail *detail)
{
        return drop_tag_for(d, a, tag, ns_store(a->ns)->drop_slice_pages, detail);
}

int invalidate_key(
        struct attach *a, const uint8_t key[KEY_BYTES], uint64_t *ret_pages, struct detail *detail)
{
        struct drop d;
        int r = drop_key_for(&d, a, key, UINT64_MAX, detail);

        if (r == 0)
                *ret_pages = d.n_pages;
        return r;
}

int invalidate_tag(struct attach *a, uint64_t tag, uint64_t *ret_pages, struct detail *detail)
{
        struct drop d;
        int r = drop_tag_for(&d, a, tag, UINT64_MAX, detail);

        if (r == 0)
                *ret_pages = d.n_pages;
        return r;
}
