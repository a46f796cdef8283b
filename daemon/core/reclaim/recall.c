#include "daemon/core/reclaim/recall.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/map.h"
#include "base/probe.h"
#include "daemon/core/cache/announced.h"
#include "daemon/core/cache/drop.h"
#include "daemon/core/cache/note-events.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/clients/pin.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/memory/region.h"
#include "daemon/core/memory/wait.h"
#include "daemon/core/moves/transfer.h"
#include "daemon/core/reclaim/compact.h"
#include "daemon/core/reclaim/demote.h"
#include "daemon/core/reclaim/room.h"
#include "daemon/core/sessions/session.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/listeners.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/pool.h"
#include "daemon/core/state/records.h"
#include "daemon/core/state/shared.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "policy/evict.h"

/* ---- choosing sets --------------------------------------------------------------------------- */

static bool may_recall(const struct extent_set *set, const struct recall_request *rq)
{
        return (!rq->only || set->ns == rq->only) && (!rq->pool || set->pool == rq->pool) &&
               (set->recall.state == RECALL_NONE ||
                       (rq->kind == RECALL_FORCED && recall_is_pressable(set)));
}

static void press(struct extent_set *set, uint64_t timeout_nsec)
{
        set->recall.kind = RECALL_FORCED;
        set->recall.told = set->recall.holders_told = false;
        set->recall.timeout_nsec = timeout_nsec;
        records_note_recall(set);
}

void recall_press(struct extent_set *set)
{
        if (recall_is_pressable(set))
                press(set, 0);
}

static void begin_recall(struct extent_set *set, const struct recall_request *rq)
{
        struct tenant *t = set->ns->tenant;
        struct store *s = t->store;

        if (set->recall.state != RECALL_NONE) {
                press(set, rq->timeout_nsec);
                return;
        }
        (void)announce_withdraw_set(set);
        list_remove(&set->room_link);
        set->tier->n_withheld += set->n_free;
        set->recall.state = RECALL_ASKED;
        set->recall.kind = rq->kind;
        set->recall.by = rq->by;
        set->recall.begun_nsec = s->now_nsec;
        set->recall.timeout_nsec = rq->timeout_nsec;
        records_note_recall(set);
        list_append(&s->recalls.sets, &set->recall.link);
        s->recalls.n++;
        t->n_recalled++;
        t->recalled_bytes += set->charge.bytes;
        set->tier->share->recalled_bytes += set->charge.bytes;
        tenant_tell(t, ns_is_disturbed, set->ns);
        note_revoked(set, rq->by, rq->kind);
        if (rq->kind != RECALL_COMPACT)
                blame_note(t, rq->by, 0, 1);
        PROBE(kvleased, recall, t, set->ns, set->index, set->charge.bytes, rq->kind, rq->by);
}

void recall_forget_tenant(struct store *s, const struct tenant *t)
{
        list_for_each (set, &s->recalls.sets, struct extent_set, recall.link)
                if (set->recall.by == t)
                        set->recall.by = NULL;
}

/* Sorts softly recalled sets first, then unmapped ones. Returns 0 if they are equal. */
static int compare_use(const struct extent_set *x, const struct extent_set *y)
{
        if (x->recall.state != y->recall.state)
                return x->recall.state == RECALL_NONE ? 1 : -1;
        if ((x->n_mapped > 0) != (y->n_mapped > 0))
                return x->n_mapped > 0 ? 1 : -1;
        return 0;
}

/* Then sorts by pages in use, fewest first; then the set bound last, to continue earlier choices.
 */
static int compare_sets(const void *a, const void *b)
{
        const struct extent_set *x = *(struct extent_set *const *)a;
        const struct extent_set *y = *(struct extent_set *const *)b;
        uint32_t x_used = x->n_usable - x->n_free, y_used = y->n_usable - y->n_free;
        int r = compare_use(x, y);

        if (r != 0)
                return r;
        if (x_used != y_used)
                return x_used > y_used ? 1 : -1;
        return (x->index < y->index) - (x->index > y->index);
}

/* Sorts by the cost that reclaim.c has computed before pages in use. */
static int compare_costs(const void *a, const void *b)
{
        const struct extent_set *x = *(struct extent_set *const *)a;
        const struct extent_set *y = *(struct extent_set *const *)b;

        if (compare_use(x, y) == 0 && x->cost_bytes != y->cost_bytes)
                return x->cost_bytes > y->cost_bytes ? 1 : -1;
        return compare_sets(a, b);
}

