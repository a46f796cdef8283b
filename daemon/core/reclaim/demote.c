#include "daemon/core/reclaim/demote.h"

#include <errno.h>

#include "daemon/core/cache/drop.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/moves/space.h"
#include "daemon/core/moves/transfer.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/pool.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/memory/region.h"
#include "daemon/core/reclaim/reclaim.h"
#include "daemon/core/reclaim/room.h"
#include "daemon/core/state/shared.h"
#include "policy/tier.h"
#include "proto/status.h"

/* Demotions of all namespaces under way at a time: pages, or bytes if that is more pages. For pages
 * of 1 MiB it is some ms of copying for one thread; copies for clients come before these (mover.h,
 * "urgent"). Not tuned. */
#define DEMOTING_PAGES 32
#define DEMOTING_BYTES (UINT64_C(32) << 20)

/* Demotions of one namespace from one tier: half of that, so that two tenants share, or two units.
 */
#define DEMOTING_SHARE 2

/* Tries to find a place in the lower tier: sets come and go meanwhile, its pages may be read. Not
 * tuned. */
#define MAX_TRIES 16

/* The disk gets pages that were asked for again after they were published, or of texts with so many
 * tokens. Disks wear, and most pages are computed once and never asked for again
 * (docs/measure/TRACES.md). Not tuned. */
static const struct tier_filter disk_filter = {.min_uses = 2, .long_tokens = 16384};

/* Returns the pages that may be under way from the tier at a time. */
static uint32_t most_of(const struct ns *ns, enum tier_kind kind)
{
        uint64_t bytes = layout_page_bytes(&ns->layout);
        enum tier_kind below = tier_below(ns, kind);
        uint32_t units = below == TIER_COUNT ? 0 : 2 * tier_unit_pages(below, bytes);

        return MAX((uint32_t)DEMOTING_PAGES / DEMOTING_SHARE,
                MIN(units, (uint32_t)(DEMOTING_BYTES / DEMOTING_SHARE / bytes)));
}

static uint32_t count_leaving(const struct ns *ns, enum tier_kind kind)
{
        uint32_t n = 0;

        list_for_each (t, &ns->store->moving.transfers, struct transfer, link)
                n += t->ns == ns && t->kind == TRANSFER_DOWN &&
                     tier_of_page(&ns->geometry, t->from) == kind;
        return n;
}

/* Can the tier get another set when one is needed? */
static bool grows(const struct ns *ns, enum tier_kind kind)
{
        const struct ns_tier *tier = &ns->tiers[kind];
        const struct tier_geometry *g = &ns->geometry.tiers[kind];

        if (kind == TIER_DEVICE)
                return room_leaves_another(ns);
        return tier->n_sets < g->n_sets &&
               region_admits(tier->share, g->set_bytes, NULL) == LEASE_REASON_NONE;
}

/* Pages from above need as much space as may come at once. */
static struct tier_level level_of(const struct ns *ns, enum tier_kind kind)
{
        const struct ns_tier *tier = &ns->tiers[kind];
        uint32_t ready = MAX(ns->reclaim.prealloc.n_to_keep, ns->reclaim.prealloc.n_to_free);

        return (struct tier_level){
                .capacity = tier->n_sets * ns->geometry.set_pages,
                .n_free = (uint32_t)(tier->n_pages[PAGE_FREE] - tier->n_withheld +
                                     tier->n_preparing_pages),
                .n_leaving = count_leaving(ns, kind),
                .n_ahead = kind == TIER_DEVICE ? MAX(ns->reclaim.prealloc.burst_pages, ready)
                                               : most_of(ns, TIER_DEVICE),
                .n_most = most_of(ns, kind),
        };
}

uint32_t demote_n_kept(const struct ns *ns)
{
        struct tier_level l = level_of(ns, TIER_DEVICE);

        return tier_n_kept(&ns->device.fill, &l);
}

/* Returns the pages to demote now. */
static uint32_t count_due(struct ns *ns, enum tier_kind kind)
{
        struct tier_level l;

        if (!tier_may_demote(ns, kind) || ns->catalog.n_stale > 0 || grows(ns, kind))
                return 0;
        l = level_of(ns, kind);
        return tier_n_down(&ns->tiers[kind].fill, &l);
}

