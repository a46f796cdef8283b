#include "daemon/core/reclaim/recall.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/probe.h"
#include "daemon/core/catalog/drop.h"
#include "daemon/core/catalog/happened.h"
#include "daemon/core/catalog/history.h"
#include "daemon/core/clients/announce.h"
#include "daemon/core/clients/magazine.h"
#include "daemon/core/ground/blame.h"
#include "daemon/core/moves/places.h"
#include "daemon/core/moves/transfer.h"
#include "daemon/core/objects/group.h"
#include "daemon/core/objects/ns.h"
#include "daemon/core/objects/store.h"
#include "daemon/core/objects/tenant.h"
#include "daemon/core/quota/region.h"
#include "daemon/core/reclaim/compact.h"
#include "daemon/core/sessions/session.h"
#include "daemon/core/tiers/sink.h"

#define PASSED UINT64_MAX /* a deadline that was */

static bool nothing_held(const struct extent_set *set)
{
        return set->n_free == set->n_usable && set->n_busy == 0;
}

/* ---- what is recalled ----------------------------------------------------------------------- */

static bool is_pressable(const struct extent_set *set)
{
        return set->recall.state == RECALL_ASKED && set->recall.kind != RECALL_FORCED;
}

static bool may_recall(const struct extent_set *set, const struct recall_request *rq)
{
        return (!rq->only || set->ns == rq->only) && (!rq->pool || set->pool == rq->pool) &&
               (set->recall.state == RECALL_NONE ||
                       (rq->kind == RECALL_FORCED && is_pressable(set)));
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
        if (is_pressable(set))
                press(set, 0);
}

static void begin(struct extent_set *set, const struct recall_request *rq)
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
        list_append(&s->recalls, &set->recall.link);
        s->n_recalls++;
        t->n_recalled++;
        t->recalled_bytes += set->charge.bytes;
        set->tier->stake->recalled_bytes += set->charge.bytes;
        happened_revoked(set, rq->by, rq->kind);
        if (rq->kind != RECALL_COMPACT)
                blame_note(t, rq->by, 0, 1);
        PROBE(kvleased, recall, t, set->ns, set->index, set->charge.bytes, rq->kind, rq->by);
}

void recall_forget(struct extent_set *set)
{
        struct tenant *t = set->ns->tenant;

        if (set->recall.state == RECALL_NONE)
                return;
        if (set->recall.kind == RECALL_COMPACT && nothing_held(set))
                t->store->counters.compacted_sets++;
        PROBE(kvleased, recalled, t, set->ns, set->index, set->charge.bytes);
        list_remove(&set->recall.link);
        set->tier->n_withheld -= set->n_free;
        t->store->n_recalls--;
        t->store->n_quarantined -= set->recall.quarantined;
        t->n_recalled--;
        t->recalled_bytes -= set->charge.bytes;
        if (!set->recall.quarantined)
                set->tier->stake->recalled_bytes -= set->charge.bytes;
}

void recall_forget_tenant(struct store *s, const struct tenant *t)
{
        list_for_each (set, &s->recalls, struct extent_set, recall.link)
                if (set->recall.by == t)
                        set->recall.by = NULL;
}

/* Recalled softly already, nobody maps it. 0: they are equal. */
static int compare_use(const struct extent_set *x, const struct extent_set *y)
{
        if (x->recall.state != y->recall.state)
                return x->recall.state == RECALL_NONE ? 1 : -1;
        if ((x->n_mapped > 0) != (y->n_mapped > 0))
                return x->n_mapped > 0 ? 1 : -1;
        return 0;
}

/* The same, then least in use, bound last: it continues what the earlier ones began. */
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

/* With what goes with them, as reclaim.c has weighed it, before what is in use. */
static int compare_costs(const void *a, const void *b)
{
        const struct extent_set *x = *(struct extent_set *const *)a;
        const struct extent_set *y = *(struct extent_set *const *)b;

        if (compare_use(x, y) == 0 && x->cost_bytes != y->cost_bytes)
                return x->cost_bytes > y->cost_bytes ? 1 : -1;
        return compare_sets(a, b);
}

