#include "client/lib/pages/stream.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "client/lib/calls/op.h"
#include "client/lib/connection/error.h"
#include "client/lib/objects/args.h"
#include "client/lib/calls/flight.h"
#include "gpu/device.h"
#include "proto/status.h"

/* Between two checks of the streams' health: a kernel's error isn't urgent. Not tuned. */
#define LOOK_NSEC (10 * NSEC_PER_MSEC)

enum stream_state { STREAM_WAITING, STREAM_FIRED, STREAM_DEAD, STREAM_STRANDED };

struct stream_op {
        struct conn_errand errand;
        struct list_link link; /* ns.streams.waiting while WAITING */
        _Atomic int state;     /* enum stream_state */
        struct kvl_ns *ns;     /* invalid if DEAD or STRANDED */
        void *stream;
        struct op *op;         /* the call; NULL: a release in shared memory */
        struct flight *flight; /* prepared: a publish, or a free in shared memory; else NULL */
        bool is_abandoned;     /* [L] `op` has ended, after the host function fired */
        uint32_t n_pages;      /* of a release in shared memory */
        uint32_t pages[];
};

/* Kept reachable for leak checkers. */
static struct stream_op *_Atomic stranded;

static void stream_op_strand(struct stream_op *s)
{
        struct stream_op *before = atomic_load_explicit(&stranded, memory_order_relaxed);

        do
                s->errand.next = before ? &before->errand : NULL;
        while (!atomic_compare_exchange_weak_explicit(
                &stranded, &before, s, memory_order_release, memory_order_relaxed));
}

/* ---- the end -----------------------------------------------------------------------------------
 */

/* [L] Moves it from WAITING to `state` and ends its call. Returns false if it has fired. The host
 * function may free it at once, so nothing of it is touched afterwards. */
static bool stream_op_end(struct stream_op *s, enum stream_state state, int code, const char *why)
{
        struct kvl_ns *ns = s->ns;
        struct flight *flight = s->flight;
        struct op *op = s->op;
        int waiting = STREAM_WAITING;

        list_remove(&s->link);
        if (!atomic_compare_exchange_strong(&s->state, &waiting, state))
                return false;
        if (state == STREAM_STRANDED)
                stream_op_strand(s);
        atomic_fetch_sub(&ns->streams.n_flying, 1);
        flight_drop(flight);
        if (op) {
                op->stream_op = NULL;
                op->call.on_abandon = NULL;
                snprintf(op->call.detail, sizeof(op->call.detail), "%s", why);
                conn_finish(conn_of(ns), &op->call, code);
        }
        return true;
}

/* Cancels the operation if it hasn't fired yet. Otherwise its errand still runs: a publish goes on,
 * but a window's copy isn't begun, because its caller gives the memory of the call back. */
static void on_abandon(struct conn_call *call)
{
        struct op *op = container_of(call, struct op, call);
        struct stream_op *s = op->stream_op;

        if (stream_op_end(s, STREAM_DEAD, -ECANCELED, "") || op->type->msg != MSG_FETCH)
                return;
        s->is_abandoned = true;
        op->stream_op = NULL;
        call->on_abandon = NULL;
        conn_finish(conn_of(op->ns), call, -ECANCELED);
}

void streams_cancel(struct kvl_ns *ns)
{
        list_for_each_safe (s, &ns->streams.waiting, struct stream_op, link)
                stream_op_end(s, STREAM_DEAD, -ECANCELED, "");
        /* Callbacks in flight can't take the lock that we hold; they queue an errand and return, so
         * this loop ends. */
        while (atomic_load_explicit(&ns->streams.n_flying, memory_order_acquire) > 0)
                sched_yield();
        conn_run_errands(conn_of(ns));
}

void streams_broken(struct kvl_conn *conn, int code, const char *why)
{
        list_for_each (ns, &conn->namespaces, struct kvl_ns, link)
                list_for_each_safe (s, &ns->streams.waiting, struct stream_op, link)
                        if (s->op)
                                stream_op_end(s, STREAM_DEAD, code, why);
}

/* ---- broken contexts ---------------------------------------------------------------------------
 */

void streams_break(struct kvl_conn *conn, const char *device)
{
        char why[CONN_DETAIL_BYTES];

        ns_explain_broken(device, why);
        list_for_each (ns, &conn->namespaces, struct kvl_ns, link) {
                if (strcmp(ns->info.device, device) != 0)
                        continue;
                atomic_store_explicit(&ns->streams.are_broken, true, memory_order_relaxed);
                list_for_each_safe (s, &ns->streams.waiting, struct stream_op, link)
                        stream_op_end(s, STREAM_STRANDED, -EIO, why);
        }
}

/* [L] A context breaks as a whole, so one of its streams is asked. It must be a stream with a
 * waiting publish, or a window's copy. Neither stream may be destroyed before its callback, which
 * needs this lock. A stream with only releases might be destroyed already. */
