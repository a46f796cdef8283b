#include "daemon/core/reclaim/compact.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault-point.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/moves/renumber.h"
#include "daemon/core/moves/transfer.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/memory/wait.h"
#include "daemon/core/reclaim/recall.h"
#include "daemon/core/reclaim/prealloc.h"
#include "daemon/core/state/shared.h"
#include "gpu/queue.h"
#include "policy/compact.h"

/* Pages being moved at a time on one device. On a queue, a lease's sets are made after so many
 * copies. Not tuned. */
#define MOVES_PER_POOL 4

/* Bytes copied inline in one visit: well below a millisecond of memcpy twice (pread, pwrite). Not
 * tuned. */
#define BYTES_PER_VISIT (UINT64_C(512) << 10)

/* A set is called off if no page of it moved for this time; the namespace begins no other for as
 * long. Long compared to pins of a step of an engine. Not tuned. */
#define PATIENCE_NSEC (1000 * NSEC_PER_MSEC)

/* The remaining sets must have space for the leases of this time: to free a set and bind it again
 * would be wasted work. Not tuned. */
#define AHEAD_SEC 2.0

/* Sets that are looked at page by page for one choice. Not tuned. */
#define MAX_TRIES 4

struct move {
        struct list_link link; /* store.moves */
        struct ns *ns;         /* NULL: it was freed */
        struct pool *pool;
        uint32_t from, to;
        uint64_t generation; /* of `from` */
        uint32_t plane;      /* without a queue: planes copied */
        uint64_t offset;
        bool is_late; /* the driver may still write to `to` */
};

static bool all_keep_safe_points(const struct extent_set *set)
{
        if (set->n_mapped == 0)
                return true;
        list_for_each (a, &set->ns->clients.attachments, struct attach, ns_link)
                if (!a->member->safepoints && map_find(&a->mapped, set->index))
                        return false;
        return true;
}

/* ---- a page --------------------------------------------------------------------------------- */

static uint32_t count_on(const struct store *s, const struct pool *pool)
{
        uint32_t n = 0;

        list_for_each (m, &s->moves, struct move, link)
                n += m->pool == pool;
        return n;
}

static bool is_moving(const struct ns *ns, uint32_t page)
{
        list_for_each (m, &ns->store->moves, struct move, link)
                if (m->ns == ns && m->from == page)
                        return true;
        return false;
}

bool compact_moves_to(const struct ns *ns, uint32_t page)
{
        list_for_each (m, &ns->store->moves, struct move, link)
                if (m->ns == ns && m->to == page)
                        return true;
        return false;
}

uint64_t compact_count_moves(const struct ns *ns)
{
        uint64_t n = 0;

        list_for_each (m, &ns->store->moves, struct move, link)
                n += m->ns == ns;
        return n;
}

/* Is the page unused, and not being moved to another tier? Such a transfer has locked it. */
static bool is_movable(const struct ns *ns, uint32_t page)
{
        return page_is_idle(ns, page) && !transfer_find(ns, page);
}

/* Is the page to be moved still unchanged? */
static bool is_there(const struct move *m)
{
        const struct page *p = ns_page(m->ns, m->from);

        return p && p->generation == m->generation && is_movable(m->ns, m->from);
}

static void end_move(struct move *m)
{
        list_remove(&m->link);
        free(m);
}

/* Ends the move; its target becomes FREE. */
static void give_up(struct move *m)
{
        struct ns *ns = m->ns;
        uint32_t to = m->to;

        end_move(m);
        ns_free_page(ns, to);
}

static void finish_move(struct move *m, int result)
{
        struct ns *ns = m->ns;
        struct extent_set *set;
        uint32_t from = m->from, to = m->to;

        if (result < 0 || !is_there(m) || !all_keep_safe_points(ns_set_of(ns, from)) ||
                ns_set_of(ns, to)->recall.state != RECALL_NONE || !shared_retire(ns, from)) {
                give_up(m);
                return;
        }
        set = ns_set_of(ns, from);
        set->recall.give_up_nsec = ns->store->now_nsec + PATIENCE_NSEC;
        ns->store->counters.compacted_pages++;
        end_move(m);
        renumber_page(ns, from, to, 0);
}

/* ---- copies --------------------------------------------------------------------------------- */