/* Granted and pinned, as far as the daemon was told. */
static uint32_t count_held(const struct extent_set *set)
{
        uint32_t n = 0, first = set->index * set->ns->geometry.set_pages;

        for (uint32_t i = 0; i < set->ns->geometry.set_pages; i++) {
                const struct page *p = &set->pages[i];

                n += (p->state == PAGE_GRANTED && !p->ready) ||
                     (p->state == PAGE_DETACHED && ns_extra(set->ns, first + i)->n_windows == 0) ||
                     page_pins(p) > 0 || p->watched;
        }
        return n;
}

/* Of the first few the one of which least is held comes first: page records looked at for it, more
 * or less. Not tuned. */
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
                begin(sets[i], rq);
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
                        begin(set, rq);
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
                !nothing_held(set));

        recall_forget(set);
        set->recall = (struct set_recall){.in_visit = set->recall.in_visit};
        list_init(&set->recall.link);
        if (set->n_free > 0)
                list_append(&set->tier->sets_room, &set->room_link);
}

static void start_round(struct store *s)
{
        s->recall_visits = s->n_recalls;
        s->recall_round++;
}

void recall_poll(struct store *s)
{
        if (s->recall_visits == 0)
                start_round(s);
}

static void want_work(struct store *s)
{
        if (s->on_recall_work)
                s->on_recall_work(s->callback_data);
}

uint32_t recall_ask(const struct recall_request *rq)
{
        uint32_t n;

        assert(!rq->only || rq->only->tenant == rq->tenant);

        n = begin_all(rq);
        if (n == 0)
                return 0;
        /* Sets may go from here on. */
        list_for_each (ns, &rq->tenant->namespaces, struct ns, link)
                if (!rq->only || ns == rq->only)
                        magazine_drain_recalled(ns);
        start_round(rq->tenant->store);
        want_work(rq->tenant->store);
        return n;
}

void recall_set(struct extent_set *set, enum recall_kind kind)
{
        const struct recall_request rq = {.tenant = set->ns->tenant, .kind = kind};
        struct store *s = ns_store(set->ns);

        begin(set, &rq);
        magazine_drain_recalled(set->ns); /* it may go from here on */
        start_round(s);
        want_work(s);
}

