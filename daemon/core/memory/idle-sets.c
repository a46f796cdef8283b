
#include "base/probe.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"

void recall_forget(struct extent_set *set)
{
        struct tenant *t = set->ns->tenant;

        if (set->recall.state == RECALL_NONE)
                return;
        if (set->recall.kind == RECALL_COMPACT && set_is_unheld(set))
                t->store->counters.compacted_sets++;
        PROBE(kvleased, recalled, t, set->ns, set->index, set->charge.bytes);
        list_remove(&set->recall.link);
        set->tier->n_withheld -= set->n_free;
        t->store->recalls.n--;
        t->store->recalls.n_quarantined -= set->recall.quarantined;
        t->n_recalled--;
        t->recalled_bytes -= set->charge.bytes;
        if (!set->recall.quarantined)
                set->tier->share->recalled_bytes -= set->charge.bytes;
}

void recall_begin_round(struct store *s)
{
        s->recalls.visits_left = s->recalls.n;
        s->recalls.round++;
}

void recall_poll(struct store *s)
{
        if (s->recalls.visits_left == 0)
                recall_begin_round(s);
}

void recall_wake(struct store *s)
{
        if (s->owner.on_recall_work)
                s->owner.on_recall_work(s->owner.data);
}

void recall_become_idle(struct extent_set *set)
{
        set->recall.state = RECALL_IDLE;
        set->recall.n_purged = set->ns->geometry.set_pages;
        set->recall.told = false;
        set->recall.deadline_nsec = 0;
}

/* A recalled set has fewer holds, maybe none. */
static void drain_recalled(struct extent_set *set)
{
        struct store *s = set->ns->store;

        if (!set_is_unheld(set)) {
                if (set->recall.demote_at > 0 &&
                        !set->recall.is_demoted) { /* demote the next ones */
                        recall_poll(s);
                        recall_wake(s);
                }
                return;
        }
        if (set->n_mapped == 0) { /* even if idle sets are kept: its pages can't be used */
                set_unbind(set);
                return;
        }
        if (set->recall.state == RECALL_IDLE)
                return;
        recall_become_idle(set);
        /* Makes this set the next to be visited. */
        list_remove(&set->recall.link);
        list_insert_before(s->recalls.sets.next, &set->recall.link);
        s->recalls.visits_left = MIN(s->recalls.visits_left + 1, s->recalls.n);
        recall_wake(s);
}

/* Is the idle set preallocated for future leases? */
static bool prealloc_keeps(const struct extent_set *set)
{
        const struct ns *ns = set->ns;

        return set->tier == &ns->device &&
               ns_n_room(ns) - set->n_free <
                       MAX(ns->reclaim.prealloc.n_to_keep, ns->reclaim.prealloc.n_to_free);
}

static void drain_set(struct extent_set *set)
{
        list_remove(&set->idle_link);
        if (set->recall.state != RECALL_NONE)
                drain_recalled(set);
        else if (set_is_idle(set) && !prealloc_keeps(set) && !ns_awaits_sets(set->ns))
                set_unbind(set);
}

void idle_sets_add(struct extent_set *set)
{
        if (list_is_empty(&set->idle_link) &&
                (set->recall.state != RECALL_NONE || set_is_idle(set)))
                list_append(&set->ns->store->memory.idle_sets, &set->idle_link);
}

void idle_sets_add_all(struct ns *ns)
{
        ns_for_each_set (set, ns)
                if (set_is_idle(set))
                        idle_sets_add(set);
}

void idle_sets_drain(struct store *s)
{
        idle_sets_drain_except(s, NULL);
}

void idle_sets_drain_except(struct store *s, const struct ns *but)
{
        list_for_each_safe (set, &s->memory.idle_sets, struct extent_set, idle_link)
                if (set->ns != but || set->recall.state != RECALL_NONE)
                        drain_set(set);
}