/* ---- a place in the lower tier --------------------------------------------------------------- */

static bool has_value(const struct ns *ns, uint32_t page, enum tier_kind kind, uint32_t other)
{
        uint64_t bytes = ns->geometry.tiers[kind].stored_bytes, now = ns->store->now_nsec;

        return !ns->evict->value || tier_takes(ns->evict->value(ns->policy, page, now), bytes,
                                            ns->evict->value(ns->policy, other, now), bytes);
}

static bool has_slot(const struct ns *ns, enum tier_kind kind)
{
        return ns->tiers[kind].n_sets + ns->tiers[kind].n_preparing <
               ns->geometry.tiers[kind].n_sets;
}

/* Binds another set, within limit and fair share; takes it from others if they exceed theirs.
 * Returns false if there is none. */
static bool bind_below(struct ns *ns, enum tier_kind kind)
{
        uint64_t bytes = ns->geometry.tiers[kind].set_bytes;
        struct pool_share *s = ns->tiers[kind].share;
        struct extent_set *set;
        int r = set_bind_in(ns, kind, NULL, &set, NULL);

        if (r != KVL_STATUS_FULL || !has_slot(ns, kind))
                return r == 0;
        region_note_want(s, bytes, bytes, ns->store->now_nsec);
        return region_make_room(s, ns, bytes, NULL) && set_bind_in(ns, kind, NULL, &set, NULL) == 0;
}

/* Binds another set at the cost of the tenant's other namespaces: this one has no victim. */
static bool bind_for_own(struct ns *ns, enum tier_kind kind)
{
        uint64_t bytes = ns->geometry.tiers[kind].set_bytes;
        struct pool_share *s = ns->tiers[kind].share;
        struct extent_set *set;
        bool is_less;

        if (!has_slot(ns, kind))
                return false;
        is_less = account_fits(s->account, bytes)
                          ? reclaim_set_of_share(s, ns, ns->tenant)
                          : reclaim_sets_of_tenant(ns->tenant, kind, ns, bytes);
        return is_less && set_bind_in(ns, kind, NULL, &set, NULL) == 0;
}

/* Takes a page of the tier, MOVING, for `page`. Returns 0; -ENOSPC: none; -EDQUOT: all are of more
 * value. */
static int take_place(struct ns *ns, uint32_t page, enum tier_kind kind, uint32_t *ret_page)
{
        struct ns_tier *tier = &ns->tiers[kind];
        struct extent_set *set;

        for (unsigned i = 0; i < MAX_TRIES; i++) {
                uint32_t other;

                if (!list_is_empty(&tier->sets_room) || bind_below(ns, kind)) {
                        set = list_first(&tier->sets_room, struct extent_set, room_link);
                        *ret_page = set_take_page(set, &(struct page_use){.state = PAGE_MOVING});
                        return 0;
                }
                other = ns_victim(ns, kind, EVICT_DROP);
                if (other == NODE_NONE &&
                        (bind_for_own(ns, kind) || ns_yield_expected(ns, kind, EVICT_DROP)))
                        continue;
                if (other == NODE_NONE)
                        return -ENOSPC;
                if (!has_value(ns, page, kind, other))
                        return -EDQUOT;
                (void)ns_evict_leaf(ns, other, NULL);
        }
        return -ENOSPC;
}

/* ---- a page --------------------------------------------------------------------------------- */

/* Returns the next victim that isn't read. Marks those that are as held. */
static uint32_t next_victim(struct ns *ns, enum tier_kind kind)
{
        for (;;) {
                uint32_t page = ns_victim(ns, kind, EVICT_DEMOTE);

                if (page == NODE_NONE)
                        return page;
                if (ns_extra(ns, page)->n_windows > 0) { /* windows hold it where it is */
                        (void)ns_drop_subtree(
                                ns, page, (struct drop_reason){.why = EVICT_PRESSURE});
                        continue;
                }
                if (!shared_is_pinned(ns, page))
                        return page;
                ns->evict->hold(ns->policy, page);
                ns_watch(ns, page);
        }
}

/* Looks once a turn for pages that aren't read any more. */
static uint32_t find_victim(struct ns *ns, enum tier_kind kind)
{
        uint32_t page = next_victim(ns, kind);

        if (page != NODE_NONE || ns->demotion.has_looked)
                return page;
        ns->demotion.has_looked = true;
        ns_look_again(ns, NS_LOOK_PAGES);
        return next_victim(ns, kind);
}

