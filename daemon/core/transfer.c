#include "daemon/core/transfer.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "base/fault-point.h"
#include "daemon/core/fetch.h"
#include "daemon/core/history.h"
#include "daemon/core/ns.h"
#include "daemon/core/places.h"
#include "daemon/core/recall.h"
#include "daemon/core/store.h"
#include "daemon/core/tenant.h"
#include "daemon/tier/mover.h"
#include "gpu/queue.h"

static struct store *store_of(const struct ns *ns)
{
        return ns->tenant->store;
}

static bool is_to_device(const struct transfer *t)
{
        return t->kind != TRANSFER_DOWN;
}

static void wake(struct store *s)
{
        if (s->on_transfer_work)
                s->on_transfer_work(s->callback_data);
}

/* ---- which ---------------------------------------------------------------------------------- */

struct transfer *transfer_find(const struct ns *ns, uint32_t from)
{
        list_for_each (t, &store_of(ns)->transfers, struct transfer, link)
                if (t->ns == ns && t->from == from && t->kind != TRANSFER_COPY)
                        return t;
        return NULL;
}

uint32_t transfer_count(const struct ns *ns, enum transfer_kind kind)
{
        uint32_t n = 0;

        list_for_each (t, &store_of(ns)->transfers, struct transfer, link)
                n += t->ns == ns && t->kind == kind;
        return n;
}

static bool holds_moving(const struct transfer *t)
{
        return t->ns && set_page(t->sets[1], t->to)->state == PAGE_MOVING;
}

uint64_t transfer_count_moving(const struct ns *ns)
{
        uint64_t n = 0;

        list_for_each (t, &store_of(ns)->transfers, struct transfer, link)
                n += t->ns == ns && holds_moving(t);
        return n;
}

bool transfer_moves_to(const struct ns *ns, uint32_t page)
{
        list_for_each (t, &store_of(ns)->transfers, struct transfer, link)
                if (t->ns == ns && t->to == page && holds_moving(t))
                        return true;
        return false;
}

/* ---- its end -------------------------------------------------------------------------------- */

static void unlink_one(struct transfer *t)
{
        list_remove(&t->link);
        t->store->n_transfers--;
        t->store->n_sinking -= t->kind == TRANSFER_DOWN;
}

static void transfer_free(struct transfer *t)
{
        free(t->buffer);
        free(t);
}

static void leave_sets(struct transfer *t)
{
        for (unsigned i = 0; i < 2; i++)
                t->sets[i]->n_busy--;
        for (unsigned i = 0; i < 2; i++)
                if (i == 0 || t->sets[0] != t->sets[1])
                        ns_settle_set(t->sets[i]);
}

/* Is the page that was to be moved still there, as it was? */
static bool is_there(const struct transfer *t)
{
        const struct page *p = ns_page(t->ns, t->from);

        return p && p->generation == t->from_generation && p->state == PAGE_SEALED &&
               !ns_page_is_stale(t->ns, p) && ns_note(t->ns, t->from)->n_windows == 0;
}

/* Nobody's, but for a page of a copy whose client still has it. */
static void free_target(struct transfer *t)
{
        if (holds_moving(t))
                ns_free_page(t->sets[1]->ns, t->to);
}

/* It is a victim again as any other; one that its codec doesn't take, at once: it would be again
 * and again. */
static void give_up(struct transfer *t)
{
        if (t->ns && t->result == -EDOM && is_there(t))
                (void)ns_drop_subtree(t->ns, t->from, EVICT_PRESSURE);
        if (t->kind != TRANSFER_COPY && !t->is_unwanted && is_there(t))
                t->ns->evict->unlock(t->ns->policy, t->from);
        free_target(t);
}

