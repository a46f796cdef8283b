#include "daemon/core/requests/invalidate.h"

#include <errno.h>
#include <string.h>

#include "base/fault-point.h"
#include "base/probe.h"
#include "daemon/core/cache/announced.h"
#include "daemon/core/cache/note-events.h"
#include "daemon/core/cache/history.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/cache/tag.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/moves/space.h"
#include "daemon/core/state/feed.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/listeners.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/records.h"
#include "daemon/core/state/shared.h"
#include "daemon/core/sessions/session.h"
#include "daemon/core/reclaim/prefetch.h"
#include "policy/expect.h"

static int check_may_begin(const struct attach *a, struct detail *detail)
{
        int r = attach_check_version(a, detail);

        if (r != 0 || drop_has_room(a->ns))
                return r;
        return detail_set(detail, -EAGAIN,
                "%d invalidations of namespace %s are under way, the most there may be: ask again when some are answered",
                DROPS_MAX, a->ns->name);
}

int drop_key(struct drop *d, struct attach *a, const uint8_t key[KEY_BYTES], struct detail *detail)
{
        int r;

        drop_init(d);
        r = check_may_begin(a, detail);
        if (r != 0)
                return r;
        space_drop_unclaimed(a->ns);
        tenant_tell(a->ns->tenant, invalidated, a->ns, key, 0);
        d->kind = DROP_SUBTREE;
        d->reason = (struct drop_reason){.why = EVICT_INVALIDATE, .cause = CAUSE_KEY};
        d->top = d->at = ns_find_page(a->ns, key);
        (void)drop_begin(d, a->ns, a->ns->store->drop_slice_pages);
        return 0;
}

int drop_tag(struct drop *d, struct attach *a, uint64_t tag, struct detail *detail)
{
        int r;

        drop_init(d);
        r = check_may_begin(a, detail);
        if (r != 0)
                return r;
        space_drop_unclaimed(a->ns);
        tenant_tell(a->ns->tenant, invalidated, a->ns, NULL, tag);
        d->kind = DROP_TAG;
        d->reason = (struct drop_reason){.why = EVICT_INVALIDATE, .cause = CAUSE_TAG};
        d->tag = tag;
        (void)drop_begin(d, a->ns, a->ns->store->drop_slice_pages);
        return 0;
}

/* ---- all pages ------------------------------------------------------------------------------- */

/* The epoch makes cached pages unfindable; their slots stay until the sweep. The tree gets a
 * replacement, which is made first and can be thrown away. The policy may keep learnt state, so it
 * is reset in place, as the last step that can fail. */
int ns_empty(struct ns *ns, enum drop_cause cause, uint64_t *ret_pages)
{
        struct store *store = ns->store;
        uint64_t n_findable = ns_count_findable(ns);
        struct tree tree;
        int r;

        tree_init(&tree);
        tree_set_tiers(&tree, ns->tree.first, ns->tree.n_tiers);
        r = tree_reserve(&tree, ns->tree.n_nodes);
        if (r == 0)
                r = space_raise(ns);
        if (r == 0)
                r = ns->evict->reset(ns->policy);
        if (r < 0) {
                space_drop_missing(ns); /* if it was raised */
                tree_deinit(&tree);
                return r;
        }
        expect_free(ns->expect);
        ns->expect = NULL;
        tree_deinit(&ns->tree);
        ns->tree = tree;
        ancestors_deinit(&ns->catalog.ancestors);
        drops_reset(ns);
        prefetch_reset(ns);
        sessions_reset(ns);
        tags_reset(ns);
        ns->epoch++;
        records_commit_epoch(ns);
        shared_show_epochs(ns);
        feed_cleared(ns);
        FAULT_POINT("index-after-epochs");
        announce_withdraw_ns(ns);
        magazine_drain_ns(ns); /* its pages could only be published as stale */
        ns_note_stale(ns);
        history_note_all(ns, HISTORY_INVALIDATED, cause);
        note_emptied(ns, n_findable, cause);
        PROBE(kvleased, invalidate, ns->tenant, ns, n_findable, cause);
        *ret_pages = n_findable;
        if (store->owner.on_stale)
                store->owner.on_stale(ns, store->owner.data);
        return 0;
}

/* ---- changes of other hosts ------------------------------------------------------------------ */

int ns_follow_change(struct ns *ns, const uint8_t *key, uint64_t tag)
{
        const struct drop_reason reason = {.why = EVICT_INVALIDATE, .cause = CAUSE_HOST};
        uint64_t n_pages;
        uint32_t page;

        if (!key && tag == 0)
                return ns_empty(ns, CAUSE_HOST, &n_pages);
        space_drop_unclaimed(ns);
        if (!key)
                return drop_later(ns, DROP_TAG, PAGE_NONE, tag, reason);
        page = ns_find_page(ns, key);
        return page == PAGE_NONE ? 0 : drop_later(ns, DROP_SUBTREE, page, 0, reason);
}
