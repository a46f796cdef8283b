#include "daemon/core/reclaim/recall-work.h"

#include <errno.h>

#include "base/map.h"
#include "base/probe.h"
#include "daemon/core/cache/drop.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/clients/pin.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/moves/transfer.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/pool.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/memory/region.h"
#include "daemon/core/memory/wait.h"
#include "daemon/core/reclaim/compact.h"
#include "daemon/core/reclaim/take-back.h"
#include "daemon/core/state/shared.h"
#include "daemon/core/sessions/session.h"
#include "daemon/core/reclaim/demote.h"
#include "policy/evict.h"

struct work {
        struct store *store;
        uint64_t now_nsec, timeout_nsec;
        uint32_t budget;
};

static void spend_budget(struct work *w, uint64_t n)
{
        w->budget -= (uint32_t)MIN(n, (uint64_t)w->budget);
}

/* Does the member, or its group, hold a page of the set? */
static bool holds_page_of(struct work *w, const struct attach *a, const struct extent_set *set)
{
        uint32_t n = set->ns->geometry.set_pages, first = set->index * n;

        if (set_is_unheld(set))
                return false;
        spend_budget(w, n);
        for (uint32_t i = 0; i < n; i++) {
                const struct page *p = &set->pages[i];

                if (p->state == PAGE_GRANTED && p->owner == a->member->group->id && !p->given_back)
                        return true;
                if (page_is_shown(p->state) && pin_has(a, first + i))
                        return true;
        }
        return false;
}

static bool may_demote(const struct work *w, const struct extent_set *set)
{
        const struct set_recall *r = &set->recall;

        return r->state == RECALL_ASKED && r->kind != RECALL_COMPACT && !r->is_demoted &&
               set_kind(set) == TIER_DEVICE && demote_is_possible(set->ns) &&
               w->store->moving.mover && w->now_nsec < r->begun_nsec + RECALL_DEMOTE_NSEC &&
               region_missing(set->pool) == 0 && !wait_any_for_room(w->store);
}

/* Demotes cached pages, the beginnings of texts first: they stay if the rest must be dropped.
 * Returns true while pages are being demoted, or are left. */
static bool demote_what_is_cached(struct work *w, struct extent_set *set)
{
        struct ns *ns = set->ns;
        uint32_t n = ns->geometry.set_pages, page;

        if (!may_demote(w, set)) {
                set->recall.is_demoted = true;
                return false;
        }
        for (; set->recall.demote_at < n && w->budget > 0; set->recall.demote_at++) {
                page = set->index * n + set->recall.demote_at;
                spend_budget(w, 1);
                if (page_is_idle(ns, page) && !shared_is_pinned(ns, page) &&
                        !transfer_find(ns, page) && demote_page(ns, page) == -EBUSY)
                        return true;
        }
        set->recall.is_demoted = set->recall.demote_at == n && set->moving.n_busy == 0;
        return !set->recall.is_demoted;
}

/* Drops or detaches the set's cached pages. Returns false if there is more. */
static bool purge_what_is_cached(struct work *w, struct extent_set *set)
{
        const struct drop_reason reason = {
                .why = EVICT_PRESSURE, .cause = CAUSE_RECALL, .by = set->recall.by};
        struct ns *ns = set->ns;
        uint32_t n = ns->geometry.set_pages;

        if (set_is_unheld(set))
                set->recall.n_purged = n;
        else if (!set->recall.left_windows)
                spend_budget(w, sessions_leave_set(set));
        set->recall.left_windows = true;
        while (set->recall.n_purged < n) {
                uint32_t i = set->recall.n_purged, page = set->index * n + i;
                const struct page *p = &set->pages[i];

                if (w->budget == 0)
                        return false;
                spend_budget(w, 1);
                if (ns_page_is_stale(ns, p))
                        ns_sweep_page(ns, page);
                else if (p->state == PAGE_SEALED)
                        spend_budget(w, ns_drop_leaves(ns, page, MAX(w->budget, 1u), reason));
                set->recall.n_purged += p->state != PAGE_SEALED;
        }
        return true;
}

/* Checks pins in segments, once a round for all sets of the namespace. */
static void look_at_pins(struct work *w, struct ns *ns)
{
        if (ns->periodic.look_round == w->store->recalls.round)
                return;
        ns->periodic.look_round = w->store->recalls.round;
        spend_budget(w, MIN(ns->catalog.watched.n, (uint64_t)NS_LOOK_PAGES));
        ns_look_again(ns, NS_LOOK_PAGES);
}

static bool tell_one_client(struct work *w, struct attach *a, const struct extent_set *set)
{
        uint64_t deadline = set->recall.deadline_nsec;
        uint64_t left =
                deadline == RECALL_PASSED || deadline < w->now_nsec ? 0 : deadline - w->now_nsec;

        spend_budget(w, RECALL_TELL_COST);
        if (w->store->owner.on_recall &&
                !w->store->owner.on_recall(
                        a, set, set->recall.state == RECALL_IDLE, left, w->store->owner.data))
                return false;
        PROBE(kvleased, revoke, set->ns->tenant, set->ns, a->member->id, set->index,
                set->recall.state, left);
        return true;
}

/* Notifies clients that map the set until it succeeds; clients that only hold pages are notified
 * once. */
