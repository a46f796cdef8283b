#include "daemon/core/moves/transfer.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/fault-point.h"
#include "base/probe.h"
#include "daemon/core/cache/drop.h"
#include "daemon/core/cache/note-events.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/moves/copy-batch.h"
#include "daemon/core/moves/part-sums.h"
#include "daemon/core/moves/renumber.h"
#include "daemon/core/moves/space.h"
#include "daemon/core/state/moving.h"
#include "daemon/core/state/listeners.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/state/shared.h"
#include "daemon/tier/mover.h"

/* ---- queries --------------------------------------------------------------------------------- */

/* Does the page that is read keep its place? It may be moved by another transfer meanwhile. */
static bool leaves_page(const struct transfer *t)
{
        return t->kind == TRANSFER_COPY || t->kind == TRANSFER_OUT || t->kind == TRANSFER_IN;
}

struct transfer *transfer_find(const struct ns *ns, uint32_t from)
{
        list_for_each (t, &ns->store->moving.transfers, struct transfer, link)
                if (t->ns == ns && t->from == from && !leaves_page(t))
                        return t;
        return NULL;
}

uint32_t transfer_count(const struct ns *ns, enum transfer_kind kind)
{
        uint32_t n = 0;

        list_for_each (t, &ns->store->moving.transfers, struct transfer, link)
                n += t->ns == ns && t->kind == kind;
        return n;
}

/* A page that a fill also writes to belongs to the fill. */
static bool holds_moving(const struct transfer *t)
{
        return t->sets[1] && set_page(t->sets[1], t->to)->state == PAGE_MOVING &&
               !fill_has(t->sets[1], t->to);
}

uint64_t transfer_count_moving(const struct ns *ns)
{
        uint64_t n = 0;

        list_for_each (t, &ns->store->moving.transfers, struct transfer, link)
                n += t->ns == ns && holds_moving(t);
        return n;
}

bool transfer_moves_to(const struct ns *ns, uint32_t page)
{
        list_for_each (t, &ns->store->moving.transfers, struct transfer, link)
                if (t->ns == ns && t->to == page && holds_moving(t))
                        return true;
        return false;
}

static struct batch_page *carried(const struct transfer *t)
{
        return &t->batch->pages[t->place];
}

/* ---- end ------------------------------------------------------------------------------------- */

static void unlink_one(struct transfer *t)
{
        struct store *s = t->ns->store;

        list_remove(&t->link);
        s->moving.n_transfers--;
        if (t->kind == TRANSFER_DOWN) {
                s->moving.n_demoting--;
                s->moving.demoting_bytes -= t->bytes;
        }
}

static void leave_sets(struct transfer *t)
{
        for (unsigned i = 0; i < 2; i++)
                if (t->sets[i])
                        t->sets[i]->moving.n_busy--;
        if (transfer_fills_granted(t))
                t->sets[1]->moving.n_copies--;
        for (unsigned i = 0; i < 2; i++)
                if (t->sets[i])
                        idle_sets_add(t->sets[i]);
}

/* Does the policy still have the page, locked if the transfer locked it? */
static bool is_in_policy(const struct transfer *t)
{
        const struct page *p = ns_page(t->ns, t->from);

        return p && p->generation == t->from_generation && p->state == PAGE_SEALED &&
               !ns_page_is_stale(t->ns, p);
}

/* Is the page unchanged, and in no window? */
static bool is_there(const struct transfer *t)
{
        return is_in_policy(t) && ns_extra(t->ns, t->from)->n_windows == 0;
}

/* Frees the target, unless it is a page of a copy that its client still has. */
static void free_target(struct transfer *t)
{
        if (holds_moving(t))
                ns_free_page(t->sets[1]->ns, t->to);
}

static bool is_from_disk(const struct transfer *t)
{
        return t->from != PAGE_NONE && tier_of_page(&t->ns->geometry, t->from) == TIER_DISK;
}

/* Makes the page a victim again. Drops it at once if its codec refuses it, or if the disk has lost
 * it. */
static void give_up(struct transfer *t, int result)
{
        struct batch_page *p = carried(t);
        bool is_gone = is_from_disk(t) && (p->result == -ENOENT || p->result == -ENODEV);

        if (((t->kind == TRANSFER_DOWN && result == -EDOM) || is_gone) && is_there(t))
                drop_below(t->ns, t->from, (struct drop_reason){.why = EVICT_PRESSURE});
        if (!leaves_page(t) && !t->is_unwanted && is_in_policy(t))
                t->ns->evict->unlock(t->ns->policy, t->from);
        if (p->is_written)
                space_discard(t->ns, p->content, p->disk.key);
        free_target(t);
}

/* Drops a page whose stored bytes are damaged, and all pages below it. */
static void drop_damaged(struct transfer *t)
{
        struct ns *ns = t->ns;

        if (!is_there(t))
                return;
        ns->store->counters.pages_damaged++;
        ns->tiers[tier_of_page(&ns->geometry, t->from)].n_damaged++;
        drop_below(
                ns, t->from, (struct drop_reason){.why = EVICT_INVALIDATE, .cause = CAUSE_DAMAGED});
}

