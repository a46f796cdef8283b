#include "daemon/core/moves/transfer.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/fault-point.h"
#include "base/probe.h"
#include "daemon/core/catalog/drop.h"
#include "daemon/core/catalog/happened.h"
#include "daemon/core/catalog/pages.h"
#include "daemon/core/memory/settle.h"
#include "daemon/core/moves/carry.h"
#include "daemon/core/moves/part-sums.h"
#include "daemon/core/moves/places.h"
#include "daemon/core/moves/space.h"
#include "daemon/core/objects/listeners.h"
#include "daemon/core/objects/ns.h"
#include "daemon/core/objects/store.h"
#include "daemon/core/objects/tenant.h"
#include "daemon/core/records/shared.h"
#include "daemon/tier/mover.h"

/* ---- which ---------------------------------------------------------------------------------- */

struct transfer *transfer_find(const struct ns *ns, uint32_t from)
{
        list_for_each (t, &ns_store(ns)->moving.transfers, struct transfer, link)
                if (t->ns == ns && t->from == from && t->kind != TRANSFER_COPY)
                        return t;
        return NULL;
}

uint32_t transfer_count(const struct ns *ns, enum transfer_kind kind)
{
        uint32_t n = 0;

        list_for_each (t, &ns_store(ns)->moving.transfers, struct transfer, link)
                n += t->ns == ns && t->kind == kind;
        return n;
}

static bool holds_moving(const struct transfer *t)
{
        return set_page(t->sets[1], t->to)->state == PAGE_MOVING;
}

uint64_t transfer_count_moving(const struct ns *ns)
{
        uint64_t n = 0;

        list_for_each (t, &ns_store(ns)->moving.transfers, struct transfer, link)
                n += t->ns == ns && holds_moving(t);
        return n;
}

bool transfer_moves_to(const struct ns *ns, uint32_t page)
{
        list_for_each (t, &ns_store(ns)->moving.transfers, struct transfer, link)
                if (t->ns == ns && t->to == page && holds_moving(t))
                        return true;
        return false;
}

static struct carry_page *carried(const struct transfer *t)
{
        return &t->carry->pages[t->place];
}

/* ---- its end -------------------------------------------------------------------------------- */

static void unlink_one(struct transfer *t)
{
        struct store *s = ns_store(t->ns);

        list_remove(&t->link);
        s->moving.n_transfers--;
        if (t->kind == TRANSFER_DOWN) {
                s->moving.n_sinking--;
                s->moving.sinking_bytes -= t->bytes;
        }
}

static void leave_sets(struct transfer *t)
{
        for (unsigned i = 0; i < 2; i++)
                t->sets[i]->n_busy--;
        for (unsigned i = 0; i < 2; i++)
                settle_set(t->sets[i]);
}

/* The policy has the page that was to be moved, locked where the transfer locked it. */
static bool is_in_policy(const struct transfer *t)
{
        const struct page *p = ns_page(t->ns, t->from);

        return p && p->generation == t->from_generation && p->state == PAGE_SEALED &&
               !ns_page_is_stale(t->ns, p);
}

/* It is there as it was: no window has taken hold of it meanwhile. */
static bool is_there(const struct transfer *t)
{
        return is_in_policy(t) && ns_extra(t->ns, t->from)->n_windows == 0;
}

/* Nobody's, but for a page of a copy whose client still has it. */
static void free_target(struct transfer *t)
{
        if (holds_moving(t))
                ns_free_page(t->sets[1]->ns, t->to);
}

static bool is_from_disk(const struct transfer *t)
{
        return tier_of_page(&t->ns->geometry, t->from) == TIER_DISK;
}

/* It is a victim again as any other; one that its codec doesn't take, or that the disk hasn't any
 * more, goes at once. */
static void give_up(struct transfer *t, int result)
{
        struct carry_page *p = carried(t);
        bool is_gone = is_from_disk(t) && (p->result == -ENOENT || p->result == -ENODEV);

        if (((t->kind == TRANSFER_DOWN && result == -EDOM) || is_gone) && is_there(t))
                drop_below(t->ns, t->from, (struct drop_reason){.why = EVICT_PRESSURE});
        if (t->kind != TRANSFER_COPY && !t->is_unwanted && is_in_policy(t))
                t->ns->evict->unlock(t->ns->policy, t->from);
        if (p->is_written)
                space_discard(t->ns, p->content, p->disk.key);
        free_target(t);
}