/* Copies a part inline. Returns 0: the copy is complete; -EAGAIN: there is more; -errno. */
static int copy_piece(struct move *m, uint64_t *bytes)
{
        const struct ns *ns = m->ns;
        struct extent_set *to = ns_set_of(ns, m->to), *from = ns_set_of(ns, m->from);
        uint64_t page_bytes = ns->layout.plane_page_bytes;
        int r;

        while (m->plane < ns->layout.n_planes) {
                uint64_t len = MIN(page_bytes - m->offset, *bytes);

                if (len == 0)
                        return -EAGAIN;
                r = ns->device.pool->device->ops->extent_copy(to->extents[m->plane],
                        ns_offset(ns, m->to) + m->offset, from->extents[m->plane],
                        ns_offset(ns, m->from) + m->offset, len);
                if (r < 0)
                        return r;
                *bytes -= len;
                m->offset += len;
                if (m->offset == page_bytes) {
                        m->plane++;
                        m->offset = 0;
                }
        }
        return 0;
}

static void copy_inline(struct store *s)
{
        uint64_t bytes = BYTES_PER_VISIT;

        list_for_each_safe (m, &s->moves, struct move, link) {
                int r;

                if (m->pool->queue)
                        continue;
                r = is_there(m) ? copy_piece(m, &bytes) : -ECANCELED;
                if (r != -EAGAIN)
                        finish_move(m, r);
        }
}

static void on_copied(struct job *job, int result, void *data)
{
        struct move *m = data;
        struct store *s;

        if (!m->ns) {
                end_move(m);
                return;
        }
        s = m->ns->store;
        if (result == -ETIMEDOUT)
                m->is_late = true;
        else
                finish_move(m, result);
        idle_sets_drain(s);
        recall_poll(s);
        recall_wake(s);
}

static int submit_move(struct move *m)
{
        const struct ns *ns = m->ns;
        struct job *job = job_new(JOB_COPY_WITHIN, 2 * (size_t)ns->layout.n_planes);

        if (!job)
                return -ENOMEM;
        for (uint32_t i = 0; i < ns->layout.n_planes; i++) {
                job->copies[2 * i] = (struct device_copy){
                        .extent = ns_set_of(ns, m->to)->extents[i],
                        .offset = ns_offset(ns, m->to),
                        .len = ns->layout.plane_page_bytes,
                };
                job->copies[2 * i + 1] = (struct device_copy){
                        .extent = ns_set_of(ns, m->from)->extents[i],
                        .offset = ns_offset(ns, m->from),
                };
        }
        job->done = on_copied;
        job->data = m;
        queue_submit(m->pool->queue, job);
        return 0;
}

/* The driver has answered late: it doesn't write to the targets any more. */
static void end_late(struct store *s)
{
        list_for_each_safe (m, &s->moves, struct move, link)
                if (m->is_late && !queue_is_stuck(m->pool->queue))
                        give_up(m);
}

static bool is_emptied(const struct extent_set *set)
{
        return set->recall.kind == RECALL_COMPACT && set->recall.state == RECALL_ASKED &&
               set->n_free < set->n_usable;
}

/* Ends moves without a queue that recall_work() doesn't continue: of one namespace; NULL: of all.
 */
static void end_left(struct store *s, const struct ns *ns)
{
        list_for_each_safe (m, &s->moves, struct move, link)
                if (!m->pool->queue && (!ns || m->ns == ns) &&
                        !(is_there(m) && is_emptied(ns_set_of(m->ns, m->from))))
                        give_up(m);
}

/* ---- a set ---------------------------------------------------------------------------------- */

/* Returns the set's pages in use; pages in magazines can be taken back at any time. */
static uint32_t n_live(const struct extent_set *set)
{
        return set->n_usable - set->n_free - set->n_ready;
}

/* Returns the fullest set with FREE pages, which will be emptied last. */
static struct extent_set *find_room(const struct ns *ns)
{
        struct extent_set *best = NULL;
        uint32_t most = 0;

        list_for_each (set, &ns->device.sets_room, struct extent_set, room_link)
                if (n_live(set) > most) {
                        best = set;
                        most = n_live(set);
                }
        return best;
}

/* Begins to move a page. Returns 0; -ENOSPC: no FREE page; -ENOMEM. */
static int begin_move(struct ns *ns, uint32_t page)
{
        struct extent_set *room = find_room(ns);
        struct store *s = ns->store;
        struct move *m;

        if (!room)
                return -ENOSPC;
        m = calloc(1, sizeof(*m));
        if (!m)
                return -ENOMEM;
        m->ns = ns;
        m->pool = ns->device.pool;
        m->from = page;
        m->generation = ns_page(ns, page)->generation;
        m->to = set_take_page(room, &(struct page_use){.state = PAGE_MOVING});
        list_append(&s->moves, &m->link);
        if (!m->pool->queue)
                return 0;
        if (submit_move(m) < 0) {
                give_up(m);
                return -ENOMEM;
        }
        return 0;
}

static void call_off(struct extent_set *set)
{
        set->ns->reclaim.compaction.after_nsec = set->ns->store->now_nsec + PATIENCE_NSEC;
        recall_call_off(set);
        wait_wake(set->ns->store);
}

