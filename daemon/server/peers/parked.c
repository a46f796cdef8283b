#include "daemon/server/peers/parked.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/core/state/group.h"
#include "daemon/core/memory/wait.h"
#include "daemon/core/requests/lease.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/turns.h"
#include "daemon/server/peers/answer.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/peers/pending.h"
#include "proto/msg.h"

struct parked {
        struct pending pending; /* a request that isn't peer.parked waits behind that */
        parked_run_fn run;
        uint8_t payload[]; /* of the request, which has no descriptors */
};

static void drop_lease(struct pending *w);
static bool run_behind(struct peer *p, unsigned max);

static const struct pending_ops pending_ops = {PENDING_LEASE, drop_lease, run_behind, NULL};

static void arm_timer(struct server *s);

/* ---- one peer -------------------------------------------------------------------------------- */

static void call_off_leases(struct peer *p)
{
        if (!p->member)
                return;
        list_for_each (a, &p->member->attachments, struct attach, member_link)
                lease_call_off(a);
}

static size_t bytes_of(const struct parked *k)
{
        return sizeof(*k) + k->pending.request.length;
}

static size_t behind_bytes(const struct peer *p)
{
        return p->waits[PENDING_LEASE].bytes - (p->parked ? bytes_of(p->parked) : 0);
}

static struct parked *copy_frame(const struct frame *f, parked_run_fn run)
{
        struct parked *k = malloc(sizeof(*k) + f->header.length);

        if (!k)
                return NULL;
        memcpy(k->payload, f->payload, f->header.length);
        k->pending = (struct pending){.request = f->header};
        k->run = run;
        return k;
}

/* Returns true if it was answered; false: it still waits. */
static bool run_again(struct peer *p, struct parked *k)
{
        const struct frame f = {.header = k->pending.request, .payload = k->payload};

        return k->run(p, &f);
}

static void wait_behind(struct peer *p, struct parked *k)
{
        pending_add(&k->pending, p, &pending_ops, bytes_of(k), NULL, false);
}

static void park_lease(struct peer *p, struct parked *k)
{
        pending_add(&k->pending, p, &pending_ops, bytes_of(k), NULL, true);
        p->parked = k;
        list_append(&p->server->leases.parked, &p->links.parked);
        arm_timer(p->server);
}

static void unpark_lease(struct peer *p)
{
        struct parked *k = TAKE(p->parked);

        pending_remove(&k->pending);
        free(k);
        list_remove(&p->links.parked);
        list_remove(&p->links.due);
}

/* Takes the first request behind peer.parked (which is none, or the first of all). NULL: there is
 * none. Returns owned. */
static struct parked *take_behind(struct peer *p)
{
        list_for_each (w, &p->waits[PENDING_LEASE].list, struct pending, link) {
                struct parked *k = container_of(w, struct parked, pending);

                if (k == p->parked)
                        continue;
                pending_remove(w);
                return k;
        }
        return NULL;
}

static void drop_lease(struct pending *w)
{
        struct parked *k = container_of(w, struct parked, pending);
        struct peer *p = w->peer;

        if (p->parked == k) {
                unpark_lease(p);
                call_off_leases(p);
                return;
        }
        pending_remove(w);
        free(k);
}

bool parked_comes_behind(const struct peer *p, uint16_t type)
{
        return type == MSG_LEASE && p->waits[PENDING_LEASE].n > 0;
}

int parked_add(struct peer *p, const struct frame *f, parked_run_fn run)
{
        bool is_behind = parked_comes_behind(p, f->header.type), is_over;
        struct parked *k;

        if (is_behind && behind_bytes(p) >= PARKED_MAX_BEHIND_BYTES)
                return -EBUSY;
        is_over = sizeof(*k) + f->header.length > pending_left(p);
        k = p->broken || is_over ? NULL : copy_frame(f, run);
        if (!k) {
                if (!is_behind)
                        call_off_leases(p);
                return p->broken ? 0 : -ENOMEM;
        }
        if (is_behind)
                wait_behind(p, k);
        else
                park_lease(p, k);
        return 0;
}

/* A turn of the peer: runs at most `max` requests that waited behind an answered one, while the
 * peer takes its output. Returns true if more are left. */