/* What is stored isn't what was: nobody is to have it, nor what comes after it. */
static void drop_damaged(struct transfer *t)
{
        struct ns *ns = t->ns;
        struct store *s = store_of(ns);

        if (!is_there(t))
                return;
        s->counters.pages_damaged++;
        ns->tiers[tier_of_page(&ns->geometry, t->from)].n_damaged++;
        s->cause = CAUSE_DAMAGED;
        (void)ns_drop_subtree(ns, t->from, EVICT_INVALIDATE);
        s->cause = CAUSE_NONE;
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

static int end_down(struct transfer *t)
{
        struct ns *ns = t->ns;

        if (!is_there(t) || !may_arrive(t) || !retire(t))
                return -EAGAIN;
        store_of(ns)->counters.demoted_pages++;
        ns->tiers[tier_of_page(&ns->geometry, t->to)].n_arrived++;
        places_change(ns, t->from, t->to, t->content);
        return 0;
}

static int end_up(struct transfer *t)
{
        struct ns *ns = t->ns;

        if (!is_there(t))
                return -ENOENT;
        if (!may_arrive(t))
                return -EAGAIN;
        store_of(ns)->counters.promoted_pages++;
        ns->tiers[TIER_DEVICE].n_arrived++;
        places_change_pinned(ns, t->from, t->to, 0);
        return 0;
}

static int end_copy(const struct transfer *t)
{
        const struct page *to = set_page(t->sets[1], t->to);
        const struct page *from = ns_page(t->ns, t->from);

        if (to->state != PAGE_GRANTED || to->generation != t->to_generation)
                return -ECANCELED;
        /* What lay below was compared with its sum; what was on the device may be another's by now.
         */
        if (tier_of_page(&t->ns->geometry, t->from) == TIER_DEVICE &&
                (!from || from->generation != t->from_generation))
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
        default:
                return end_copy(t);
        }
}

/* Everything follows from the result. Sets may be gone after. */
static void finish(struct transfer *t)
{
        struct transfer was = *t;
        int result = t->result;

        unlink_one(t); /* nobody finds it any more */
        FAULT_POINT("transfer-before-end");
        if (t->is_unwanted)
                result = -ECANCELED;
        if (t->ns && result == 0)
                result = end_by_kind(t);
        if (t->ns && result == -EBADMSG)
                drop_damaged(t);
        if (t->ns && result != 0)
                give_up(t);
        FAULT_POINT("transfer-after-end");
        if (t->ns)
                leave_sets(t);
        transfer_free(t);
        if (was.ns && was.kind != TRANSFER_DOWN)
                fetch_ended(was.ns, was.kind, was.from, was.to, result);
}

/* ---- copies --------------------------------------------------------------------------------- */

static void over(struct transfer *t, int result)
{
        struct store *s = t->store;

        t->is_over = true;
        t->result = result;
        wake(s);
}

static int start_step(struct transfer *t);

static void end_step(struct transfer *t, int result)
{
        t->step++;
        if (result == 0)
                result = t->ns ? start_step(t) : -ECANCELED;
        if (result <= 0)
                over(t, result);
}

static void on_moved(struct move *move, int result, void *data)
{
        struct transfer *t = data;

        t->move = NULL;
        if (result == 0 && move->direction == MOVE_DOWN)
                t->content = move->pages[0].sum;
        end_step(t, result);
}

static void on_job(struct job *job, int result, void *data)
{
        struct transfer *t = data;

        if (result == -ETIMEDOUT) {
                t->is_late = true;
                return;
        }
        t->queue = NULL;
        end_step(t, result);
}

/* Where a page's plane lies, or the buffer has it. NULL: there is no memory for it. */
static uint8_t *plain_at(const struct transfer *t, unsigned end, uint32_t page, uint32_t plane)
{
        if (t->buffer)
                return t->buffer + plane * t->sets[end]->ns->layout.plane_page_bytes;
        return set_address(t->sets[end], page, plane);
}

static uint8_t *stored_at(const struct transfer *t, unsigned end, uint32_t page, uint32_t plane)
{
        const struct ns *ns = t->sets[end]->ns;
        const struct tier_geometry *g = &ns->geometry.tiers[set_kind(t->sets[end])];
        uint8_t *at = set_address(t->sets[end], page, g->codec == CODEC_NONE ? plane : 0);

        if (!at || g->codec == CODEC_NONE)
                return at;
        return at + plane * codec_encoded_bytes(g->codec, &ns->codec_shape);
}