/* May the page go to the tier? A page that continues a text on the disk may. */
static bool is_admitted(const struct ns *ns, uint32_t page, enum tier_kind kind)
{
        const struct page_note *note = ns_note(ns, page);

        return kind != TIER_DISK || !tree_is_leaf(&ns->tree, page) ||
               tier_admits(&disk_filter, 1 + note->was_found, ns_page(ns, page)->end_token);
}

static int drop_one(struct ns *ns, uint32_t page)
{
        return tree_is_leaf(&ns->tree, page) && ns_evict_leaf(ns, page, NULL) ? 0 : -EBUSY;
}

static int begin_demoting(struct ns *ns, uint32_t page, enum tier_kind kind)
{
        uint32_t to;
        int r = is_admitted(ns, page, kind) ? take_place(ns, page, kind, &to) : -EDQUOT;

        if (r < 0)
                return r;
        r = transfer_begin(ns, TRANSFER_DOWN, page, to, false);
        if (r < 0)
                ns_free_page(ns, to);
        return r;
}

/* Returns the parent if it becomes the next victim once `page` is demoted, so that both are demoted
 * together. NODE_NONE: it doesn't, or was used later. */
static uint32_t find_next(const struct ns *ns, uint32_t page)
{
        uint32_t up = tree_hides_tip(&ns->tree, page) ? tree_parent(&ns->tree, page) : NODE_NONE;

        if (up == NODE_NONE || ns_set_of(ns, up)->tier != ns_set_of(ns, page)->tier ||
                !page_is_idle(ns, up) || shared_is_pinned(ns, up) ||
                ns_note(ns, up)->used_sec > ns_note(ns, page)->used_sec || transfer_find(ns, up))
                return NODE_NONE;
        return up;
}

static bool may_begin(const struct store *s)
{
        return s->moving.n_demoting < DEMOTING_PAGES || s->moving.demoting_bytes < DEMOTING_BYTES;
}

int demote_page(struct ns *ns, uint32_t page)
{
        int r;

        if (!may_begin(ns->store))
                return -EBUSY;
        r = begin_demoting(ns, page, tier_below(ns, TIER_DEVICE));
        return r;
}

/* Demotes `page` and its parents, at most `most` pages together. Returns how many; 0: no page is
 * demoted or was dropped. */
static uint32_t demote_text(struct ns *ns, enum tier_kind from, uint32_t page, uint32_t most)
{
        enum tier_kind kind = tier_below(ns, from);
        uint32_t end = page, n = 0;
        int r = 0;

        for (; page != NODE_NONE && n < most; page = find_next(ns, page)) {
                r = begin_demoting(ns, page, kind);
                if (r < 0)
                        break;
                n++;
        }
        if (n == 0 && r == -EDQUOT)
                n += drop_one(ns, end) == 0;
        return n;
}

static uint32_t demote_some(struct ns *ns, enum tier_kind from, uint32_t most)
{
        uint32_t page = find_victim(ns, from);

        return page == NODE_NONE ? 0 : demote_text(ns, from, page, most);
}

static bool has_room_soon(const struct ns *ns)
{
        return ns_n_room(ns) > 0 || transfer_count(ns, TRANSFER_DOWN) > 0;
}

bool demote_makes_room(struct ns *ns)
{
        if (!tier_may_demote(ns, TIER_DEVICE) || ns_n_room(ns) > 0)
                return has_room_soon(ns);
        while (demote_some(ns, TIER_DEVICE, 1) == 0 && !has_room_soon(ns))
                if (!ns_yield_expected(ns, TIER_DEVICE, EVICT_DEMOTE))
                        return false;
        return has_room_soon(ns);
}

/* Does `page` continue a text that begins with `up`? */
static bool comes_before(const struct ns *ns, uint32_t up, uint32_t page)
{
        uint32_t depth = ns_note(ns, up)->depth;

        while (page != NODE_NONE && ns_note(ns, page)->depth > depth)
                page = tree_parent(&ns->tree, page);
        return page == up;
}

/* Victims that are parents of the page, and are skipped in one call. Not tuned. */
#define MAX_PASSED 32