/* What is stored isn't what was: nobody is to have it, nor what comes after it. */
static void drop_damaged(struct transfer *t)
{
        struct ns *ns = t->ns;

        if (!is_there(t))
                return;
        ns_store(ns)->counters.pages_damaged++;
        ns->tiers[tier_of_page(&ns->geometry, t->from)].n_damaged++;
        drop_below(
                ns, t->from, (struct drop_reason){.why = EVICT_INVALIDATE, .cause = CAUSE_DAMAGED});
}

/* Who reads it keeps it where it is. */
static bool retire(struct transfer *t)
{
        struct ns *ns = t->ns;

        if (!places_is_idle(ns, t->from))
                return false;
        if (shared_retire(ns, t->from))
                return true;
        ns->evict->hold(ns->policy, t->from);
        ns_watch(ns, t->from);
        return false;
}

static bool may_arrive(const struct transfer *t)
{
        return t->sets[1]->recall.state == RECALL_NONE && holds_moving(t);
}

#define PROBE_MOVED(name, t, other_tier)                                       \
        PROBE(kvleased, name, t, (t)->ns->tenant, (t)->ns, (t)->from, (t)->to, \
                (t)->carry->other_tier)

static int end_down(struct transfer *t)
{
        struct ns *ns = t->ns;

        if (!is_there(t) || !may_arrive(t) || !retire(t))
                return -EAGAIN;
        ns_store(ns)->counters.demoted_pages++;
        ns->tiers[tier_of_page(&ns->geometry, t->to)].n_arrived++;
        happened_demoted(ns, t->to);
        places_change(ns, t->from, t->to, carried(t)->content);
        PROBE_MOVED(demote, t, way.to);
        return 0;
}

/* Whoever asked for it reads the old page meanwhile. */
static int end_put(struct transfer *t)
{
        struct ns *ns = t->ns;

        if (!is_there(t))
                return -ENOENT;
        if (!may_arrive(t))
                return -EAGAIN;
        ns_store(ns)->counters.demoted_pages++;
        ns->tiers[tier_of_page(&ns->geometry, t->to)].n_arrived++;
        happened_demoted(ns, t->to);
        places_change_pinned(ns, t->from, t->to, carried(t)->content);
        PROBE_MOVED(demote, t, way.to);
        return 0;
}

static int end_up(struct transfer *t)
{
        struct ns *ns = t->ns;

        if (!is_there(t))
                return -ENOENT;
        if (!may_arrive(t))
                return -EAGAIN;
        ns_store(ns)->counters.promoted_pages++;
        ns->tiers[TIER_DEVICE].n_arrived++;
        places_change_pinned(ns, t->from, t->to, 0);
        PROBE_MOVED(promote, t, way.from);
        return 0;
}

static int end_copy(const struct transfer *t)
{
        const struct page *to = set_page(t->sets[1], t->to);
        const struct page *from = ns_page(t->ns, t->from);
        bool may_be_another = tier_of_page(&t->ns->geometry, t->from) == TIER_DEVICE ||
                              t->carry->way.has_part_sums;

        if (to->state != PAGE_GRANTED || to->generation != t->to_generation)
                return -ECANCELED;
        /* What lay below was compared with its own sum. What was on the device, or was compared
         * with the sums of parts that its place has, may be another's by now. */
        if (may_be_another && (!from || from->generation != t->from_generation))
                return -ENOENT;
        return 0;
}

static int end_by_kind(struct transfer *t)
{
        switch (t->kind) {
        case TRANSFER_DOWN:
                return end_down(t);
        case TRANSFER_UP:
                return end_up(t);
        case TRANSFER_PUT:
                return end_put(t);
        default:
                return end_copy(t);
        }
}

/* Everything follows from the result. */
static void finish_transfer(struct transfer *t)
{
        int result = t->is_unwanted ? -ECANCELED : carried(t)->result;
        enum transfer_kind kind = t->kind;
        uint32_t from = t->from, to = t->to;
        struct plane_range planes = t->planes;
        struct ns *ns = t->ns;

        unlink_one(t); /* nobody finds it any more */
        FAULT_POINT("transfer-before-end");
        if (result == 0)
                result = end_by_kind(t);
        if (result == -EBADMSG)
                drop_damaged(t);
        if (result != 0)
                give_up(t, result);
        FAULT_POINT("transfer-after-end");
        PROBE(kvleased, transferred, t, result);
        leave_sets(t);
        free(t);
        if (kind != TRANSFER_DOWN)
                ns_store(ns)->listeners->transfer_ended(ns, kind, from, to, planes, result);
}

