#include "daemon/core/sink.h"

#include <errno.h>

#include "daemon/core/ns.h"
#include "daemon/core/pool.h"
#include "daemon/core/room.h"
#include "daemon/core/store.h"
#include "daemon/core/tenant.h"
#include "daemon/core/transfer.h"
#include "policy/tier.h"

/* Of one namespace under way at a time: half of what all may have, so that two tenants share. */
#define SINKING_MAX (TRANSFERS_MAX / 2)

/* To find a place below: sets that go and come meanwhile, pages there that are read. Not tuned. */
#define MAX_TRIES 16

static struct store *store_of(const struct ns *ns)
{
        return ns->tenant->store;
}

/* Where what leaves a tier goes; TIER_COUNT: nowhere. */
static enum tier_kind tier_below(const struct ns *ns, enum tier_kind kind)
{
        do
                kind++;
        while (kind < TIER_COUNT && !ns->tiers[kind].pool);
        return kind;
}

static bool may_sink(const struct ns *ns)
{
        return tier_below(ns, TIER_DEVICE) < TIER_COUNT && ns->evict->lock;
}

void sink_note_taken(struct ns *ns)
{
        struct store *s = store_of(ns);

        if (!may_sink(ns))
                return;
        ns->may_be_due = true;
        if (s->on_transfer_work)
                s->on_transfer_work(s->callback_data);
}

/* Of what is asked for at once the largest, forgotten by an eighth of what is more than the others
 * with each. Not tuned. */
void sink_note_lease(struct ns *ns, uint32_t n)
{
        uint32_t over = ns->burst_pages > n ? ns->burst_pages - n : 0;

        ns->burst_pages = n + over - (over + 7) / 8;
}

/* Pages that are to go down now. */
static uint32_t count_due(struct ns *ns)
{
        uint32_t ahead = MAX(ns->stock_pages, ns->free_pages);
        struct tier_level l = {
                .capacity = ns->device.n_sets * ns->geometry.set_pages,
                .n_free = (uint32_t)ns_n_coming(ns),
                .n_leaving = transfer_count(ns, TRANSFER_DOWN),
                .n_ahead = MAX(ns->burst_pages, ahead),
                .n_most = SINKING_MAX,
        };

        if (!may_sink(ns) || ns->n_stale > 0 || room_leaves_another(ns))
                return 0;
        return tier_n_down(&ns->device.fill, &l);
}

/* ---- a place below -------------------------------------------------------------------------- */

static bool is_worth(const struct ns *ns, uint32_t page, enum tier_kind kind, uint32_t other)
{
        uint64_t bytes = ns->geometry.tiers[kind].stored_bytes, now = store_of(ns)->now_nsec;

        return !ns->evict->worth || tier_takes(ns->evict->worth(ns->policy, page, now), bytes,
                                            ns->evict->worth(ns->policy, other, now), bytes);
}

/* A FREE page of the tier, MOVING from now on, for `page`. 0; -ENOSPC: there is none; -EDQUOT: what
 * is there is worth more. */
static int take_place(struct ns *ns, uint32_t page, enum tier_kind kind, uint32_t *ret_page)
{
        struct ns_tier *tier = &ns->tiers[kind];
        struct extent_set *set;

        for (unsigned i = 0; i < MAX_TRIES; i++) {
                uint32_t other;

                set = list_first(&tier->sets_room, struct extent_set, room_link);
                if (set || set_bind_in(ns, kind, &set, NULL) == 0) {
                        *ret_page = set_take_page(set, &(struct page_use){.state = PAGE_MOVING});
                        return 0;
                }
                other = ns->evict->victim(ns->policy, kind, EVICT_DROP, store_of(ns)->now_nsec);
                if (other == NODE_NONE)
                        return -ENOSPC;
                if (!is_worth(ns, page, kind, other))
                        return -EDQUOT;
                (void)ns_evict_leaf(ns, other);
        }
        return -ENOSPC;
}