static bool run_behind(struct peer *p, unsigned max)
{
        struct parked *k;

        for (unsigned i = 0; !p->parked && !p->muted && !p->doomed && !p->broken; i++) {
                if (p->out.bytes >
                        OUTQUEUE_HOLD_BYTES) /* peer.c continues after its output is sent */
                        break;
                if (i == max)
                        return p->waits[PENDING_LEASE].n > 0;
                k = take_behind(p);
                if (!k)
                        break;
                if (run_again(p, k))
                        free(k);
                else
                        park_lease(p, k);
        }
        return false;
}

static bool waits_in(const struct peer *p, uint32_t ns_id)
{
        list_for_each (a, &p->member->attachments, struct attach, member_link)
                if (a->wait.n_wanted > 0 && (ns_id == 0 || a->id == ns_id))
                        return true;
        return false;
}

void parked_cancel(struct peer *p, uint32_t ns_id)
{
        struct parked *k;

        if (p->parked && waits_in(p, ns_id)) {
                call_off_leases(p);
                answer_refuse(p, &p->parked->pending.request, -ENOENT,
                        "the namespace was closed while the lease waited");
                unpark_lease(p);
                peer_schedule(p);
        }
        /* If only a namespace is closed, they run and find it closed. */
        while (ns_id == 0 && (k = take_behind(p))) {
                answer_refuse(p, &k->pending.request, -ENOENT,
                        "the client said goodbye while the lease waited");
                free(k);
        }
}

/* ---- all of them ----------------------------------------------------------------------------- */

static bool waits_for(const struct peer *p, const struct pool *pool)
{
        list_for_each (a, &p->member->attachments, struct attach, member_link)
                if (a->wait.n_wanted > 0 && (!pool || a->ns->device.pool == pool))
                        return true;
        return false;
}

/* NULL: for any pool. A peer that is muted, doomed or broken is dropped at the end of its turn. */
static bool may_retry(const struct peer *p, const struct pool *pool)
{
        return !p->muted && !p->doomed && !p->broken && waits_for(p, pool);
}

static void retry_lease(struct peer *p)
{
        struct server *s = p->server;

        list_remove(&p->links.due);
        s->leases.is_retrying = true;
        if (run_again(p, p->parked)) {
                unpark_lease(p);
                peer_schedule(p);
        }
        s->leases.is_retrying = false;
}

/* Schedules a round for leases that wait for room. */
static void note_room(struct server *s)
{
        s->leases.room_came = true;
        loop_kick(&s->loop);
}

static void make_due(struct peer *p)
{
        if (p->parked && list_is_empty(&p->links.due))
                list_append(&p->server->leases.due, &p->links.due);
}

/* until_nsec: those whose deadline is not later. */
static void make_due_until(struct server *s, const struct pool *pool, uint64_t until_nsec)
{
        uint32_t n = 0;
        _cleanup_free_ struct attach **order = NULL;

        list_for_each (p, &s->leases.parked, struct peer, links.parked)
                n++;
        order = calloc(MAX(n, 1u), sizeof(struct attach *));
        if (!order) { /* in order of arrival, then */
                list_for_each (p, &s->leases.parked, struct peer, links.parked)
                        if (waits_for(p, pool))
                                make_due(p);
                return;
        }
        n = wait_order(&s->store, pool, order, n);
        for (uint32_t i = 0; i < n; i++) {
                if (pool && wait_is_for_room(&order[i]->wait))
                        note_room(s);
                else if (order[i]->wait.deadline_nsec <= until_nsec)
                        make_due(peer_of_member(order[i]->member));
        }
}

void parked_make_due(struct server *s, const struct pool *pool)
{
        store_set_now(&s->store, server_now(s));
        make_due_until(s, pool, UINT64_MAX);
}

bool parked_retry(struct server *s, const struct pool *pool)
{
        uint64_t began_nsec = clock_now_nsec();
        unsigned n = 0;

        list_for_each_safe (p, &s->leases.due, struct peer, links.due) {
                if (!may_retry(p, pool))
                        continue;
                if (n == PARKED_RETRIES_PER_TURN)
                        return true;
                /* Pages that a device has made are handed out without delay. */
                if (!pool && n > 0 && clock_now_nsec() - began_nsec > PARKED_TURN_NSEC)
                        return true;
                retry_lease(p);
                n++;
        }
        return false;
}