/* The mover's part. */
static int submit_move(struct transfer *t)
{
        const struct ns *ns = t->ns;
        bool from_device = set_kind(t->sets[0]) == TIER_DEVICE;
        unsigned stored = is_to_device(t) && !from_device ? 0 : 1; /* of the two ends */
        enum codec codec = ns->geometry.tiers[set_kind(t->sets[stored])].codec;
        struct move *m = move_new(stored == 0 ? MOVE_UP : MOVE_DOWN, 1, ns->layout.n_planes);
        int r;

        if (!m)
                return -ENOMEM;
        for (uint32_t i = 0; i < ns->layout.n_planes; i++) {
                uint8_t *low = stored == 0 ? stored_at(t, 0, t->from, i) : NULL;
                uint8_t *from = low ? low : plain_at(t, 0, t->from, i);
                uint8_t *to = set_kind(t->sets[1]) == TIER_DEVICE ? plain_at(t, 1, t->to, i)
                                                                  : stored_at(t, 1, t->to, i);

                if (!from || !to) {
                        move_free(m);
                        return -EIO;
                }
                m->planes[i] = (struct move_plane){.from = from,
                        .to = to,
                        .plain_bytes = ns->layout.plane_page_bytes,
                        .codec = codec,
                        .shape = codec == CODEC_NONE ? NULL : &ns->codec_shape};
        }
        m->pages[0].sum = t->content;
        m->is_urgent = t->is_urgent;
        m->done = on_moved;
        m->data = t;
        r = mover_submit(t->store->mover, m);
        if (r != 0) {
                move_free(m);
                return r > 0 ? -EBUSY : r;
        }
        t->move = m;
        return 1;
}

/* The queue's part: between the device and the buffer. */
static int submit_job(struct transfer *t, unsigned end)
{
        const struct ns *ns = t->ns;
        struct extent_set *set = t->sets[end];
        uint32_t page = end == 0 ? t->from : t->to;
        uint64_t bytes = ns->layout.plane_page_bytes;
        struct job *job = job_new(end == 0 ? JOB_COPY_OUT : JOB_COPY_IN, ns->layout.n_planes);

        if (!job)
                return -ENOMEM;
        for (uint32_t i = 0; i < ns->layout.n_planes; i++)
                job->copies[i] = (struct device_copy){.extent = set->extents[i],
                        .offset = page % ns->geometry.set_pages * bytes,
                        .host = t->buffer + i * bytes,
                        .len = bytes};
        job->done = on_job;
        job->data = t;
        t->queue = set->pool->queue;
        queue_submit(set->pool->queue, job);
        return 1;
}

/*
 * A transfer has up to three steps: out of a device behind a queue, the mover's, and into one. 1:
 * the next one is under way; 0: there is none; -errno.
 */
static int start_step(struct transfer *t)
{
        bool out = t->sets[0]->pool->queue, in = t->sets[1]->pool->queue;
        int step = t->step + !out; /* 0: out, 1: mover, 2: in */

        if (out && in && step == 1) /* the buffer has them already */
                step = ++t->step;
        FAULT_POINT("transfer-before-step");
        switch (step) {
        case 0:
                return submit_job(t, 0);
        case 1:
                return submit_move(t);
        case 2:
                return in ? submit_job(t, 1) : 0;
        default:
                return 0;
        }
}

static int make_buffer(struct transfer *t)
{
        const struct ns *ns = t->ns;

        if (!t->sets[0]->pool->queue && !t->sets[1]->pool->queue)
                return 0;
        t->buffer = malloc(ns->layout.plane_page_bytes * ns->layout.n_planes);
        return t->buffer ? 0 : -ENOMEM;
}

int transfer_begin(
        struct ns *ns, enum transfer_kind kind, uint32_t from, uint32_t to, bool is_urgent)
{
        struct store *s = store_of(ns);
        struct transfer *t;
        int r;