void recall_again(struct extent_set *set, uint64_t timeout_nsec)
{
        const struct recall_request rq = {
                .tenant = set->ns->tenant, .kind = RECALL_FORCED, .timeout_nsec = timeout_nsec};
        struct store *s = ns_store(set->ns);

        begin(set, &rq);
        start_round(s);
        want_work(s);
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

/* What is being made is dropped when it is made, where it is too much by then. */
static uint64_t bound_bytes(const struct tenant *t, enum tier_kind tier)
{
        uint64_t bytes = 0;

        list_for_each (ns, &t->namespaces, struct ns, link)
                list_for_each (set, &ns->tiers[tier].sets_bound, struct extent_set, link)
                        bytes += set->charge.bytes;
        return bytes;
}

/* Of recalled sets; not what goes only when somebody likes. */
static uint64_t going_bytes(const struct tenant *t, enum tier_kind tier)
{
        uint64_t bytes = 0;

        list_for_each (set, &t->store->recalls, struct extent_set, recall.link)
                if (set->ns->tenant == t && set->pool->tier == tier && !is_pressable(set))
                        bytes += set->charge.bytes;
        return bytes;
}

bool recall_is_under_way(const struct tenant *t, enum tier_kind tier)
{
        if (t->n_recalled == 0)
                return false;
        list_for_each (set, &t->store->recalls, struct extent_set, recall.link)
                if (set->ns->tenant == t && set->pool->tier == tier && !is_pressable(set) &&
                        !set->recall.quarantined)
                        return true;
        return false;
}

static uint32_t recall_excess_of(struct tenant *t, enum tier_kind tier)
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

uint32_t recall_excess(struct tenant *t)
{
        uint32_t n = 0;

        for (enum tier_kind tier = 0; tier < TIER_COUNT; tier++)
                n += recall_excess_of(t, tier);
        return n;
}

/* ---- work ----------------------------------------------------------------------------------- */

struct work {
        struct store *store;
        uint64_t now_nsec, timeout_nsec;
        uint32_t budget;
};

static void spend(struct work *w, uint64_t n)
{
        w->budget -= (uint32_t)MIN(n, (uint64_t)w->budget);
}

/* Does the member, or its group, hold a page of the set? */
static bool holds(struct work *w, const struct attach *a, const struct extent_set *set)
{
        uint32_t n = set->ns->geometry.set_pages, first = set->index * n;

        if (nothing_held(set))
                return false;
        spend(w, n);
        for (uint32_t i = 0; i < n; i++) {
                const struct page *p = &set->pages[i];

                if (p->state == PAGE_GRANTED && p->owner == a->member->group->id && !p->given_back)
                        return true;
                if (p->state != PAGE_SEALED && p->state != PAGE_DETACHED)
                        continue;
                if (pins_is_open(&a->share) && pins_count(&a->share, first + i) > 0)
                        return true;
                if (page_pins(p) > 0 && pin_counts_get(&a->pins, first + i) > 0)
                        return true;
        }
        return false;
}

static bool may_sink(const struct work *w, const struct extent_set *set)
{
        const struct set_recall *r = &set->recall;

        return r->state == RECALL_ASKED && r->kind != RECALL_COMPACT && !r->is_sunk &&
               set_kind(set) == TIER_DEVICE && sink_is_possible(set->ns) && w->store->mover &&
               w->now_nsec < r->begun_nsec + RECALL_SINK_NSEC && region_missing(set->pool) == 0 &&
               !wait_any_for_room(w->store);
}

/* The beginnings of texts first: should the rest have to go, what they are is left. True while some
 * of it is on its way, or is still to go. */
static bool sink(struct work *w, struct extent_set *set)
{
        struct ns *ns = set->ns;
        uint32_t n = ns->geometry.set_pages, page;

        if (!may_sink(w, set)) {
                set->recall.is_sunk = true;
                return false;
        }
        for (; set->recall.sink_at < n && w->budget > 0; set->recall.sink_at++) {
                page = set->index * n + set->recall.sink_at;
                spend(w, 1);
                if (places_is_idle(ns, page) && !shared_is_pinned(ns, page) &&
                        !transfer_find(ns, page) && sink_page(ns, page) == -EBUSY)
                        return true;
        }
        set->recall.is_sunk = set->recall.sink_at == n && set->n_busy == 0;
        return !set->recall.is_sunk;
}

/* What is cached in it goes, or is detached. False: there is more to do. */
static bool purge(struct work *w, struct extent_set *set)
{
        struct ns *ns = set->ns;
        uint32_t n = ns->geometry.set_pages;

        if (nothing_held(set))
                set->recall.n_purged = n;
        else if (!set->recall.left_windows)
                spend(w, sessions_leave_set(set));
        set->recall.left_windows = true;
        while (set->recall.n_purged < n) {
                uint32_t i = set->recall.n_purged, page = set->index * n + i;
                const struct page *p = &set->pages[i];

                if (w->budget == 0)
                        return false;
                spend(w, 1);
                if (ns_page_is_stale(ns, p))
                        ns_sweep_page(ns, page);
                else if (p->state == PAGE_SEALED)
                        spend(w, ns_drop_leaves(ns, page, MAX(w->budget, 1u), EVICT_PRESSURE));
                set->recall.n_purged += p->state != PAGE_SEALED;
        }
        return true;
}

/* Its pins in segments: once a round for all sets of the namespace. */
static void look(struct work *w, struct ns *ns)
{
        if (ns->look_round == w->store->recall_round)
                return;
        ns->look_round = w->store->recall_round;
        spend(w, MIN(ns->n_watched, (uint64_t)NS_LOOK_PAGES));
        ns_look_again(ns, NS_LOOK_PAGES);
}

static bool tell_one(struct work *w, struct attach *a, const struct extent_set *set)
{
        uint64_t deadline = set->recall.deadline_nsec;
        uint64_t left = deadline == PASSED || deadline < w->now_nsec ? 0 : deadline - w->now_nsec;

        spend(w, RECALL_TELL_COST);
        if (w->store->on_recall && !w->store->on_recall(a, set, set->recall.state == RECALL_IDLE,
                                           left, w->store->callback_data))
                return false;
        PROBE(kvleased, revoke, set->ns->tenant, set->ns, a->member->id, set->index,
                set->recall.state, left);
        return true;
}

/* Who has it mapped is told until it could be; who only holds pages, where that works at once. */
static void tell(struct work *w, struct extent_set *set)
{
        uint64_t bit = set->recall.state == RECALL_IDLE ? MAPPED_TOLD_IDLE : MAPPED_TOLD;
        bool all = true;

        list_for_each (a, &set->ns->attachments, struct attach, ns_link) {
                uint64_t *bits = map_find(&a->mapped, set->index);

                spend(w, 1);
                if (!bits) {
                        if (!set->recall.holders_told && holds(w, a, set))
                                (void)tell_one(w, a, set);
                } else if (!(*bits & bit)) {
                        if (tell_one(w, a, set))
                                *bits |= bit;
                        else
                                all = false;
                }
        }
        set->recall.holders_told = true;
        set->recall.told = all;
}

/* Past its deadline. */
static void quarantine(struct work *w, struct extent_set *set)
{
        bool is_idle = set->recall.state == RECALL_IDLE;

        set->recall.deadline_nsec = PASSED;
        w->store->n_quarantined += !set->recall.quarantined;
        if (!set->recall.quarantined)
                set->tier->stake->recalled_bytes -= set->charge.bytes;
        set->recall.quarantined = true;
        list_for_each (a, &set->ns->attachments, struct attach, ns_link) {
                uint64_t *bits = map_find(&a->mapped, set->index);

                spend(w, 1);
                if (is_idle ? !bits : !holds(w, a, set))
                        continue;
                if (bits && !(*bits & MAPPED_QUARANTINE)) {
                        *bits |= MAPPED_QUARANTINE;
                        a->member->n_quarantined_sets++;
                }
                PROBE(kvleased, late, set->ns->tenant, set->ns, a->member->id, set->index);
                if (w->store->on_late)
                        w->store->on_late(a, set, w->store->callback_data);
        }
}

static void become_idle(struct extent_set *set)
{
        set->recall.state = RECALL_IDLE;
        set->recall.n_purged = set->ns->geometry.set_pages;
        set->recall.told = false;
        set->recall.deadline_nsec = 0;
}

void recall_settle(struct extent_set *set)
{
        struct store *s = ns_store(set->ns);

        if (set->recall.in_visit)
                return;
        if (!nothing_held(set)) {
                if (set->recall.sink_at > 0 && !set->recall.is_sunk) { /* the next ones */
                        recall_poll(s);
                        want_work(s);
                }
                return;
        }
        if (set->n_mapped == 0) { /* also where idle sets are kept: nobody may use its pages */
                set_unbind(set);
                return;
        }
        if (set->recall.state == RECALL_IDLE)
                return;
        become_idle(set);
        /* The next to be visited. */
        list_remove(&set->recall.link);
        list_insert_before(s->recalls.next, &set->recall.link);
        s->recall_visits = MIN(s->recall_visits + 1, s->n_recalls);
        want_work(s);
}

/* As purge(), and says for whom pages were evicted. */
static bool purge_for(struct work *w, struct extent_set *set)
{
        struct tenant *t = set->ns->tenant;
        uint64_t before = t->counters.evictions;
        bool is_done;

        w->store->making_room = set->recall.by;
        w->store->cause = CAUSE_RECALL;
        is_done = purge(w, set);
        w->store->cause = CAUSE_NONE;
        w->store->making_room = NULL;
        if (t->counters.evictions > before)
                blame_note(t, set->recall.by, t->counters.evictions - before, 0);
        return is_done;
}

/* False: it isn't done with. */
static bool visit(struct work *w, struct extent_set *set)
{
        uint64_t timeout_nsec = set->recall.timeout_nsec;

        spend(w, 1);
        if (set->recall.kind == RECALL_COMPACT && !nothing_held(set)) {
                look(w, set->ns);
                spend(w, compact_visit(set, w->now_nsec, w->budget));
                if (!nothing_held(set))
                        return true;
        }
        if (!sink(w, set) && !purge_for(w, set))
                return false;
        look(w, set->ns);
        if (nothing_held(set) && set->n_mapped == 0)
                return true;
        if (nothing_held(set) && set->recall.state == RECALL_ASKED)
                become_idle(set);
        if (is_pressable(set))
                return true;
        if (set->recall.deadline_nsec == 0)
                set->recall.deadline_nsec =
                        w->now_nsec + (timeout_nsec > 0 ? timeout_nsec : w->timeout_nsec);
        if (!set->recall.told)
                tell(w, set);
        if (w->now_nsec >= set->recall.deadline_nsec)
                quarantine(w, set);
        return true;
}

/* Does all that is left wait for UNMAPPED alone? That is seen when it comes. */
static bool waits_for_clients(const struct store *s)
{
        list_for_each (set, &s->recalls, struct extent_set, recall.link)
                if (set->recall.state != RECALL_IDLE || !set->recall.told ||
                        set->recall.deadline_nsec != PASSED)
                        return false;
        return true;
}

enum recall_next recall_work(
        struct store *s, uint64_t now_nsec, uint64_t timeout_nsec, uint32_t budget)
{
        struct work w = {s, now_nsec, timeout_nsec, budget};
        struct extent_set *set;

        store_set_now(s, now_nsec);
        s->recall_visits = MIN(s->recall_visits, s->n_recalls);
        while (s->recall_visits > 0 && w.budget > 0) {
                set = list_first(&s->recalls, struct extent_set, recall.link);
                set->recall.in_visit = true;
                if (visit(&w, set)) {
                        /* Not where it was called off. */
                        if (set->recall.state != RECALL_NONE) {
                                list_remove(&set->recall.link);
                                list_append(&s->recalls, &set->recall.link);
                        }
                        s->recall_visits--;
                }
                set->recall.in_visit = false;
                if (set->recall.state != RECALL_NONE && nothing_held(set))
                        recall_settle(set);
                s->recall_visits = MIN(s->recall_visits, s->n_recalls);
        }
        if (s->recall_visits == 0)
                store_for_each_pool (pool, s)
                        region_work(pool);
        if (s->n_recalls == 0)
                return RECALL_NOTHING;
        if (s->recall_visits > 0)
                return RECALL_MORE;
        if (s->n_quarantined < s->n_recalls)
                return RECALL_SOON;
        return waits_for_clients(s) ? RECALL_WAITS : RECALL_LATER;
}

/* ---- check ---------------------------------------------------------------------------------- */

const char *recall_check(const struct extent_set *set)
{
        const struct set_recall *r = &set->recall;

        if (r->in_visit)
                return "is still being visited";
        if (list_is_empty(&r->link) != (r->state == RECALL_NONE))
                return "is in the list of recalled sets, or missing from it, against its state";
        if (r->state == RECALL_NONE)
                return r->quarantined ? "is quarantined but not recalled" : NULL;
        if (r->state == RECALL_IDLE && (!nothing_held(set) || set->n_mapped == 0))
                return "is recalled and idle, but held or not mapped";
        if (r->n_purged > set->ns->geometry.set_pages)
                return "was gone through beyond its end";
        for (uint32_t i = 0; i < r->n_purged; i++)
                if (set->pages[i].state == PAGE_SEALED)
                        return "has cached pages left behind by its recall";
        return NULL;
}