void compact_call_off(struct ns *ns)
{
        struct store *s = ns->store;

        list_for_each_safe (set, &s->recalls.sets, struct extent_set, recall.link)
                if (set->ns == ns && is_emptied(set))
                        call_off(set);
        end_left(s, ns);
}

/* Walks over the pages; the next visit continues there. Returns as begin_move(). */
static int begin_moves(struct extent_set *set, uint32_t budget, uint32_t *n_looked)
{
        struct ns *ns = set->ns;
        uint32_t set_pages = ns->geometry.set_pages, n = MIN(set_pages, budget);
        uint32_t n_moves = count_on(ns->store, ns->device.pool);
        int r = 0;

        for (; r == 0 && *n_looked < n && n_moves < MOVES_PER_POOL; (*n_looked)++) {
                uint32_t i = set->recall.compact_at, page = set->index * set_pages + i;

                set->recall.compact_at = i + 1 < set_pages ? i + 1 : 0;
                if (ns_page_is_stale(ns, &set->pages[i])) {
                        ns_sweep_page(ns, page);
                        continue;
                }
                if (!is_movable(ns, page) || is_moving(ns, page) || shared_is_pinned(ns, page))
                        continue;
                r = begin_move(ns, page);
                n_moves++;
        }
        return r;
}

uint32_t compact_visit(struct extent_set *set, uint64_t now_nsec, uint32_t budget)
{
        struct ns *ns = set->ns;
        struct pool *pool = ns->device.pool;
        uint32_t n_looked = 0;
        int r;

        end_late(ns->store);
        if (set->recall.give_up_nsec == 0)
                set->recall.give_up_nsec = now_nsec + PATIENCE_NSEC;
        if (ns->waits.n + ns->waits.n_queued > 0 || now_nsec >= set->recall.give_up_nsec ||
                !all_keep_safe_points(set)) {
                call_off(set);
                return 0;
        }
        r = begin_moves(set, budget, &n_looked);
        if (!pool->queue)
                copy_inline(ns->store);
        if (r == -ENOSPC && is_emptied(set))
                call_off(set);
        return n_looked;
}

/* ---- choosing a set -------------------------------------------------------------------------- */

/* Describes a set without looking at its pages: assumes that all of them can be moved, except those
 * in magazines, which can be taken back. */
static struct compact_set guess(const struct extent_set *set)
{
        return (struct compact_set){
                .n_usable = set->n_usable,
                .n_free = set->n_usable - n_live(set),
                .n_movable = n_live(set),
        };
}

/* Returns the set's pages that can be moved; UINT32_MAX: not all pages in use can. */
static uint32_t count_movable(const struct extent_set *set)
{
        const struct ns *ns = set->ns;
        uint32_t set_pages = ns->geometry.set_pages, n = 0;

        for (uint32_t i = 0; i < set_pages; i++) {
                const struct page *p = &set->pages[i];
                uint32_t page = set->index * set_pages + i;

                if (p->state == PAGE_FREE || p->state == PAGE_NULL || p->ready)
                        continue;
                if (!is_movable(ns, page) || shared_is_pinned(ns, page))
                        return UINT32_MAX;
                n++;
        }
        return n;
}

/* Returns the pages that may be leased soon. */
static uint64_t count_leased_soon(const struct ns *ns, uint64_t now_nsec)
{
        struct ahead a = ns->reclaim.prealloc.ahead;

        if (!prealloc_is_leased(ns, now_nsec))
                return 0;
        ahead_leased(&a, 0, now_nsec); /* updates the rate */
        return (uint64_t)(a.pages_per_sec * AHEAD_SEC);
}

/* Do other sets in use have space for n pages, and for the leases meanwhile? */
static bool has_room_beside(const struct extent_set *set, uint32_t n)
{
        const struct ns *ns = set->ns;
        uint64_t n_room = 0;

        list_for_each (other, &ns->device.sets_room, struct extent_set, room_link)
                if (other != set && n_live(other) > 0)
                        n_room += other->n_free;
        return n_room >= n &&
               ns_n_room(ns) >= set->n_free + n +
                                        MAX((uint64_t)ns->reclaim.prealloc.n_to_keep,
                                                count_leased_soon(ns, ns->store->now_nsec));
}

static bool is_worth_it(const struct extent_set *set)
{
        uint32_t n;

        if (!all_keep_safe_points(set))
                return false;
        n = count_movable(set);
        return n != UINT32_MAX && has_room_beside(set, n);
}