static bool look_at(struct kvl_ns *ns)
{
        list_for_each (s, &ns->streams.waiting, struct stream_op, link) {
                if (!s->op || (s->op->type->msg != MSG_PUBLISH && s->op->type->msg != MSG_FETCH))
                        continue;
                if (ns->device->ops->stream_query(ns->device, s->stream) != -ENXIO)
                        return false;
                streams_break(ns->conn, ns->info.device);
                return true;
        }
        return false;
}

bool streams_look(struct kvl_conn *conn)
{
        bool ended = false;
        uint64_t now;

        if (!conn->conn->takes_errands)
                return false;
        now = clock_now_nsec();
        if (now - conn->streams_looked_nsec < LOOK_NSEC)
                return false;
        conn->streams_looked_nsec = now;
        list_for_each (ns, &conn->namespaces, struct kvl_ns, link)
                ended |= look_at(ns);
        return ended;
}

/* ---- firing ------------------------------------------------------------------------------------
 */

/* [L] Runs in order after the operation has fired. */
static void stream_op_launch(struct conn *c, struct conn_errand *e)
{
        struct stream_op *s = container_of(e, struct stream_op, errand);
        struct op *op = s->op;
        int r;

        list_remove(&s->link);
        if (s->is_abandoned)
                op = NULL;
        if (op) {
                op->stream_op = NULL;
                op->call.on_abandon = NULL;
        }
        if (s->flight) {
                flight_launch(s->flight);
        } else if (op && op->type->msg == MSG_FETCH) {
                op_proceed(op);
        } else if (op) {
                r = c->broken ? c->broken : op->type->send(op);
                if (r < 0)
                        conn_finish(c, &op->call, r);
        }
        free(s);
}

/* The host function. */
static void stream_op_fire(void *data)
{
        struct stream_op *s = data;
        struct kvl_ns *ns = s->ns;
        int state = STREAM_WAITING;
        uint32_t page;

        if (!atomic_compare_exchange_strong(&s->state, &state, STREAM_FIRED)) {
                if (state == STREAM_DEAD)
                        free(s);
                return;
        }
        /* Pages that aren't pinned any more were released by another thread: its error. */
        if (!s->op)
                fast_release(&ns->fast, s->pages, s->n_pages, &page);
        conn_hand_in(conn_of(ns), &s->errand);
        atomic_fetch_sub_explicit(&ns->streams.n_flying, 1, memory_order_release);
}

/* ---- starting ----------------------------------------------------------------------------------
 */

static struct stream_op *stream_op_new(
        struct kvl_ns *ns, void *stream, const uint32_t *pages, uint32_t n_pages)
{
        struct stream_op *s = calloc(1, sizeof(*s) + n_pages * sizeof(*pages));

        if (!s)
                return NULL;
        s->errand.run = stream_op_launch;
        list_init(&s->link);
        s->ns = ns;
        s->stream = stream;
        s->n_pages = n_pages;
        if (n_pages > 0)
                memcpy(s->pages, pages, n_pages * sizeof(*pages));
        return s;
}

/* [L] Puts the host function on the stream. Returns -EIO, -EINVAL, -ENOMEM with the sentence: it
 * isn't there. */
static int put_on_stream(struct stream_op *s)
{
        struct kvl_ns *ns = s->ns;
        struct device *d = ns->device;
        int r;

        conn_of(ns)->takes_errands = true;
        list_append(&ns->streams.waiting, &s->link);
        atomic_fetch_add(&ns->streams.n_flying, 1);
        d->why[0] = '\0';
        r = d->ops->stream_call(d, s->stream, stream_op_fire, s);
        if (r == 0)
                return 0;
        list_remove(&s->link);
        atomic_fetch_sub(&ns->streams.n_flying, 1);
        if (r == -ENXIO) {
                streams_break(ns->conn, ns->info.device);
                return ns_check_device(ns);
        }
        return error_set(r == -EINVAL || r == -ENOMEM ? r : -EIO,
                "can't put a function on the stream: %s", *d->why ? d->why : status_text(r));
}

/* [L] Takes op and s, which may be NULL (out of memory). */
static int stream_op_start(struct op *op, struct stream_op *s)
{
        struct conn *c = conn_of(op->ns);
        int r;

        if (!s)
                return error_set(-ENOMEM, "out of memory");
        if (c->broken)
                return error_note(-ENOTCONN, c->detail);
        op->stream_op = s;
        conn_start_beside(c, &op->call, on_abandon);
        s->op = op;
        r = put_on_stream(s);
        if (r == 0)
                list_append(&op->ns->ops, &op->link);
        return r;
}