/* Returns the next victim that isn't a parent of `page`, which would have to be promoted, too. */
static uint32_t find_other_victim(struct ns *ns, uint32_t page)
{
        uint32_t passed[MAX_PASSED], n = 0, victim = find_victim(ns, TIER_DEVICE);

        while (victim != NODE_NONE && n < MAX_PASSED && comes_before(ns, victim, page)) {
                ns->evict->lock(ns->policy, victim);
                passed[n++] = victim;
                victim = find_victim(ns, TIER_DEVICE);
        }
        if (victim != NODE_NONE && comes_before(ns, victim, page))
                victim = NODE_NONE;
        while (n > 0)
                ns->evict->unlock(ns->policy, passed[--n]);
        return victim;
}

bool demote_swaps(struct ns *ns, uint32_t page, enum demote_for why)
{
        uint64_t now_nsec = ns->store->now_nsec;
        uint32_t victim =
                tier_may_demote(ns, TIER_DEVICE) ? find_other_victim(ns, page) : NODE_NONE;

        if (victim == NODE_NONE)
                return false;
        if (why != DEMOTE_FOR_EXPECTED &&
                (ns->evict->value ? ns->evict->value(ns->policy, page, now_nsec) <=
                                            ns->evict->value(ns->policy, victim, now_nsec)
                                  : why != DEMOTE_FOR_READER))
                return false;
        return demote_text(ns, TIER_DEVICE, victim, 1) > 0;
}

/* ---- turns ----------------------------------------------------------------------------------- */

/* Returns the namespace whose turn it is, of those with pages to demote from the tier. */
static struct ns *next_ns(struct store *s, enum tier_kind kind)
{
        struct ns *best = NULL;
        uint64_t least = UINT64_MAX;

        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link) {
                        const struct ns_tier *tier = &ns->tiers[kind];
                        uint64_t turn;

                        if (tier->n_to_demote == 0)
                                continue;
                        turn = tier_turn(&tier->pool->demoting, &tier->share->demoting);
                        if (!best || turn < least) {
                                best = ns;
                                least = turn;
                        }
                }
        return best;
}

static bool count_ns_due(struct ns *ns)
{
        bool any = false, is_demoting = false;

        ns->demotion.has_looked = false;
        for (enum tier_kind kind = TIER_DEVICE; kind < TIER_COUNT; kind++) {
                struct ns_tier *tier = &ns->tiers[kind];

                tier->n_to_demote = ns->demotion.may_be_due && tier->pool ? count_due(ns, kind) : 0;
                any |= tier->n_to_demote > 0;
                is_demoting |= tier->fill.is_demoting;
        }
        ns->demotion.may_be_due = any || is_demoting;
        return any;
}

static bool count_all_due(struct store *s)
{
        bool any = false;

        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        any |= count_ns_due(ns);
        return any;
}

/* Returns true if a demotion can't begin. */
static bool demote_tier(struct store *s, enum tier_kind kind)
{
        bool is_stuck = false;
        struct ns *ns;

        while (may_begin(s) && (ns = next_ns(s, kind))) {
                struct ns_tier *tier = &ns->tiers[kind];
                uint64_t bytes = ns->geometry.tiers[kind].set_bytes / ns->geometry.set_pages;
                uint64_t plain = layout_page_bytes(&ns->layout);
                uint32_t unit = tier_unit_pages(tier_below(ns, kind), plain);
                uint32_t n = demote_some(ns, kind, MIN(unit, tier->n_to_demote));

                tier->n_to_demote -= n;
                if (n == 0) {
                        is_stuck = true;
                        tier->n_to_demote = 0;
                        continue;
                }
                tier_take_turn(&tier->pool->demoting, &tier->share->demoting, n * bytes,
                        ns->tenant->attrs.weight);
        }
        return is_stuck;
}

bool demote_turn(struct store *s, uint64_t now_nsec)
{
        bool is_stuck = false;

        store_set_now(s, now_nsec);
        if (!s->moving.mover || s->draining || !count_all_due(s))
                return false;
        for (enum tier_kind kind = TIER_DEVICE; kind < TIER_DISK; kind++)
                is_stuck |= demote_tier(s, kind);
        return transfer_start(s) || is_stuck;
}
