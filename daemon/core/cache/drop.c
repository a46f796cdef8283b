#include "daemon/core/cache/drop.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/probe.h"
#include "daemon/core/cache/note-events.h"
#include "daemon/core/cache/history.h"
#include "daemon/core/cache/nsset.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/cache/tag.h"
#include "daemon/core/state/listeners.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/memory/tasks.h"
#include "daemon/core/state/shared.h"
#include "policy/expect.h"

/* ---- leaves --------------------------------------------------------------------------------- */

uint32_t ns_victim(struct ns *ns, enum tier_kind kind, enum evict_how how)
{
        uint64_t now_nsec = ns->store->now_nsec;

        expect_prune(ns->expect, now_nsec);
        return ns->evict->victim(ns->policy, kind, how, now_nsec);
}

bool ns_yield_expected(struct ns *ns, enum tier_kind kind, enum evict_how how)
{
        return expect_yield(ns->expect, kind, how);
}

/* Copies a leaf's use to its parent: lookups note only the deepest page that they find. */
static void hand_up(struct ns *ns, uint32_t page)
{
        const struct page_note *note = ns_note(ns, page);
        uint32_t up = tree_parent(&ns->tree, page);
        struct page_note *parent;

        if (up == NODE_NONE)
                return;
        parent = ns_note(ns, up);
        parent->used_sec = MAX(parent->used_sec, note->used_sec);
        parent->was_found |= note->was_found;
}

static void drop_leaf(struct ns *ns, uint32_t page, struct drop_reason reason, bool is_retired)
{
        const struct page *p = ns_page(ns, page);

        assert(p->state == PAGE_SEALED && !ns_page_is_stale(ns, p));

        /* A process that can write the segment (a memfd, with the same uid) may have removed the
         * slot. */
        (void)shared_remove(ns, page);
        if (reason.why == EVICT_INVALIDATE && reason.cause != CAUSE_SESSION &&
                tier_of_page(&ns->geometry, page) == TIER_DISK)
                /* Removes the page there even if clients read it: no lookup may find it. */
                ns->store->listeners->page_leaves_disk(ns, page);
        history_note_drop(ns, page, reason);
        note_gone(ns, page, reason);
        PROBE(kvleased, evict, ns->tenant, ns, page, p->tokens, reason.cause, reason.by);
        hand_up(ns, page);
        ns->store->listeners->page_goes(ns, page, reason);
        expect_leaves(ns->expect, page);
        ns->evict->remove(ns->policy, page, reason.why);
        ns_leave_tree(ns, page);
        if (page_pins(p) > 0)
                ns_set_state(ns, page, PAGE_DETACHED);
        else
                ns_let_go(ns, page, is_retired);
}

static void count_evictions(struct ns *ns, uint64_t n)
{
        ns->counters.evictions += n;
        ns->tenant->counters.evictions += n;
        ns->store->counters.evictions += n;
}

static bool drop_idle_leaf(struct ns *ns, uint32_t page, struct drop_reason reason)
{
        assert(page_pins(ns_page(ns, page)) == 0);

        if (!nsset_may_evict(ns, page) || !shared_retire(ns, page)) {
                ns->evict->hold(ns->policy, page);
                ns_watch(ns, page);
                return false;
        }
        drop_leaf(ns, page, reason, true);
        return true;
}

bool ns_evict_leaf(struct ns *ns, uint32_t page, const struct tenant *by)
{
        if (!drop_idle_leaf(ns, page, (struct drop_reason){.why = EVICT_PRESSURE, .by = by}))
                return false;
        count_evictions(ns, 1);
        return true;
}

bool ns_expire_leaf(struct ns *ns, uint32_t page)
{
        const struct drop_reason reason = {.why = EVICT_INVALIDATE, .cause = CAUSE_EXPIRED};
        bool went = drop_idle_leaf(ns, page, reason);

        ns->counters.expired += went;
        ns->store->counters.pages_expired += went;
        return went;
}

uint64_t ns_drop_leaves(struct ns *ns, uint32_t page, uint64_t most, struct drop_reason reason)
{
        uint32_t up = page, leaf;
        uint64_t n = 0;

        /* Continues at the leaf's parent: from `page`, a chain would take quadratic time. */
        do {
                leaf = tree_leaf_below(&ns->tree, up);
                up = tree_parent(&ns->tree, leaf);
                drop_leaf(ns, leaf, reason, false);
                n++;
        } while (leaf != page && n < most);
        if (reason.why == EVICT_PRESSURE)
                count_evictions(ns, n);
        return n;
}

