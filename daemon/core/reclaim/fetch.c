#include "daemon/core/reclaim/fetch.h"

#include <errno.h>
#include <stdlib.h>

#include "base/probe.h"
#include "daemon/core/cache/drop.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/moves/copy-batch.h"
#include "daemon/core/moves/part-sums.h"
#include "daemon/core/moves/space.h"
#include "daemon/core/moves/transfer.h"
#include "daemon/core/reclaim/demote.h"
#include "daemon/core/reclaim/prefetch.h"
#include "daemon/core/reclaim/room.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "policy/tier.h"
#include "proto/status.h"

/* Retries of a transfer that failed for a reason other than the page (its target's set was
 * recalled). Not tuned. */
#define MAX_TRIES 8

/* Pages of the lower tier to try as victims; they may be read. Not tuned. */
#define MAX_VICTIMS 16

static void fetch_free(struct fetch *f)
{
        list_remove(&f->link);
        free(f);
}

static void tell_end(struct fetch *f, int status, uint32_t page)
{
        list_remove(&f->link);
        list_init(&f->link);
        PROBE(kvleased, fetched, f, status, page);
        f->done(f, status, page, f->data);
        free(f);
}

uint32_t fetch_count(const struct attach *a)
{
        uint32_t n = 0;

        list_for_each (f, &a->ns->store->fetching.fetches, struct fetch, link)
                n += f->attach == a;
        return n;
}

/* ---- one page -------------------------------------------------------------------------------- */

/* Finds the page's present place: *page, which may have been moved. Returns 0, FETCH_THERE,
 * -ENOENT. */
static int locate(const struct ns *ns, struct fetch_request *rq)
{
        const struct page *p = ns_page(ns, rq->page);

        if (!p || (uint32_t)p->generation != rq->generation)
                return -ENOENT;
        /* A copy needs no index: its source may be detached. */
        if (rq->to != PAGE_NONE)
                return p->state == PAGE_SEALED || p->state == PAGE_DETACHED ? 0 : -ENOENT;
        if (p->state == PAGE_DETACHED) {
                rq->page = ns_find_page(ns, p->key);
                if (rq->page == PAGE_NONE)
                        return -ENOENT;
                rq->generation = (uint32_t)ns_page(ns, rq->page)->generation;
        } else if (p->state != PAGE_SEALED || ns_page_is_stale(ns, p)) {
                return -ENOENT;
        }
        if ((tier_of_page(&ns->geometry, rq->page) != TIER_DEVICE) == rq->goes_down)
                return FETCH_THERE;
        return ns_extra(ns, rq->page)->n_windows > 0 ? -ENOENT : 0;
}

/* Takes a FREE page of the device, MOVING. Returns 0; KVL_STATUS_FULL; -EAGAIN: one is being made.
 */
static int take_place(struct ns *ns, uint32_t *ret_page)
{
        struct extent_set *set;

        if (ns_n_room(ns) == 0 && !room_leaves_another(ns) && demote_makes_room(ns) &&
                ns_n_room(ns) == 0)
                return -EAGAIN;
        if (ns_n_room(ns) == 0)
                room_prepare(ns, 1, 1);
        set = list_first(&ns->device.sets_room, struct extent_set, room_link);
        if (set)
                *ret_page = set_take_page(set, &(struct page_use){.state = PAGE_MOVING});
        if (set)
                return 0;
        return ns->device.n_preparing > 0 ? -EAGAIN : KVL_STATUS_FULL;
}

static int begin_up(struct ns *ns, uint32_t from)
{
        struct transfer *t = transfer_find(ns, from);
        uint32_t to;
        int r;

        if (t && t->kind == TRANSFER_UP) {
                transfer_hurry(t);
                return 0;
        }
        if (t) /* being demoted: that fails, as it is pinned */
                return -EAGAIN;
        r = take_place(ns, &to);
        if (r != 0)
                return r;
        /* Making space may have dropped the page itself. */
        if (ns_page(ns, from)->state != PAGE_SEALED)
                r = -ENOENT;
        if (r == 0)
                r = transfer_begin(ns, TRANSFER_UP, from, to, true);
        if (r < 0)
                ns_free_page(ns, to);
        return r == -EBUSY ? -EAGAIN : r;
}

/* Takes a page of the lower tier, MOVING. Pages that aren't read are evicted for a page that is.
 * Returns 0; KVL_STATUS_FULL. */