void parked_refuse(struct server *s)
{
        bool was_draining = s->store.draining;
        struct parked *k;

        s->store.draining = true;
        list_for_each_safe (p, &s->leases.parked, struct peer, links.parked)
                if (may_retry(p, NULL)) {
                        retry_lease(p);
                        while (!p->parked && (k = take_behind(p))) {
                                (void)run_again(p, k);
                                free(k);
                        }
                }
        s->store.draining = was_draining;
}

/* ---- when ------------------------------------------------------------------------------------ */

/* Earliest time of the next round, wanted `msec` after the last. */
static uint64_t next_round_nsec(const struct server *s, unsigned msec)
{
        return s->leases.round_ended_nsec +
               MAX(msec * NSEC_PER_MSEC, (PARKED_LOAD - 1) * s->leases.round_busy_nsec);
}

static void begin_round(struct server *s, uint64_t now_nsec, bool all)
{
        store_set_now(&s->store, now_nsec);
        make_due_until(s, NULL, all ? UINT64_MAX : now_nsec);
        s->leases.in_round = true;
        s->leases.round_is_all = all;
        if (!all)
                return;
        s->leases.room_came = false;
        s->leases.round_busy_nsec = 0;
}

static void on_timer(uv_timer_t *timer)
{
        struct server *s = container_of(timer, struct server, leases.timer);
        uint64_t began = clock_now_nsec(), now = server_now(s);
        bool is_time = now >= next_round_nsec(s,
                                      s->leases.room_came ? PARKED_PAUSE_MSEC : PARKED_POLL_MSEC);

        if (s->leases.in_round) /* arms it at its end */
                return;
        begin_round(s, now, is_time && (s->leases.room_came || wait_any_for_room(&s->store)));
        (void)turns_end_part(s, "waits", NULL, began);
        loop_kick(&s->loop);
}

/* Sets the timer to the next deadline or round. Leases that wait only for a device need no
 * rounds. */
static void arm_timer(struct server *s)
{
        uint64_t next = wait_deadline(&s->store), now = server_now(s);

        if (uv_is_closing((uv_handle_t *)&s->leases.timer))
                return;
        if (wait_any_for_room(&s->store))
                next = MIN(next, next_round_nsec(s, PARKED_POLL_MSEC));
        if (s->leases.room_came && !list_is_empty(&s->store.waits.leases))
                next = MIN(next, next_round_nsec(s, PARKED_PAUSE_MSEC));
        if (next == UINT64_MAX) {
                uv_timer_stop(&s->leases.timer);
                return;
        }
        uv_update_time(&s->loop.uv); /* else the timer would be early by the time of this turn */
        uv_timer_start(&s->leases.timer, on_timer, minus_u64(next, now) / NSEC_PER_MSEC + 1, 0);
}

bool parked_work(struct server *s)
{
        uint64_t now;
        bool more;

        if (!s->leases.in_round && !s->leases.room_came)
                return false;
        now = server_now(s);
        if (!s->leases.in_round && now >= next_round_nsec(s, PARKED_PAUSE_MSEC))
                begin_round(s, now, true);
        if (!s->leases.in_round) {
                arm_timer(s);
                return false;
        }
        more = parked_retry(s, NULL);
        s->leases.in_round = more;
        /* Rounds for deadlines don't delay the next round of all. */
        if (s->leases.round_is_all) {
                s->leases.round_ended_nsec = server_now(s);
                s->leases.round_busy_nsec += s->leases.round_ended_nsec - now;
        }
        if (!more)
                arm_timer(s);
        return more;
}

/* Memory that a retry frees was its own, and starts no round. */
static void on_room(void *data)
{
        struct server *s = data;

        if (!s->leases.is_retrying)
                note_room(s);
}

void parked_init(struct server *s)
{
        list_init(&s->leases.parked);
        list_init(&s->leases.due);
        s->store.owner.on_room = on_room;
}