uint64_t ns_drop_subtree(struct ns *ns, uint32_t page, struct drop_reason reason)
{
        return ns_drop_leaves(ns, page, UINT64_MAX, reason);
}

/* ---- drops ---------------------------------------------------------------------------------- */

void drops_page_goes(struct ns *ns, uint32_t page)
{
        list_for_each (d, &ns->catalog.drops, struct drop, link) {
                if (d->at == page)
                        d->at = d->top == page ? PAGE_NONE : tree_parent(&ns->tree, page);
                if (d->top == page)
                        d->top = PAGE_NONE;
        }
}

void drops_page_moved(struct ns *ns, uint32_t page, uint32_t to)
{
        list_for_each (d, &ns->catalog.drops, struct drop, link) {
                if (d->at == page)
                        d->at = to;
                if (d->top == page)
                        d->top = to;
        }
}

/* Is there a page left to drop? Then `at` is that page or above it. */
static bool is_left(struct drop *d)
{
        switch (d->kind) {
        case DROP_TAG:
                if (d->at == PAGE_NONE)
                        d->top = d->at = tag_first(d->ns, d->tag);
                break;
        case DROP_TEXT:
                return d->at != PAGE_NONE && ns_note(d->ns, d->at)->depth > d->stop_depth &&
                       !d->is_wanted(d->ns, d->at);
        case DROP_SUBTREE:
                break;
        }
        return d->at != PAGE_NONE;
}

/* Looks at one page: goes down to a child, or drops the leaf. */
static void look_at_page(struct drop *d)
{
        uint32_t child = tree_first_child(&d->ns->tree, d->at);

        if (child != NODE_NONE) {
                d->at = child;
                return;
        }
        drop_leaf(d->ns, d->at, d->reason, false); /* moves `at` to its parent */
        d->n_pages++;
        if (d->reason.why == EVICT_PRESSURE)
                count_evictions(d->ns, 1);
}

static void end_drop(struct drop *d)
{
        d->top = d->at = PAGE_NONE;
        list_remove(&d->link);
}

/* Does at most `budget` looks and returns their number. The drop may be over then. */
static uint64_t take_slice(struct drop *d, uint64_t budget)
{
        uint64_t n = 0;
        bool more;

        for (; (more = is_left(d)) && n < budget; n++)
                look_at_page(d);
        if (!more)
                end_drop(d);
        return n;
}

void drop_init(struct drop *d)
{
        *d = (struct drop){.top = PAGE_NONE, .at = PAGE_NONE};
        list_init(&d->link);
        task_init(&d->task);
}

uint64_t drop_begin(struct drop *d, struct ns *ns, uint64_t budget)
{
        d->ns = ns;
        list_append(&ns->catalog.drops, &d->link);
        return take_slice(d, budget);
}

bool drop_has_room(const struct ns *ns)
{
        unsigned n = 0;

        list_for_each (d, &ns->catalog.drops, struct drop, link)
                n++;
        return n < DROPS_MAX;
}

void drop_move(struct drop *d, struct drop *to)
{
        bool is_over = drop_is_over(d);

        *to = *d;
        list_init(&to->link);
        task_init(&to->task);
        if (!is_over)
                list_append(&to->ns->catalog.drops, &to->link);
        end_drop(d);
}

void drop_cancel(struct drop *d)
{
        end_drop(d);
}

/* ---- turns ---------------------------------------------------------------------------------- */

static bool work_on_drop(struct task *c, uint64_t budget)
{
        struct drop *d = container_of(c, struct drop, task);

        if (!drop_is_over(d))
                (void)take_slice(d, budget);
        if (!drop_is_over(d))
                return true;
        d->done(d);
        return false;
}

void drop_queue(struct drop *d, void (*done)(struct drop *d))
{
        assert(!drop_is_over(d));

        d->done = done;
        d->task.work = work_on_drop;
        task_queue(&d->task, d->ns->tenant);
}

/* Owners of drops are notified in their turns. */
void drops_reset(struct ns *ns)
{
        list_for_each_safe (d, &ns->catalog.drops, struct drop, link)
                end_drop(d);
}