static int take_place_below(struct ns *ns, uint32_t *ret_page)
{
        enum tier_kind kind = tier_below(ns, TIER_DEVICE);

        for (unsigned i = 0; kind < TIER_COUNT && i < MAX_VICTIMS; i++) {
                struct extent_set *set =
                        list_first(&ns->tiers[kind].sets_room, struct extent_set, room_link);
                uint32_t victim;

                if (set || set_bind_in(ns, kind, NULL, &set, NULL) == 0) {
                        *ret_page = set_take_page(set, &(struct page_use){.state = PAGE_MOVING});
                        return 0;
                }
                victim = ns_victim(ns, kind, EVICT_DROP);
                if (victim == NODE_NONE && ns_yield_expected(ns, kind, EVICT_DROP))
                        continue;
                if (victim == NODE_NONE)
                        break;
                (void)ns_evict_leaf(ns, victim, NULL);
        }
        return KVL_STATUS_FULL;
}

static int begin_down(struct ns *ns, uint32_t from)
{
        const struct transfer *t = transfer_find(ns, from);
        uint32_t to;
        int r;

        if (t)
                return t->kind == TRANSFER_PUT ? 0 : -EAGAIN;
        r = take_place_below(ns, &to);
        if (r == 0) {
                r = transfer_begin(ns, TRANSFER_PUT, from, to, true);
                if (r < 0)
                        ns_free_page(ns, to);
        }
        return r == -EBUSY ? -EAGAIN : r;
}

static int begin_copy(struct ns *ns, const struct fetch_request *rq)
{
        int r = transfer_begin_copy(ns, rq->page, rq->to, rq->planes);

        /* No device has a lower tier, so there is no mover, for good. */
        return r == -EBUSY ? -EIO : r;
}

/* Returns 0: under way, or to be retried; FETCH_THERE, KVL_STATUS_FULL, -errno: an answer. */
static int start_fetch(struct fetch *f)
{
        struct ns *ns = f->attach->ns;
        int r = locate(ns, &f->rq);

        if (r != 0)
                return r;
        if (f->rq.to != PAGE_NONE)
                r = begin_copy(ns, &f->rq);
        else
                r = f->rq.goes_down ? begin_down(ns, f->rq.page) : begin_up(ns, f->rq.page);
        f->is_waiting = r == 0;
        return r == -EAGAIN ? 0 : r;
}

static int check_target(const struct attach *a, uint32_t to, struct detail *d)
{
        const struct page *p;

        if (to == PAGE_NONE)
                return 0;
        p = ns_page(a->ns, to);
        if (p && p->state == PAGE_GRANTED && p->owner == a->grants->group->id && !p->ready &&
                tier_of_page(&a->ns->geometry, to) == TIER_DEVICE)
                return 0;
        return detail_set(d, -EINVAL, "page %u of namespace %s isn't leased by this client's group",
                to, a->ns->name);
}

static int check_planes(const struct ns *ns, const struct fetch_request *rq, struct detail *d)
{
        uint32_t n = ns->layout.n_planes;

        if (rq->planes.n == 0 && rq->planes.first == 0)
                return 0;
        if (rq->to == PAGE_NONE)
                return detail_set(d, -EINVAL,
                        "page %u moves as a whole: planes are named of copies", rq->page);
        if (rq->planes.n == 0 || rq->planes.n > n || rq->planes.first > n - rq->planes.n)
                return detail_set(d, -EINVAL,
                        "%u planes from %u on: pages of namespace %s have planes 0 to %u",
                        rq->planes.n, rq->planes.first, ns->name, n - 1);
        return 0;
}

static int check_request(const struct attach *a, const struct fetch_request *rq, struct detail *d)
{
        if (rq->page >= a->ns->geometry.capacity_pages)
                return detail_set(d, -EINVAL, "page %u: namespace %s has pages 0 to %u", rq->page,
                        a->ns->name, a->ns->geometry.capacity_pages - 1);
        if (fetch_count(a) >= FETCH_MAX)
                return detail_set(
                        d, -EAGAIN, "%d pages are being fetched, the most there may be", FETCH_MAX);
        return check_target(a, rq->to, d) < 0 ? -EINVAL : check_planes(a->ns, rq, d);
}

/* Returns all planes if none are named, or if they are too small to be checked by themselves. */
static struct plane_range planes_to_copy(const struct ns *ns, const struct fetch_request *rq)
{
        if (rq->planes.n == 0 || ns->layout.plane_page_bytes < PART_SUMS_MIN_BYTES)
                return layout_all_planes(&ns->layout);
        return rq->planes;
}