/* Retires the page; a page that is read stays in its place. */
static bool retire(struct transfer *t)
{
        struct ns *ns = t->ns;

        if (!page_is_idle(ns, t->from))
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
                (t)->batch->other_tier)

static int end_down(struct transfer *t)
{
        struct ns *ns = t->ns;

        if (!is_there(t) || !may_arrive(t) || !retire(t))
                return -EAGAIN;
        ns->store->counters.demoted_pages++;
        ns->tiers[tier_of_page(&ns->geometry, t->to)].n_arrived++;
        note_demoted(ns, t->to);
        renumber_page(ns, t->from, t->to, carried(t)->content);
        PROBE_MOVED(demote, t, way.to);
        return 0;
}

/* Readers of the old page keep it meanwhile. */
static int end_put(struct transfer *t)
{
        struct ns *ns = t->ns;

        if (!is_there(t))
                return -ENOENT;
        if (!may_arrive(t))
                return -EAGAIN;
        ns->store->counters.demoted_pages++;
        ns->tiers[tier_of_page(&ns->geometry, t->to)].n_arrived++;
        note_demoted(ns, t->to);
        renumber_pinned_page(ns, t->from, t->to, carried(t)->content);
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
        ns->store->counters.promoted_pages++;
        ns->tiers[TIER_DEVICE].n_arrived++;
        renumber_pinned_page(ns, t->from, t->to, 0);
        PROBE_MOVED(promote, t, way.from);
        return 0;
}

/* Bytes of a lower tier were checked with the page's own sum. Bytes of the device, or checked with
 * sums of parts, may be another page's now. */
static int end_reading(const struct transfer *t)
{
        const struct page *from = ns_page(t->ns, t->from);
        bool may_be_another = tier_of_page(&t->ns->geometry, t->from) == TIER_DEVICE ||
                              t->batch->way.has_part_sums;

        return may_be_another && (!from || from->generation != t->from_generation) ? -ENOENT : 0;
}

static int end_filling(const struct transfer *t)
{
        const struct page *to = set_page(t->sets[1], t->to);

        return to->state == PAGE_GRANTED && to->generation == t->to_generation ? 0 : -ECANCELED;
}

static int end_copy(const struct transfer *t)
{
        int r = end_filling(t);

        return r == 0 ? end_reading(t) : r;
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
        case TRANSFER_OUT:
                return end_reading(t);
        case TRANSFER_IN:
                return end_filling(t);
        default:
                return end_copy(t);
        }
}

/* Handles the transfer's result. */
static void finish_transfer(struct transfer *t)
{
        int result = t->is_unwanted ? -ECANCELED : carried(t)->result;
        const struct transfer_buffer buffer = t->buffer;
        struct copy_batch *batch = t->batch;
        enum transfer_kind kind = t->kind;
        uint32_t from = t->from, to = t->to;
        struct plane_range planes = t->planes;
        struct ns *ns = t->ns;

        unlink_one(t); /* it can't be found any more */
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
        if (buffer.done)
                buffer.done(batch_take_buffer(batch), result, buffer.data);
        else if (kind != TRANSFER_DOWN && kind != TRANSFER_OUT && kind != TRANSFER_IN)
                ns->store->listeners->transfer_ended(ns, kind, from, to, planes, result);
}

/* Ends all transfers of a finished copy batch; more may begin meanwhile. */
static void finish_all(struct copy_batch *c)
{
        struct store *s = c->store;
        struct transfer *t;

        do {
                t = NULL;
                list_for_each (each, &s->moving.transfers, struct transfer, link)
                        if (each->batch == c) {
                                t = each;
                                break;
                        }
                if (t)
                        finish_transfer(t);
        } while (t);
        batch_free(c);
}

void transfers_end(struct store *s)
{
        struct copy_batch *c;

        while ((c = batch_next_over(s)))
                finish_all(c);
}

/* ---- begin ----------------------------------------------------------------------------------- */

/* Returns how its bytes are copied. */
static struct batch_way way_of(const struct transfer *t, bool is_urgent)
{
        const struct ns *ns = t->ns;
        const enum tier_kind of_buffer = page_travel_form(&ns->codecs.of_pages);
        struct batch_way way = {.from = of_buffer,
                .to = of_buffer,
                .planes = t->planes,
                .is_copy = leaves_page(t),
                .is_urgent = is_urgent};

        if (t->sets[0])
                way.from = tier_of_page(&ns->geometry, t->from);
        else
                way.buffer = BATCH_FROM_BUFFER;
        if (t->sets[1])
                way.to = tier_of_page(&ns->geometry, t->to);
        else
                way.buffer = BATCH_TO_BUFFER;
        way.has_part_sums = way.from == TIER_HOST && t->planes.n < ns->layout.n_planes &&
                            part_sums_are_known(t->sets[0], t->from);
        return way;
}