void drops_end(struct ns *ns)
{
        struct tenant *t = ns->tenant;

        drops_reset(ns);
        list_for_each_safe (c, &t->tasks, struct task, link) {
                struct drop *d = container_of(c, struct drop, task);

                if (c->work != work_on_drop || d->ns != ns)
                        continue;
                task_remove(c, t);
                d->done(d);
        }
}

/* ---- drops without a waiting caller ---------------------------------------------------------- */

static void free_drop(struct drop *d)
{
        free(d);
}

/* Queues the rest of the drop. Returns false without memory: the drop isn't over. */
static bool leave_rest(struct drop *d)
{
        struct drop *rest;

        if (drop_is_over(d))
                return true;
        rest = malloc(sizeof(*rest));
        if (!rest)
                return false;
        drop_move(d, rest);
        drop_queue(rest, free_drop);
        return true;
}

static uint64_t begin_below(
        struct drop *d, struct ns *ns, uint32_t page, struct drop_reason reason, uint64_t budget)
{
        drop_init(d);
        d->kind = DROP_SUBTREE;
        d->reason = reason;
        d->top = d->at = page;
        return drop_begin(d, ns, budget);
}

void drop_below(struct ns *ns, uint32_t page, struct drop_reason reason)
{
        bool may_wait = drop_has_room(ns);
        struct drop d;

        (void)begin_below(
                &d, ns, page, reason, may_wait ? ns->store->drop_slice_pages : UINT64_MAX);
        if (!leave_rest(&d))
                (void)take_slice(&d, UINT64_MAX);
}

uint64_t drop_below_soon(struct ns *ns, uint32_t page, struct drop_reason reason, uint64_t budget)
{
        struct drop d;
        uint64_t n;

        list_for_each (other, &ns->catalog.drops, struct drop, link)
                if (other->top == page)
                        return 0;
        if (!drop_has_room(ns))
                return 0;
        n = begin_below(&d, ns, page, reason, budget);
        if (!leave_rest(&d))
                end_drop(&d);
        return n;
}

int drop_later(
        struct ns *ns, enum drop_kind kind, uint32_t page, uint64_t tag, struct drop_reason reason)
{
        struct drop *d;

        if (!drop_has_room(ns))
                return -EAGAIN;
        d = malloc(sizeof(*d));
        if (!d)
                return -ENOMEM;
        drop_init(d);
        d->kind = kind;
        d->reason = reason;
        d->top = d->at = page;
        d->tag = tag;
        (void)drop_begin(d, ns, 0);
        if (drop_is_over(d))
                free(d);
        else
                drop_queue(d, free_drop);
        return 0;
}

uint64_t drop_text(struct ns *ns, uint32_t page, uint32_t stop_depth, drop_wanted_fn is_wanted)
{
        struct drop d;
        uint64_t n;

        drop_init(&d);
        d.kind = DROP_TEXT;
        d.reason = (struct drop_reason){.why = EVICT_INVALIDATE, .cause = CAUSE_SESSION};
        d.at = page;
        d.stop_depth = stop_depth;
        d.is_wanted = is_wanted;
        n = drop_begin(&d, ns, ns->store->drop_slice_pages);
        if (!drop_is_over(&d) && (!drop_has_room(ns) || !leave_rest(&d)))
                end_drop(&d);
        return n;
}

/* ---- check ---------------------------------------------------------------------------------- */

/* Is `top` the page or above it? */
static bool is_below(const struct ns *ns, uint32_t page, uint32_t top)
{
        while (page != top && page != NODE_NONE)
                page = tree_parent(&ns->tree, page);
        return page == top;
}

const char *drops_check(const struct ns *ns)
{
        list_for_each (d, &ns->catalog.drops, struct drop, link) {
                if (d->ns != ns || !task_is_queued(&d->task))
                        return "a drop that isn't over waits for no turn";
                if (d->at != PAGE_NONE && !tree_has(&ns->tree, d->at))
                        return "a drop goes on at a page that isn't cached";
                if (d->kind != DROP_TEXT && d->at != PAGE_NONE && !is_below(ns, d->at, d->top))
                        return "a drop goes on at a page that isn't below its top";
        }
        return NULL;
}