static void tell_clients(struct work *w, struct extent_set *set)
{
        uint64_t bit = set->recall.state == RECALL_IDLE ? MAPPED_TOLD_IDLE : MAPPED_TOLD;
        bool all = true;

        list_for_each (a, &set->ns->clients.attachments, struct attach, ns_link) {
                uint64_t *bits = map_find(&a->mapped, set->index);

                spend_budget(w, 1);
                if (!bits) {
                        if (!set->recall.holders_told && holds_page_of(w, a, set))
                                (void)tell_one_client(w, a, set);
                } else if (!(*bits & bit)) {
                        if (tell_one_client(w, a, set))
                                *bits |= bit;
                        else
                                all = false;
                }
        }
        set->recall.holders_told = true;
        set->recall.told = all;
}

/* Quarantines a set past its deadline, and reports late clients. */
static void quarantine_set(struct work *w, struct extent_set *set)
{
        bool is_idle = set->recall.state == RECALL_IDLE;

        set->recall.deadline_nsec = RECALL_PASSED;
        w->store->recalls.n_quarantined += !set->recall.quarantined;
        if (!set->recall.quarantined)
                set->tier->share->recalled_bytes -= set->charge.bytes;
        set->recall.quarantined = true;
        list_for_each (a, &set->ns->clients.attachments, struct attach, ns_link) {
                uint64_t *bits = map_find(&a->mapped, set->index);

                spend_budget(w, 1);
                if (is_idle ? !bits : !holds_page_of(w, a, set))
                        continue;
                if (bits && !(*bits & MAPPED_QUARANTINE)) {
                        *bits |= MAPPED_QUARANTINE;
                        a->member->n_quarantined_sets++;
                }
                PROBE(kvleased, late, set->ns->tenant, set->ns, a->member->id, set->index);
                if (w->store->owner.on_late)
                        w->store->owner.on_late(a, set, w->store->owner.data);
        }
}

/* Does what purge_what_is_cached() does, and counts evictions for the tenant that caused them. */
static bool purge_and_blame(struct work *w, struct extent_set *set)
{
        struct tenant *t = set->ns->tenant;
        uint64_t before = t->counters.evictions;
        bool is_done = purge_what_is_cached(w, set);

        if (t->counters.evictions > before)
                blame_note(t, set->recall.by, t->counters.evictions - before, 0);
        return is_done;
}

/* Visits a set. Returns false if there is more to do now. */
static bool visit_set(struct work *w, struct extent_set *set)
{
        uint64_t timeout_nsec = set->recall.timeout_nsec;

        spend_budget(w, 1);
        if (set->recall.kind == RECALL_COMPACT && !set_is_unheld(set)) {
                look_at_pins(w, set->ns);
                spend_budget(w, compact_visit(set, w->now_nsec, w->budget));
                if (!set_is_unheld(set))
                        return true;
        }
        if (!demote_what_is_cached(w, set) && !purge_and_blame(w, set))
                return false;
        look_at_pins(w, set->ns);
        if (set_is_unheld(set) && set->n_mapped == 0)
                return true;
        if (set_is_unheld(set) && set->recall.state == RECALL_ASKED)
                recall_become_idle(set);
        if (recall_is_pressable(set))
                return true;
        if (set->recall.deadline_nsec == 0)
                set->recall.deadline_nsec =
                        w->now_nsec + (timeout_nsec > 0 ? timeout_nsec : w->timeout_nsec);
        if (!set->recall.told)
                tell_clients(w, set);
        if (w->now_nsec >= set->recall.deadline_nsec)
                quarantine_set(w, set);
        return true;
}

/* Do all remaining recalls wait only for UNMAPPED? That arrives as a request. */
static bool waits_for_clients(const struct store *s)
{
        list_for_each (set, &s->recalls.sets, struct extent_set, recall.link)
                if (set->recall.state != RECALL_IDLE || !set->recall.told ||
                        set->recall.deadline_nsec != RECALL_PASSED)
                        return false;
        return true;
}

enum recall_next recall_work(
        struct store *s, uint64_t now_nsec, uint64_t timeout_nsec, uint32_t budget)
{
        struct work w = {s, now_nsec, timeout_nsec, budget};
        struct extent_set *set;
        bool is_done;

        store_set_now(s, now_nsec);
        s->recalls.visits_left = MIN(s->recalls.visits_left, s->recalls.n);
        while (s->recalls.visits_left > 0 && w.budget > 0) {
                set = list_first(&s->recalls.sets, struct extent_set, recall.link);
                is_done = visit_set(&w, set);
                /* A recall that was called off is in no list any more. */
                if (is_done && set->recall.state != RECALL_NONE) {
                        list_remove(&set->recall.link);
                        list_append(&s->recalls.sets, &set->recall.link);
                }
                if (recall_is_idle(set))
                        idle_sets_add(set);
                idle_sets_drain(s);
                s->recalls.visits_left -= is_done;
                s->recalls.visits_left = MIN(s->recalls.visits_left, s->recalls.n);
        }
        if (s->recalls.visits_left == 0)
                store_for_each_pool (pool, s)
                        region_work(pool);
        idle_sets_drain(s); /* sets counted from here on still exist */
        if (s->recalls.n == 0)
                return RECALL_NOTHING;
        if (s->recalls.visits_left > 0)
                return RECALL_MORE;
        if (s->recalls.n_quarantined < s->recalls.n)
                return RECALL_SOON;
        return waits_for_clients(s) ? RECALL_WAITS : RECALL_LATER;
}