/* publish NULL: RELEASE or FREE of op's pages. Takes op. */
static int start_op(struct op *op, const struct kvl_publish *publish, void *stream)
{
        struct kvl_ns *ns = op->ns;
        struct stream_op *s = stream_op_new(ns, stream, NULL, 0);
        bool flies = publish || (op->type->msg == MSG_FREE && fast_is_open(&ns->fast));
        int r;

        conn_lock(conn_of(ns));
        if (s && flies)
                s->flight = flight_prepare(op, publish);
        r = stream_op_start(op, flies && s && !s->flight ? NULL : s);
        if (r < 0 && s)
                flight_drop(s->flight);
        conn_unlock(conn_of(ns));
        if (r < 0) {
                free(s);
                op_free(op);
        }
        return r;
}

static int release_shared(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages, void *stream)
{
        struct stream_op *s;
        int r;

        for (uint32_t i = 0; i < n_pages; i++)
                if (!fast_is_pinned(&ns->fast, pages[i]))
                        return error_set(
                                -EINVAL, "page %u isn't pinned by this connection", pages[i]);
        s = stream_op_new(ns, stream, pages, n_pages);
        if (!s)
                return error_set(-ENOMEM, "out of memory");
        conn_lock(conn_of(ns));
        r = put_on_stream(s);
        conn_unlock(conn_of(ns));
        if (r < 0)
                free(s);
        return r;
}

static bool has_streams(const struct kvl_ns *ns)
{
        return ns->device->ops->stream_call;
}

int stream_start_fetch(struct op *op, void *stream)
{
        struct stream_op *s;
        int r;

        if (!has_streams(op->ns)) {
                op_proceed(op);
                return 0;
        }
        s = stream_op_new(op->ns, stream, NULL, 0);
        if (!s)
                return -ENOMEM;
        op->stream_op = s;
        conn_start_beside(conn_of(op->ns), &op->call, on_abandon);
        s->op = op;
        r = put_on_stream(s);
        if (r < 0) {
                op->stream_op = NULL;
                op->call.on_abandon = NULL;
                snprintf(op->call.detail, sizeof(op->call.detail), "%s", error_get());
                free(s);
        }
        return r;
}

static int check_stream(const struct kvl_ns *ns, const void *stream)
{
        if (!ns->device)
                return error_set(-EACCES, "a metadata-only connection has no streams");
        if (!ns->info.is_cpu_memory && ns->device->props.n_members > 0)
                return error_set(-EINVAL,
                        "namespace %s is mapped on %u GPUs, which have no stream in common: wait "
                        "for their work, then kvl_publish(), kvl_release() or kvl_free(); or open the planes of one GPU",
                        ns->name, ns->device->props.n_members);
        if (stream && !has_streams(ns))
                return error_set(
                        -EINVAL, "the device %s has no streams: pass NULL", ns->info.device);
        return 0;
}

int kvl_publish_on_stream(struct kvl_ns *ns, const struct kvl_publish *publish, kvl_stream stream,
        kvl_done_fn done, void *data)
{
        struct kvl_publish p;
        struct op *op;
        int r = publish_copy(ns, publish, KVL_MAX_PUBLISH_PAGES, &p);

        if (r == 0)
                r = check_stream(ns, stream);
        if (r < 0)
                return r;
        if (!has_streams(ns))
                return kvl_publish_start(ns, publish, done, data);
        r = op_new_with(ns, &op_type_publish, p.pages, p.n_pages, done, data, &op);
        if (r < 0)
                return r;
        return start_op(op, &p, stream);
}

static int put_pages(struct kvl_ns *ns, const struct op_type *type, const uint32_t *pages,
        uint32_t n_pages, void *stream)
{
        struct op *op;
        int r = op_new_with(ns, type, pages, n_pages, NULL, NULL, &op);

        return r < 0 ? r : start_op(op, NULL, stream);
}

static int check_put(
        const struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages, const void *stream)
{
        int r = args_check_pages(ns, pages, n_pages, KVL_MAX_LEASE_PAGES);

        return r < 0 ? r : check_stream(ns, stream);
}

int kvl_release_on_stream(
        struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages, kvl_stream stream)
{
        int r = check_put(ns, pages, n_pages, stream);

        if (r < 0)
                return r;
        if (!has_streams(ns))
                return kvl_release_start(ns, pages, n_pages, NULL, NULL);
        if (fast_is_open(&ns->fast))
                return release_shared(ns, pages, n_pages, stream);
        return put_pages(ns, &op_type_release, pages, n_pages, stream);
}

int kvl_free_on_stream(
        struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages, kvl_stream stream)
{
        int r = check_put(ns, pages, n_pages, stream);

        if (r < 0)
                return r;
        if (!has_streams(ns))
                return kvl_free_start(ns, pages, n_pages, NULL, NULL);
        return put_pages(ns, &op_type_free, pages, n_pages, stream);
}