int fetch_begin(struct attach *a, const struct fetch_request *rq, fetch_fn done, void *data,
        struct fetch **ret_fetch, uint32_t *ret_page, struct detail *d)
{
        int r = check_request(a, rq, d);
        struct fetch *f;

        if (r < 0)
                return r;
        f = calloc(1, sizeof(*f));
        if (!f)
                return detail_set(d, -ENOMEM, "no memory to fetch page %u", rq->page);
        *f = (struct fetch){.attach = a, .rq = *rq, .done = done, .data = data};
        f->rq.planes = planes_to_copy(a->ns, rq);
        r = locate(a->ns, &f->rq);
        if (r >= 0)
                prefetch_note_fetch(a, f->rq.page, rq->to != PAGE_NONE);
        list_append(&a->ns->store->fetching.fetches, &f->link);
        PROBE(kvleased, fetch, f, a->ns->tenant, a->ns, f->rq.page, f->rq.to, f->rq.goes_down);
        r = start_fetch(f);
        if (r == 0) {
                *ret_fetch = f;
                return 0;
        }
        if (r == FETCH_THERE)
                *ret_page = f->rq.page;
        PROBE(kvleased, fetched, f, r, f->rq.page);
        fetch_free(f);
        return r;
}

void fetch_cancel(struct fetch *f)
{
        PROBE(kvleased, fetched, f, -ECANCELED, f->rq.page);
        fetch_free(f);
}

void fetch_end_all(struct attach *a)
{
        struct store *s = a->ns->store;
        bool any;

        do {
                any = false;
                list_for_each (f, &s->fetching.fetches, struct fetch, link)
                        if (f->attach == a) {
                                tell_end(f, -ECANCELED, PAGE_NONE);
                                any = true;
                                break;
                        }
        } while (any);
}

/* ---- end ------------------------------------------------------------------------------------- */

static struct fetch *find_waiting(struct ns *ns, enum transfer_kind kind, uint32_t from,
        uint32_t to, struct plane_range planes)
{
        list_for_each (f, &ns->store->fetching.fetches, struct fetch, link)
                if (f->is_waiting && f->attach->ns == ns && f->rq.page == from &&
                        f->rq.goes_down == (kind == TRANSFER_PUT) &&
                        f->rq.to == (kind == TRANSFER_COPY ? to : PAGE_NONE) &&
                        f->rq.planes.first == planes.first && f->rq.planes.n == planes.n)
                        return f;
        return NULL;
}

void fetch_ended(struct ns *ns, enum transfer_kind kind, uint32_t from, uint32_t to,
        struct plane_range planes, int result)
{
        struct fetch *f;

        if (kind == TRANSFER_UP && result != 0)
                prefetch_note_failed(ns, from);
        if (result == -EBADMSG)
                result = -ENOENT;
        if (result == -EDOM) /* the codec's */
                result = -EIO;
        while ((f = find_waiting(ns, kind, from, to, planes))) {
                /* The source of a copy may have been moved. */
                bool may_be = result == -EAGAIN || (result == -ENOENT && kind == TRANSFER_COPY);

                if (may_be && ++f->n_tries < MAX_TRIES)
                        f->is_waiting = false;
                else
                        tell_end(f, result, result == 0 ? to : PAGE_NONE);
        }
}

static struct fetch *find_idle(struct store *s)
{
        list_for_each (f, &s->fetching.fetches, struct fetch, link)
                if (!f->is_waiting && !f->is_tried)
                        return f;
        return NULL;
}

bool fetch_work(struct store *s)
{
        bool more = false;
        struct fetch *f;

        list_for_each (each, &s->fetching.fetches, struct fetch, link)
                each->is_tried = false;
        while ((f = find_idle(s))) {
                int r = start_fetch(f);

                f->is_tried = true;
                more |= r == 0 && !f->is_waiting;
                if (r == FETCH_THERE)
                        tell_end(f, 0, f->rq.page);
                else if (r != 0)
                        tell_end(f, r, PAGE_NONE);
        }
        return more;
}

/* ---- transfers ------------------------------------------------------------------------------- */

/* Entries of a disk that become pages in one iteration of the event loop: less than a millisecond.
 * Not tuned. */
#define SPACE_STEP 256

bool transfer_work(struct store *s)
{
        bool more;

        transfers_end(s);
        more = space_work(s, SPACE_STEP);
        more |= fetch_work(s);
        more |= batch_start(s);
        return more || !list_is_empty(&s->moving.transfers);
}
