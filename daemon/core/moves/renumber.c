#include "daemon/core/moves/renumber.h"

#include <assert.h>
#include <string.h>

#include "base/fault-point.h"
#include "daemon/core/cache/drop.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/state/feed.h"
#include "daemon/core/state/listeners.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/records.h"
#include "daemon/core/state/shared.h"
#include "policy/expect.h"

/* Copies client, was_found and depth; the caller sets links and times. */
static void move_note(const struct page_note *from, struct page_note *to)
{
        to->seq = PAGE_SEQ_NONE; /* first: the new owner didn't lease it */
        atomic_signal_fence(memory_order_seq_cst);
        to->client = from->client;
        to->was_found = from->was_found;
        to->depth = from->depth;
}

/* Makes the children's records agree with the tree. */
static void adopt_children(struct ns *ns, uint32_t page)
{
        uint32_t child = tree_first_child(&ns->tree, page);

        for (; child != NODE_NONE; child = tree_next_sibling(&ns->tree, child))
                records_reparent(ns, child, page);
}

/* A kill in between leaves two pages with the key and the same parent. Recovery gives the one that
 * it keeps the children of both. */
static void take_place(struct ns *ns, uint32_t from, uint32_t to, uint64_t content)
{
        const struct page *old = ns_page(ns, from);
        struct page *p = ns_page(ns, to);

        assert(old->state == PAGE_SEALED && (p->state == PAGE_MOVING || p->state == PAGE_GRANTED));

        ns->store->listeners->page_moves(ns, from, to); /* first: session-log.h */
        FAULT_POINT("move-before-key");
        memcpy(p->key, old->key, KEY_BYTES);
        p->tokens = old->tokens;
        p->epoch = old->epoch;
        p->end_token = old->end_token;
        move_note(ns_note(ns, from), ns_note(ns, to));
        if (tier_of_page(&ns->geometry, to) != TIER_DEVICE)
                ns_make_extra(ns, to)->content = content;
        FAULT_POINT("move-after-note");
        feed_moves(ns, from, to);
        records_seal(ns, to, p->generation, ns_note(ns, from)->place.parent);
        shared_describe(ns, to);
        ns_set_state(ns, to, PAGE_SEALED);
        p->published_sec = old->published_sec;
        ns_note(ns, to)->used_sec = ns_note(ns, from)->used_sec;
        FAULT_POINT("move-two-pages");
        /* A process that can write the segment may have removed the slot; insert it again. */
        if (!shared_replace(ns, from, to))
                (void)shared_insert(ns, shared_hash(&ns->shared, p->key), to);
        tree_move(&ns->tree, from, to);
        ancestors_move(&ns->catalog.ancestors, from, to, ns_note(ns, to)->depth);
        drops_page_moved(ns, from, to);
        adopt_children(ns, to);
        FAULT_POINT("move-before-free");
        ns->store->listeners->page_moved(ns, from, to);
        feed_moved(ns, from, to);
        ns->evict->move(ns->policy, from, to);
        expect_moved(ns->expect, from, to);
}

void renumber_page(struct ns *ns, uint32_t from, uint32_t to, uint64_t content)
{
        take_place(ns, from, to, content);
        ns_free_page(ns, from);
}

void renumber_pinned_page(struct ns *ns, uint32_t from, uint32_t to, uint64_t content)
{
        bool was_held = page_is_held(ns_page(ns, from));

        take_place(ns, from, to, content);
        if (was_held)
                ns->evict->idle(ns->policy, to, ns->store->now_nsec);
        ns_leave_page(ns, from);
}