/* Returns granted and pinned pages, as far as the daemon knows. */
static uint32_t count_held(const struct extent_set *set)
{
        uint32_t n = 0, first = set->index * set->ns->geometry.set_pages;

        for (uint32_t i = 0; i < set->ns->geometry.set_pages; i++) {
                const struct page *p = &set->pages[i];

                n += (p->state == PAGE_GRANTED && !p->ready) ||
                     (p->state == PAGE_DETACHED && ns_extra(set->ns, first + i)->n_windows == 0) ||
                     page_is_held(p);
        }
        return n;
}

/* Page records that are looked at to find the set with the fewest held pages among the first ones.
 * Not tuned. */
#define PREFER_BUDGET 8192
static void prefer_unheld(struct extent_set **sets, uint32_t n)
{
        uint32_t best = 0, least = UINT32_MAX;
        uint64_t n_looked = 0;
        struct extent_set *first;

        for (uint32_t i = 0; i < n && least > 0 && n_looked < PREFER_BUDGET; i++) {
                uint32_t n_held;

                if ((sets[i]->n_mapped > 0) != (sets[0]->n_mapped > 0))
                        break;
                n_held = count_held(sets[i]);
                n_looked += sets[i]->ns->geometry.set_pages;
                if (n_held < least) {
                        least = n_held;
                        best = i;
                }
        }
        first = sets[0];
        sets[0] = sets[best];
        sets[best] = first;
}

static uint32_t begin_sorted(struct extent_set **sets, uint32_t n, const struct recall_request *rq)
{
        uint32_t i = 0;

        qsort(sets, n, sizeof(struct extent_set *), rq->by_cost ? compare_costs : compare_sets);
        if (n > 1 && rq->kind == RECALL_SOFT)
                prefer_unheld(sets, n);
        for (uint64_t sum = 0; i < n && sum < rq->bytes; i++) {
                sum += sets[i]->charge.bytes;
                begin_recall(sets[i], rq);
        }
        return i;
}

static const struct ns_tier *tier_of(const struct ns *ns, const struct recall_request *rq)
{
        return &ns->tiers[rq->pool ? rq->pool->tier : rq->tier];
}

static uint32_t begin_unsorted(const struct recall_request *rq)
{
        uint64_t sum = 0;
        uint32_t n = 0;

        list_for_each (ns, &rq->tenant->namespaces, struct ns, link)
                list_for_each (set, &tier_of(ns, rq)->sets_bound, struct extent_set, link) {
                        if (!may_recall(set, rq) || sum >= rq->bytes)
                                continue;
                        sum += set->charge.bytes;
                        begin_recall(set, rq);
                        n++;
                }
        return n;
}

static uint32_t begin_all(const struct recall_request *rq)
{
        _cleanup_free_ struct extent_set **sets = NULL;
        uint32_t n = 0, max = 0;

        list_for_each (ns, &rq->tenant->namespaces, struct ns, link)
                max += !rq->only || ns == rq->only ? tier_of(ns, rq)->n_sets : 0;
        if (max == 0)
                return 0;
        sets = calloc(max, sizeof(struct extent_set *));
        if (!sets)
                return begin_unsorted(rq);
        list_for_each (ns, &rq->tenant->namespaces, struct ns, link)
                list_for_each (set, &tier_of(ns, rq)->sets_bound, struct extent_set, link)
                        if (may_recall(set, rq) && n < max)
                                sets[n++] = set;
        return n > 0 ? begin_sorted(sets, n, rq) : 0;
}

void recall_call_off(struct extent_set *set)
{
        assert(set->recall.kind == RECALL_COMPACT && set->recall.state == RECALL_ASKED &&
                !set_is_unheld(set));

        recall_forget(set);
        set->recall = (struct set_recall){0};
        list_init(&set->recall.link);
        if (set->n_free > 0)
                list_append(&set->tier->sets_room, &set->room_link);
}