/* Of one that is over all transfers end, and more may begin meanwhile. */
static void finish_all(struct carry *c)
{
        struct store *s = c->store;
        struct transfer *t;

        do {
                t = NULL;
                list_for_each (each, &s->moving.transfers, struct transfer, link)
                        if (each->carry == c) {
                                t = each;
                                break;
                        }
                if (t)
                        finish_transfer(t);
        } while (t);
        carry_free(c);
}

void transfers_end(struct store *s)
{
        struct carry *c;

        while ((c = carry_next_over(s)))
                finish_all(c);
}

/* ---- its beginning --------------------------------------------------------------------------- */

/* How its bytes get there. */
static struct carry_way way_of(const struct transfer *t, bool is_urgent)
{
        const struct ns *ns = t->ns;
        enum tier_kind from = tier_of_page(&ns->geometry, t->from);

        return (struct carry_way){.from = from,
                .to = tier_of_page(&ns->geometry, t->to),
                .planes = t->planes,
                .is_copy = t->kind == TRANSFER_COPY,
                .is_urgent = is_urgent,
                .has_part_sums = from == TIER_HOST && t->planes.n < ns->layout.n_planes &&
                                 part_sums_are_known(t->sets[0], t->from)};
}

static int begin_transfer(struct ns *ns, enum transfer_kind kind, uint32_t from, uint32_t to,
        struct plane_range planes, bool is_urgent)
{
        struct store *s = ns_store(ns);
        struct carry_way way;
        struct transfer *t;

        if (!s->moving.mover)
                return -EBUSY;
        t = calloc(1, sizeof(*t));
        if (!t)
                return -ENOMEM;
        *t = (struct transfer){.ns = ns,
                .kind = kind,
                .from = from,
                .to = to,
                .planes = planes,
                .from_generation = ns_page(ns, from)->generation,
                .to_generation = ns_page(ns, to)->generation,
                .bytes = planes.n * ns->layout.plane_page_bytes,
                .sets = {ns_set_of(ns, from), ns_set_of(ns, to)}};
        way = way_of(t, is_urgent);
        t->carry = carry_find(ns, &way);
        if (!t->carry) {
                free(t);
                return -ENOMEM;
        }
        t->place = carry_add(t->carry, from, to);
        t->sets[0]->n_busy++;
        t->sets[1]->n_busy++;
        s->moving.n_transfers++;
        if (kind == TRANSFER_DOWN) {
                s->moving.n_sinking++;
                s->moving.sinking_bytes += t->bytes;
        }
        list_init(&t->link);
        list_append(&s->moving.transfers, &t->link);
        if (kind != TRANSFER_COPY)
                ns->evict->lock(ns->policy, from);
        PROBE(kvleased, transfer, t, ns->tenant, ns, from, kind, t->bytes);
        if (s->owner.on_transfer_work)
                s->owner.on_transfer_work(s->owner.data);
        return 0;
}

int transfer_begin(
        struct ns *ns, enum transfer_kind kind, uint32_t from, uint32_t to, bool is_urgent)
{
        return begin_transfer(ns, kind, from, to, layout_all_planes(&ns->layout), is_urgent);
}

int transfer_begin_copy(struct ns *ns, uint32_t from, uint32_t to, struct plane_range planes)
{
        return begin_transfer(ns, TRANSFER_COPY, from, to, planes, true);
}

bool transfer_start(struct store *s)
{
        return carry_start(s);
}

void transfer_hurry(struct transfer *t)
{
        carry_hurry(t->carry);
}

void transfer_stop_wanting(struct transfer *t)
{
        t->is_unwanted = true;
        carry_leave(t->carry, t->place);
}

bool transfer_call_off(struct ns *ns)
{
        bool any = false;

        list_for_each (t, &ns_store(ns)->moving.transfers, struct transfer, link) {
                if (t->ns != ns || t->kind != TRANSFER_DOWN || t->is_unwanted)
                        continue;
                if (is_in_policy(t))
                        ns->evict->unlock(ns->policy, t->from);
                transfer_stop_wanting(t);
                any = true;
        }
        return any;
}

void transfer_forget_ns(struct ns *ns)
{
        list_for_each_safe (t, &ns_store(ns)->moving.transfers, struct transfer, link) {
                if (t->ns != ns)
                        continue;
                unlink_one(t);
                free(t);
        }
        carry_forget_ns(ns);
}

void transfer_deinit(struct store *s)
{
        mover_close(s->moving.mover);
        s->moving.mover = NULL;
        list_for_each_safe (t, &s->moving.transfers, struct transfer, link) {
                unlink_one(t);
                free(t);
        }
        carry_deinit(s);
}