/* ---- a page --------------------------------------------------------------------------------- */

/* The next one that nobody reads, of those that aren't known to be read. */
static uint32_t next_victim(struct ns *ns)
{
        for (;;) {
                uint32_t page = ns->evict->victim(
                        ns->policy, TIER_DEVICE, EVICT_DEMOTE, store_of(ns)->now_nsec);

                if (page == NODE_NONE)
                        return page;
                if (ns_note(ns, page)->n_windows > 0) { /* which hold it where it is */
                        (void)ns_drop_subtree(ns, page, EVICT_PRESSURE);
                        continue;
                }
                if (!shared_is_pinned(ns, page))
                        return page;
                ns->evict->hold(ns->policy, page);
                ns_watch(ns, page);
        }
}

/* Once a turn it is looked who has stopped reading. */
static uint32_t find_victim(struct ns *ns)
{
        uint32_t page = next_victim(ns);

        if (page != NODE_NONE || ns->has_looked)
                return page;
        ns->has_looked = true;
        ns_look_again(ns, NS_LOOK_PAGES);
        return next_victim(ns);
}

/* False: nothing goes down, and nothing went for that. */
static bool sink_one(struct ns *ns)
{
        enum tier_kind kind = tier_below(ns, TIER_DEVICE);
        uint32_t page, to;
        int r;

        page = find_victim(ns);
        if (page == NODE_NONE)
                return false;
        ns->keep_idle_sets = true; /* one that is about to be used */
        r = take_place(ns, page, kind, &to);
        if (r == 0) {
                r = transfer_begin(ns, TRANSFER_DOWN, page, to, false);
                if (r < 0)
                        ns_free_page(ns, to);
        } else if (r == -EDQUOT && tree_is_leaf(&ns->tree, page)) {
                r = ns_evict_leaf(ns, page) ? 0 : -EBUSY;
        }
        ns_trim(ns);
        return r == 0;
}

bool sink_makes_room(struct ns *ns)
{
        if (may_sink(ns) && ns_n_room(ns) == 0)
                (void)sink_one(ns);
        return ns_n_room(ns) > 0 || transfer_count(ns, TRANSFER_DOWN) > 0;
}

/* ---- whose ---------------------------------------------------------------------------------- */

/* Of those that have something to move the one whose turn it is. */
static struct ns *next_ns(struct store *s)
{
        struct ns *best = NULL;
        uint64_t least = UINT64_MAX;

        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link) {
                        uint64_t turn;

                        if (ns->n_to_sink == 0)
                                continue;
                        turn = tier_turn(&ns->device.pool->sinking, &ns->device.stake->sinking);
                        if (!best || turn < least) {
                                best = ns;
                                least = turn;
                        }
                }
        return best;
}

static bool count_all_due(struct store *s)
{
        bool any = false;

        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link) {
                        ns->n_to_sink = ns->may_be_due ? count_due(ns) : 0;
                        ns->may_be_due = ns->n_to_sink > 0 || ns->device.fill.is_sinking;
                        ns->has_looked = false;
                        any |= ns->n_to_sink > 0;
                }
        return any;
}

bool sink_turn(struct store *s, uint64_t now_nsec)
{
        bool is_stuck = false;
        struct ns *ns;

        store_set_now(s, now_nsec);
        if (!s->mover || s->draining || !count_all_due(s))
                return false;
        while (s->n_sinking < TRANSFERS_MAX && (ns = next_ns(s))) {
                uint64_t bytes = ns->geometry.set_bytes / ns->geometry.set_pages;

                if (!sink_one(ns)) {
                        is_stuck = true;
                        ns->n_to_sink = 0;
                        continue;
                }
                ns->n_to_sink--;
                tier_take_turn(&ns->device.pool->sinking, &ns->device.stake->sinking, bytes,
                        ns->tenant->attrs.weight);
        }
        return is_stuck;
}