static struct copy_batch *find_batch(const struct transfer *t, bool is_urgent)
{
        struct batch_way way = way_of(t, is_urgent);

        if (way.buffer == BATCH_NO_BUFFER)
                return batch_find(t->ns, &way);
        return batch_new_with_buffer(t->ns, &way, t->buffer.bytes, t->buffer.at);
}

static void account_transfer(struct transfer *t)
{
        struct store *s = t->ns->store;

        for (unsigned i = 0; i < 2; i++)
                if (t->sets[i])
                        t->sets[i]->moving.n_busy++;
        if (transfer_fills_granted(t))
                t->sets[1]->moving.n_copies++;
        s->moving.n_transfers++;
        if (t->kind == TRANSFER_DOWN) {
                s->moving.n_demoting++;
                s->moving.demoting_bytes += t->bytes;
        }
        list_init(&t->link);
        list_append(&s->moving.transfers, &t->link);
}

/* *what has the kind, pages, planes, and the buffer, if any. */
static int begin_transfer(
        struct ns *ns, const struct transfer *what, bool is_urgent, struct transfer **ret_transfer)
{
        struct store *s = ns->store;
        struct transfer *t;

        if (!s->moving.mover)
                return -EBUSY;
        t = malloc(sizeof(*t));
        if (!t)
                return -ENOMEM;
        *t = *what;
        t->ns = ns;
        t->bytes = t->planes.n * ns->layout.plane_page_bytes;
        if (t->from != PAGE_NONE) {
                t->from_generation = ns_page(ns, t->from)->generation;
                t->sets[0] = ns_set_of(ns, t->from);
        }
        if (t->to != PAGE_NONE) {
                t->to_generation = ns_page(ns, t->to)->generation;
                t->sets[1] = ns_set_of(ns, t->to);
        }
        t->batch = find_batch(t, is_urgent);
        if (!t->batch) {
                free(t);
                return -ENOMEM;
        }
        t->place = batch_add(t->batch, t->from, t->to);
        account_transfer(t);
        if (!leaves_page(t))
                ns->evict->lock(ns->policy, t->from);
        PROBE(kvleased, transfer, t, ns->tenant, ns, t->from != PAGE_NONE ? t->from : t->to,
                t->kind, t->bytes);
        store_wake_transfers(s);
        if (ret_transfer)
                *ret_transfer = t;
        return 0;
}

int transfer_begin(
        struct ns *ns, enum transfer_kind kind, uint32_t from, uint32_t to, bool is_urgent)
{
        const struct transfer what = {
                .kind = kind, .from = from, .to = to, .planes = layout_all_planes(&ns->layout)};

        return begin_transfer(ns, &what, is_urgent, NULL);
}

int transfer_begin_copy(struct ns *ns, uint32_t from, uint32_t to, struct plane_range planes)
{
        const struct transfer what = {
                .kind = TRANSFER_COPY, .from = from, .to = to, .planes = planes};

        return begin_transfer(ns, &what, true, NULL);
}

int transfer_begin_out(struct ns *ns, uint32_t from, const struct transfer_buffer *buffer,
        bool is_urgent, struct transfer **ret_transfer)
{
        const struct transfer what = {.kind = TRANSFER_OUT,
                .from = from,
                .to = PAGE_NONE,
                .planes = layout_all_planes(&ns->layout),
                .buffer = *buffer};

        return begin_transfer(ns, &what, is_urgent, ret_transfer);
}

int transfer_begin_in(struct ns *ns, uint32_t to, const struct transfer_buffer *buffer,
        bool is_urgent, struct transfer **ret_transfer)
{
        const struct transfer what = {.kind = TRANSFER_IN,
                .from = PAGE_NONE,
                .to = to,
                .planes = layout_all_planes(&ns->layout),
                .buffer = *buffer};

        return begin_transfer(ns, &what, is_urgent, ret_transfer);
}

void transfer_let_go(struct transfer *t)
{
        t->buffer.done = NULL;
        if (!t->is_unwanted)
                transfer_stop_wanting(t);
}

bool transfer_start(struct store *s)
{
        return batch_start(s);
}

void transfer_hurry(struct transfer *t)
{
        batch_hurry(t->batch);
}

void transfer_stop_wanting(struct transfer *t)
{
        t->is_unwanted = true;
        batch_leave(t->batch, t->place);
}

bool transfer_call_off(struct ns *ns)
{
        bool any = false;

        list_for_each (t, &ns->store->moving.transfers, struct transfer, link) {
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
        list_for_each_safe (t, &ns->store->moving.transfers, struct transfer, link) {
                if (t->ns != ns)
                        continue;
                unlink_one(t);
                free(t);
        }
        batch_forget_ns(ns);
}

void transfer_deinit(struct store *s)
{
        mover_close(s->moving.mover);
        s->moving.mover = NULL;
        list_for_each_safe (t, &s->moving.transfers, struct transfer, link) {
                unlink_one(t);
                free(t);
        }
        batch_deinit(s);
}