uint32_t recall_ask(const struct recall_request *rq)
{
        uint32_t n;

        assert(!rq->only || rq->only->tenant == rq->tenant);

        n = begin_all(rq);
        if (n == 0)
                return 0;
        list_for_each (ns, &rq->tenant->namespaces, struct ns, link)
                if (!rq->only || ns == rq->only)
                        magazine_drain_recalled(ns);
        recall_begin_round(rq->tenant->store);
        recall_wake(rq->tenant->store);
        return n;
}

void recall_set(struct extent_set *set, enum recall_kind kind)
{
        const struct recall_request rq = {.tenant = set->ns->tenant, .kind = kind};
        struct store *s = set->ns->store;

        begin_recall(set, &rq);
        magazine_drain_recalled(set->ns);
        recall_begin_round(s);
        recall_wake(s);
}

void recall_again(struct extent_set *set, uint64_t timeout_nsec)
{
        const struct recall_request rq = {
                .tenant = set->ns->tenant, .kind = RECALL_FORCED, .timeout_nsec = timeout_nsec};
        struct store *s = set->ns->store;

        begin_recall(set, &rq);
        recall_begin_round(s);
        recall_wake(s);
}

uint32_t recall_sets(struct tenant *t, const struct ns *only, uint64_t bytes, uint64_t timeout_nsec)
{
        const struct recall_request rq = {
                .tenant = t,
                .only = only,
                .bytes = bytes,
                .timeout_nsec = timeout_nsec,
                .kind = RECALL_FORCED,
        };

        return recall_ask(&rq);
}

/* Doesn't count sets being made: they are dropped when made if they are too much then. */
static uint64_t bound_bytes(const struct tenant *t, enum tier_kind tier)
{
        uint64_t bytes = 0;

        list_for_each (ns, &t->namespaces, struct ns, link)
                list_for_each (set, &ns->tiers[tier].sets_bound, struct extent_set, link)
                        bytes += set->charge.bytes;
        return bytes;
}

/* Returns the bytes of recalled sets, without soft recalls that have no deadline. */
static uint64_t going_bytes(const struct tenant *t, enum tier_kind tier)
{
        uint64_t bytes = 0;

        list_for_each (set, &t->store->recalls.sets, struct extent_set, recall.link)
                if (set->ns->tenant == t && set->pool->tier == tier && !recall_is_pressable(set))
                        bytes += set->charge.bytes;
        return bytes;
}

bool recall_is_under_way(const struct tenant *t, enum tier_kind tier)
{
        if (t->n_recalled == 0)
                return false;
        list_for_each (set, &t->store->recalls.sets, struct extent_set, recall.link)
                if (set->ns->tenant == t && set->pool->tier == tier && !recall_is_pressable(set) &&
                        !set->recall.quarantined)
                        return true;
        return false;
}

static uint32_t recall_over_limit_of(struct tenant *t, enum tier_kind tier)
{
        uint64_t limit = t->accounts[tier].limit_bytes, bound = bound_bytes(t, tier);
        uint64_t most = limit + going_bytes(t, tier);
        const struct recall_request rq = {
                .tenant = t,
                .tier = tier,
                .bytes = bound - MIN(bound, most),
                .kind = RECALL_FORCED,
                .by_cost = true,
        };

        return most < limit || bound <= most ? 0 : recall_ask(&rq);
}

uint32_t recall_over_limit(struct tenant *t)
{
        uint32_t n = 0;

        for (enum tier_kind tier = 0; tier < TIER_COUNT; tier++)
                n += recall_over_limit_of(t, tier);
        return n;
}

/* ---- check ---------------------------------------------------------------------------------- */

const char *recall_check(const struct extent_set *set)
{
        const struct set_recall *r = &set->recall;

        if (list_is_empty(&r->link) != (r->state == RECALL_NONE))
                return "is in the list of recalled sets, or missing from it, against its state";
        if (r->state == RECALL_NONE)
                return r->quarantined ? "is quarantined but not recalled" : NULL;
        if (r->state == RECALL_IDLE && (!set_is_unheld(set) || set->n_mapped == 0))
                return "is recalled and idle, but held or not mapped";
        if (r->n_purged > set->ns->geometry.set_pages)
                return "was gone through beyond its end";
        for (uint32_t i = 0; i < r->n_purged; i++)
                if (set->pages[i].state == PAGE_SEALED)
                        return "has cached pages left behind by its recall";
        return NULL;
}

/* ---- work ------------------------------------------------------------------------------------ */

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
