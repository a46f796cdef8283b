/*
 * Connects events of lower modules with functions of higher ones, in a fixed order. A function here
 * calls the listeners, from the first to the last, and does nothing else.
 */
#include "daemon/core/wiring.h"

#include "daemon/core/cache/drop.h"
#include "daemon/core/cache/history.h"
#include "daemon/core/cache/nsset.h"
#include "daemon/core/cache/tag.h"
#include "daemon/core/moves/space.h"
#include "daemon/core/moves/transfer.h"
#include "daemon/core/sessions/session.h"
#include "daemon/core/reclaim/fetch.h"
#include "daemon/core/reclaim/prefetch.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/tenant.h"

static void page_goes(struct ns *ns, uint32_t page, struct drop_reason reason)
{
        sessions_page_goes(ns, page);
        nsset_gone(ns, page, reason);
        prefetch_note_gone(ns, page, reason);
        tag_remove(ns, page);
        drops_page_goes(ns, page);
}

static void page_swept(struct ns *ns, uint32_t page)
{
        nsset_swept(ns, page);
        history_note_stale(ns, page);
        sessions_page_goes(ns, page);
}

static void page_moved(struct ns *ns, uint32_t from, uint32_t to)
{
        tag_moved(ns, from, to);
        prefetch_note_moved(ns, from, to);
}

static void page_found(struct attach *a, uint32_t page)
{
        prefetch_note_found(a, page);
        tenant_tell(a->ns->tenant, page_found, a, page);
}

const struct core_listeners core_listeners = {
        .page_leaves_disk = space_forget,
        .page_goes = page_goes,
        .page_swept = page_swept,
        .page_moves = sessions_page_moved,
        .page_moved = page_moved,
        .page_found = page_found,
        .copy_unwanted = transfer_stop_wanting,
        .transfer_ended = fetch_ended,
};