/* Returns the set to empty, or NULL; *ret_later: one may be worth it once its holds end. */
static struct extent_set *choose_of(
        struct extent_set **sets, struct compact_set *c, size_t n, bool *ret_later)
{
        *ret_later = false;
        for (unsigned i = 0; i < MAX_TRIES; i++) {
                size_t at = compact_choose(c, n);

                if (at == SIZE_MAX)
                        return NULL;
                if (is_worth_it(sets[at]))
                        return sets[at];
                c[at].n_movable = 0;
                *ret_later = true;
        }
        return NULL;
}

static struct extent_set *choose_set(const struct ns *ns, bool *ret_later)
{
        _cleanup_free_ struct extent_set **sets =
                calloc(ns->device.n_sets, sizeof(struct extent_set *));
        _cleanup_free_ struct compact_set *c = calloc(ns->device.n_sets, sizeof(*c));
        size_t n = 0;

        *ret_later = true;
        if (!sets || !c)
                return NULL;
        list_for_each (set, &ns->device.sets_bound, struct extent_set, link)
                if (set->recall.state == RECALL_NONE) {
                        sets[n] = set;
                        c[n++] = guess(set);
                }
        return choose_of(sets, c, n, ret_later);
}

/* Begins to empty the set. Calls it off if a page of it is granted. */
static void begin_emptying(struct extent_set *set)
{
        struct ns *ns = set->ns;

        set->recall.compact_at = 0;
        set->recall.give_up_nsec = 0;
        recall_set(set, RECALL_COMPACT);
        for (uint32_t i = 0; i < ns->geometry.set_pages; i++)
                if (set->pages[i].state == PAGE_GRANTED) {
                        call_off(set);
                        return;
                }
        idle_sets_add(set);
}

static bool is_compacting(const struct ns *ns)
{
        list_for_each (set, &ns->store->recalls.sets, struct extent_set, recall.link)
                if (set->ns == ns && is_emptied(set))
                        return true;
        return false;
}

/* Would the freed memory be kept for the tenant itself, which has space for another set already? */
static bool is_pointless(const struct ns *ns)
{
        const struct pool_share *s = ns->device.share;

        return s->charged_bytes + ns->geometry.set_bytes <= s->reserve_bytes &&
               !s->tenant->attrs.lend_idle_reserve;
}

/* Returns true if a set is being emptied, or may be soon. */
static bool compact_some(struct ns *ns, uint64_t now_nsec)
{
        struct extent_set *set;

        if (ns->catalog.n_stale > 0) /* the sweep comes first */
                return true;
        if (!ns->reclaim.compaction.is_possible)
                return false;
        if (is_compacting(ns))
                return true;
        if (is_pointless(ns) || ns->device.n_sets < 2 || ns_awaits_sets(ns) ||
                ns->waits.n_queued > 0 || now_nsec < ns->reclaim.compaction.after_nsec)
                return false;
        set = choose_set(ns, &ns->reclaim.compaction.is_possible);
        if (!set)
                return ns->reclaim.compaction.is_possible && count_leased_soon(ns, now_nsec) > 0;
        ns->reclaim.compaction.is_possible = true;
        begin_emptying(set);
        return is_compacting(ns);
}

bool compact_tidy(struct store *s)
{
        end_late(s);
        end_left(s, NULL);
        return !list_is_empty(&s->moves);
}

bool compact_turn(struct store *s, uint64_t now_nsec)
{
        bool more = false;

        store_set_now(s, now_nsec);
        (void)compact_tidy(s);
        if (s->draining)
                return false;
        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        more |= compact_some(ns, now_nsec);
        return more || !list_is_empty(&s->moves);
}

/* ---- the rest ------------------------------------------------------------------------------- */

void compact_forget_ns(struct ns *ns)
{
        list_for_each_safe (m, &ns->store->moves, struct move, link) {
                if (m->ns != ns)
                        continue;
                m->ns = NULL;
                if (!m->pool->queue || m->is_late)
                        end_move(m);
        }
}

void compact_deinit(struct store *s)
{
        list_for_each_safe (m, &s->moves, struct move, link)
                end_move(m);
}

/* Returns the bytes of FREE pages in sets with other pages. */
static uint64_t scattered_bytes(const struct ns *ns)
{
        _cleanup_free_ struct compact_set *c = calloc(MAX(ns->device.n_sets, 1u), sizeof(*c));
        size_t n = 0;

        if (!c)
                return 0;
        list_for_each (set, &ns->device.sets_bound, struct extent_set, link)
                c[n++] = guess(set);
        return compact_scattered(c, n) * (ns->geometry.set_bytes / ns->geometry.set_pages);
}

uint32_t compact_figure(const struct store *s)
{
        uint64_t scattered = 0, budget = 0;

        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        scattered += scattered_bytes(ns);
        list_for_each (pool, &s->pools, struct pool, link)
                budget += pool->account.limit_bytes;
        return (uint32_t)((unsigned __int128)scattered * 1000 / MAX(budget, 1u));
}