        if (!s->mover || (kind == TRANSFER_DOWN && s->n_sinking >= TRANSFERS_MAX))
                return -EBUSY;
        t = calloc(1, sizeof(*t));
        if (!t)
                return -ENOMEM;
        *t = (struct transfer){.store = s,
                .ns = ns,
                .kind = kind,
                .is_urgent = is_urgent,
                .from = from,
                .to = to,
                .from_generation = ns_page(ns, from)->generation,
                .to_generation = ns_page(ns, to)->generation,
                .sets = {ns_set_of(ns, from), ns_set_of(ns, to)},
                .content = ns_note(ns, from)->content};
        list_init(&t->link);
        r = make_buffer(t);
        if (r == 0)
                r = start_step(t);
        if (r < 0) {
                transfer_free(t);
                return r;
        }
        assert(r == 1); /* bytes have to go somewhere */
        t->sets[0]->n_busy++;
        t->sets[1]->n_busy++;
        s->n_transfers++;
        s->n_sinking += kind == TRANSFER_DOWN;
        list_append(&s->transfers, &t->link);
        if (kind != TRANSFER_COPY)
                ns->evict->lock(ns->policy, from);
        return 0;
}

void transfer_hurry(struct transfer *t)
{
        t->is_urgent = true;
        if (t->move)
                mover_hurry(t->store->mover, t->move);
}

/* The queue has answered after all, or never will: nobody writes to the buffer any more. */
static bool is_over(struct transfer *t)
{
        if (t->is_late && !queue_is_stuck(t->queue)) {
                t->is_over = true;
                t->result = -ETIMEDOUT;
        }
        return t->is_over;
}

static struct transfer *find_over(struct store *s)
{
        list_for_each (t, &s->transfers, struct transfer, link)
                if (is_over(t))
                        return t;
        return NULL;
}

bool transfer_work(struct store *s)
{
        struct transfer *t;

        while ((t = find_over(s)))
                finish(t);
        return fetch_work(s) || !list_is_empty(&s->transfers);
}

static void stop_wanting(struct transfer *t)
{
        t->is_unwanted = true;
        if (t->move)
                mover_cancel(t->store->mover, t->move);
}

bool transfer_call_off(struct ns *ns)
{
        bool any = false;

        list_for_each (t, &store_of(ns)->transfers, struct transfer, link) {
                if (t->ns != ns || t->kind != TRANSFER_DOWN || t->is_unwanted)
                        continue;
                if (is_there(t))
                        ns->evict->unlock(ns->policy, t->from);
                stop_wanting(t);
                any = true;
        }
        return any;
}

bool transfer_takes(struct ns *ns, uint32_t page)
{
        struct transfer *found = NULL;

        list_for_each (t, &store_of(ns)->transfers, struct transfer, link)
                if (t->ns == ns && t->kind == TRANSFER_COPY && t->to == page && !t->is_unwanted)
                        found = t;
        if (!found)
                return false;
        ns_set_state(ns, page, PAGE_MOVING);
        stop_wanting(found);
        return true;
}

/* Callbacks of others run meanwhile: they note what is over, no more. */
static void stop_move(struct transfer *t)
{
        struct mover *m = t->store->mover;
        struct pollfd fd = {.fd = mover_fd(m), .events = POLLIN};

        if (t->move)
                mover_cancel(m, t->move);
        while (t->move) {
                (void)poll(&fd, 1, 1);
                (void)mover_reap(m);
        }
}

void transfer_forget_ns(struct ns *ns)
{
        list_for_each_safe (t, &store_of(ns)->transfers, struct transfer, link) {
                if (t->ns != ns)
                        continue;
                t->ns = NULL;
                stop_move(t);
                if (t->queue) /* its buffer, until the job is over */
                        continue;
                unlink_one(t);
                transfer_free(t);
        }
}

void transfer_deinit(struct store *s)
{
        mover_close(s->mover);
        s->mover = NULL;
        list_for_each_safe (t, &s->transfers, struct transfer, link) {
                unlink_one(t);
                transfer_free(t);
        }
}
