#include "daemon/core/reclaim/recall.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/probe.h"
#include "daemon/core/cache/announced.h"
#include "daemon/core/cache/drop.h"
#include "daemon/core/cache/note-events.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/state/listeners.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/memory/region.h"
#include "daemon/core/state/records.h"

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
