/* Calls on a namespace: op.h. */
#include "client/lib/calls/op.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "client/lib/calls/give-back.h"
#include "client/lib/connection/error.h"
#include "client/lib/mapping/map.h"
#include "client/lib/objects/ns.h"
#include "gpu/device.h"
#include "proto/status.h"

#define ASSERT_BRINGS_PAGES(type)                                                        \
        _Static_assert(offsetof(type, n_pages) == offsetof(op_pages_reply, n_pages) &&   \
                               offsetof(type, pages) == offsetof(op_pages_reply, pages), \
                #type)
ASSERT_BRINGS_PAGES(Kvlease__V1__PublishReply);
ASSERT_BRINGS_PAGES(Kvlease__V1__LookupReply);
ASSERT_BRINGS_PAGES(Kvlease__V1__SessionPagesReply);

/* ---- replies -----------------------------------------------------------------------------------
 */

#define BEYOND "kvleased answered with a page beyond the namespace"

static bool are_pages(const struct kvl_ns *ns, const op_pages_reply *m)
{
        for (size_t i = 0; i < m->n_pages; i++)
                if (m->pages[i] >= ns->info.capacity_pages)
                        return false;
        return true;
}

const char *op_check_pages(const struct op *op, const op_pages_reply *m, bool is_count_right)
{
        if (!is_count_right)
                return "kvleased answered with a wrong number of pages";
        return are_pages(op->ns, m) ? NULL : BEYOND;
}

void op_take_pages(struct op *op, const op_pages_reply *m)
{
        if (m->n_pages > 0)
                memcpy(op->pages + op->n_claimed, m->pages, m->n_pages * sizeof(*m->pages));
        op->n_pages = (uint32_t)m->n_pages;
        if (op->code == 0)
                op->n_pages += op->n_claimed;
}

/* [L] Gives back all pages that the call got. */
static void give_back_got(struct op *op)
{
        op->type->give_back(op->ns, op->pages, op->n_pages);
        op->n_pages = op->n_claimed = 0;
}

void op_give_back_claimed(struct op *op)
{
        if (op->n_claimed > 0)
                op->type->give_back(op->ns, op->pages, op->n_claimed);
        op->n_claimed = 0;
}

void op_fail(struct op *op, int code)
{
        if (op->type->give_back && !op->type->keeps_unmapped)
                give_back_got(op);
        conn_finish(conn_of(op->ns), &op->call, code);
}

/* Whether the pages must still be brought to the device. Not if they are to stay, nor twice. */
static bool wants_device(const struct op *op)
{
        return op->fetch.up == OP_BELOW && !op->fetch.stays && op->n_pages > 0 && op->type->fetch;
}

static void on_map(struct conn *c, struct conn_call *call, int code, const ProtobufCMessage *reply,
        struct frame *frame);

/* Asks for the next set that can be mapped and isn't. Returns 1; 0: there is none; or as
 * conn_start(). */
static int map_next(struct op *op)
{
        Kvlease__V1__MapRequest m = KVLEASE__V1__MAP_REQUEST__INIT;
        struct kvl_ns *ns = op->ns;
        uint32_t page = 0;
        int r;

        for (; op->n_mapped < op->n_pages; op->n_mapped++) {
                page = op->pages[op->n_mapped];
                if (ns_wants_map(ns, page) &&
                        !(op->fetch.up == OP_PREPARED && ns_is_lower(ns, page)))
                        break;
        }
        if (op->n_mapped == op->n_pages)
                return 0;
        op->set = ns_set_of(ns, page);
        op->plane = ns_is_lower(ns, page) ? 0 : ns->planes.first + ns->sets[op->set].n_planes;
        m.ns_id = ns->id;
        m.set_index = op->set;
        m.first_plane = op->plane;
        m.n_planes = ns_is_lower(ns, page) ? 0 : ns->planes.n - ns->sets[op->set].n_planes;
        op->call.on_reply = on_map;
        r = conn_start(conn_of(ns), &op->call, MSG_MAP, &m.base);
        return r < 0 ? r : 1;
}

void op_proceed(struct op *op)
{
        int r = wants_device(op) ? op->type->fetch->prepare(op) : 0;

        op->fetch.page_tokens = NULL;
        if (r == 0)
                r = map_next(op);
        if (r == 0 && op->fetch.up == OP_PREPARED)
                r = op->type->fetch->begin(op);
        if (r == 0)
                conn_finish(conn_of(op->ns), &op->call, op->code);
        else if (r < 0)
                op_fail(op, r);
}

/* Maps the memory of the reply, and returns ns_map()'s result, with the sentence noted. */
static int map_reply(struct op *op, const Kvlease__V1__MapReply *m, struct frame *frame)
{
        struct device *d = op->ns->device;
        int r;

        d->why[0] = '\0';
        r = ns_map(op->ns, op->set, op->plane, m, frame);
        if (r < 0 && *d->why)
                snprintf(op->call.detail, sizeof(op->call.detail),
                        "can't map memory of the device %s: %s", op->ns->info.device, d->why);
        return r;
}

static void on_map(struct conn *c, struct conn_call *call, int code, const ProtobufCMessage *reply,
        struct frame *frame)
{
        struct op *op = container_of(call, struct op, call);

        if (reply && code == 0)
                code = map_reply(op, (const Kvlease__V1__MapReply *)reply, frame);
        /* MAP has no positive codes; one would pass for an answer to the request before it. */
        if (code == 0)
                op_proceed(op);
        else if (code == -EPROTO || code > 0)
                conn_finish_violated(
                        c, call, "kvleased answered wrongly where it was asked for memory");
        else
                op_fail(op, code);
}

void op_end_reply(struct op *op, const char *wrong)
{
        if (wrong)
                conn_finish_violated(conn_of(op->ns), &op->call, wrong);
        else
                op_proceed(op);
}

void op_take_count(struct op *op, int code, const ProtobufCMessage *reply)
{
        if (reply)
                op->n_tokens = ((const Kvlease__V1__CountReply *)reply)->count;
        op_end_reply(op, NULL);
}

void op_call_back_waited(struct op *op, int code)
{
        if (op->waited)
                op->waited(op->ns, code, op->data);
}

static void on_reply(struct conn *c, struct conn_call *call, int code,
        const ProtobufCMessage *reply, struct frame *frame)
{
        struct op *op = container_of(call, struct op, call);

        op->code = code;
        if (op->type->reply)
                op->type->reply(op, code, reply);
        else
                op_end_reply(op, NULL);
}

/* Gives back the pages of a late reply. */
static void give_back_late(struct conn *c, struct conn_call *call, int code,
        const ProtobufCMessage *reply,
        void (*give_back)(struct kvl_ns *, const uint32_t *, uint32_t))
{
        const op_pages_reply *m = (const op_pages_reply *)reply;
        struct kvl_ns *ns = call->cookie;

        /* MAP brings no pages: the caller that gave up has given them back. */
        if (m && call->type != MSG_MAP) {
                if (!are_pages(ns, m)) {
                        conn_finish_violated(c, call, BEYOND);
                        return;
                }
                give_back(ns, m->pages, (uint32_t)m->n_pages);
        }
        conn_finish(c, call, code);
}

void op_late_pins(struct conn *c, struct conn_call *call, int code, const ProtobufCMessage *reply,
        struct frame *frame)
{
        give_back_late(c, call, code, reply, give_back_pins);
}

void op_late_leased(struct conn *c, struct conn_call *call, int code, const ProtobufCMessage *reply,
        struct frame *frame)
{
        give_back_late(c, call, code, reply, give_back_leased);
}

/* ---- both ways to call -------------------------------------------------------------------------
 */

void op_init(struct op *op, struct kvl_ns *ns, const struct op_type *type, uint32_t *pages,
        uint32_t n_asked)
{
        /* The kilobyte of text isn't zeroed: that would cost more than the rest of a publish. */
        memset(&op->call, 0, offsetof(struct conn_call, detail));
        memset(&op->ns, 0, sizeof(*op) - offsetof(struct op, ns));
        op->call.detail[0] = '\0';
        op->call.on_reply = on_reply;
        op->call.on_late = type->late;
        op->call.cookie = ns;
        op->ns = ns;
        op->type = type;
        list_init(&op->link);
        op->pages = pages;
        op->n_asked = n_asked;
        op->lease.n_min = n_asked;
}

/* Drops the remains of fetching the call's pages. */
static void drop_fetch(struct op *op)
{
        if (op->type->fetch)
                op->type->fetch->drop(op);
}

int op_finish(struct op *op, int started, uint64_t deadline_nsec)
{
        int r = started;

        if (r == 0)
                r = conn_wait(conn_of(op->ns), &op->call, deadline_nsec);
        if (r == -ETIMEDOUT && op->fetch.up == OP_FETCHING)
                r = op->type->fetch->give_up(op);
        /* The request was answered; only mapping timed out. */
        if (r == -ETIMEDOUT && op->call.type == MSG_MAP && op->type->give_back)
                give_back_got(op);
        if (r != 0)
                op_give_back_claimed(op);
        drop_fetch(op);
        return error_note(r, op->call.detail);
}

/* Populates the call's pages, new or found. Without the lock. */
static void populate_got(const struct op *op, int code)
{
        if (code == 0 && op->type->populates)
                ns_populate(op->ns, op->pages, op->n_pages);
}

int op_run(struct op *op, const ProtobufCMessage *m, uint64_t deadline_nsec)
{
        struct conn *c = conn_of(op->ns);
        int r;

        conn_lock(c);
        r = op_finish(op, conn_start(c, &op->call, op->type->msg, m), deadline_nsec);
        conn_unlock(c);
        populate_got(op, r);
        return r;
}

int op_run_pages(struct op *op, uint64_t deadline_nsec)
{
        struct conn *c = conn_of(op->ns);
        int r;

        conn_lock(c);
        r = op_finish(op, op->type->send(op), deadline_nsec);
        conn_unlock(c);
        populate_got(op, r);
        return r;
}

int op_run_parts(struct kvl_ns *ns, const struct op_type *type, const uint32_t *pages,
        uint32_t n_pages, uint32_t most, int (*run)(struct op *op, uint64_t deadline_nsec))
{
        uint64_t deadline = client_deadline(ns->conn);
        int r = 0;

        for (uint32_t i = 0, n; i < n_pages && r == 0; i += n) {
                struct op op;

                n = MIN(n_pages - i, most);
                op_init(&op, ns, type, (uint32_t *)pages + i, n);
                r = run(&op, deadline);
        }
        return r;
}

/* Counts a started call. Returns false at the limit. */
static bool count_started(struct kvl_conn *conn)
{
        uint32_t n = atomic_load_explicit(&conn->n_started, memory_order_relaxed);

        do
                if (n == KVL_MAX_STARTED)
                        return false;
        while (!atomic_compare_exchange_weak_explicit(
                &conn->n_started, &n, n + 1, memory_order_relaxed, memory_order_relaxed));
        return true;
}

static void count_ended(struct kvl_conn *conn)
{
        atomic_fetch_sub_explicit(&conn->n_started, 1, memory_order_relaxed);
}

/* Runs the user's callback of a started call, and ends it. */
static int on_op_done(struct conn_call *call)
{
        struct op *op = container_of(call, struct op, call);
        struct kvl_ns *ns = op->ns;
        struct ns_callback callback;

        conn_lock(conn_of(ns));
        /* First, so that its callback may start another call. */
        count_ended(ns->conn);
        list_remove(&op->link);
        drop_fetch(op);
        ns_callback_enter(&callback, ns);
        conn_unlock(conn_of(ns));
        populate_got(op, call->code);
        error_note(call->code, call->detail);
        /* Blocking calls probe in the public function. */
        if (op->type->probe)
                op->type->probe(op, call->code);
        if (op->done)
                op->done(ns, call->code, op->pages, op->n_pages, op->n_tokens, op->data);
        else if (op->type->call_back)
                op->type->call_back(op, call->code);
        ns_callback_leave(&callback);
        free(op);
        return 1;
}

int op_new(struct kvl_ns *ns, const struct op_type *type, uint32_t n_asked, kvl_done_fn done,
        void *data, struct op **ret_op)
{
        struct op *op;

        if (!count_started(ns->conn))
                return error_set(-EAGAIN,
                        "%d started calls of this connection are under way, the most there may be: start this one when one of them has called back",
                        KVL_MAX_STARTED);
        op = malloc(sizeof(*op) + n_asked * sizeof(uint32_t));
        if (!op) {
                count_ended(ns->conn);
                return error_set(-ENOMEM, "out of memory");
        }
        op_init(op, ns, type, op->own_pages, n_asked);
        op->call.on_done = on_op_done;
        op->done = done;
        op->data = data;
        *ret_op = op;
        return 0;
}

int op_new_with(struct kvl_ns *ns, const struct op_type *type, const uint32_t *pages,
        uint32_t n_pages, kvl_done_fn done, void *data, struct op **ret_op)
{
        int r = op_new(ns, type, n_pages, done, data, ret_op);

        if (r == 0)
                memcpy((*ret_op)->pages, pages, n_pages * sizeof(*pages));
        return r;
}

void op_free(struct op *op)
{
        count_ended(op->ns->conn);
        free(op);
}

int op_keep_started(struct op *op, int started)
{
        if (started == 0) {
                list_append(&op->ns->ops, &op->link);
                return 0;
        }
        op_give_back_claimed(op);
        op_free(op);
        return error_note(started, "");
}

int op_start(struct op *op, const ProtobufCMessage *m)
{
        struct kvl_ns *ns = op->ns;
        struct conn *c = conn_of(ns);
        int r;

        conn_lock(c);
        r = m ? conn_start(c, &op->call, op->type->msg, m) : op->type->send(op);
        r = op_keep_started(op, r);
        conn_unlock(c);
        return r;
}

int op_start_done(struct op *op, int code)
{
        struct conn *c = conn_of(op->ns);

        conn_lock(c);
        op->code = code;
        if (code < 0)
                snprintf(op->call.detail, sizeof(op->call.detail), "%s", error_get());
        op_keep_started(op, 0);
        op_proceed(op);
        conn_unlock(c);
        return 0;
}

int op_run_mapping(struct op *op, uint64_t deadline_nsec)
{
        struct conn *c = conn_of(op->ns);
        int r = 0;

        if (!ns_are_mapped(op->ns, op->pages, op->n_pages)) {
                conn_lock(c);
                op_proceed(op);
                r = op_finish(op, 0, deadline_nsec);
                conn_unlock(c);
        }
        populate_got(op, r);
        return r;
}

int op_map_got(struct kvl_ns *ns, const struct op_type *type, uint32_t *pages, uint32_t n_pages)
{
        struct op op;

        op_init(&op, ns, type, pages, n_pages);
        op.n_pages = n_pages;
        return op_run_mapping(&op, client_deadline(ns->conn));
}

void ops_cancel(struct kvl_ns *ns)
{
        list_for_each (op, &ns->ops, struct op, link) {
                if (op->call.is_done)
                        continue;
                op_give_back_claimed(op);
                /* The pages of its reply end with the namespace. */
                op->call.on_late = NULL;
                conn_abandon(conn_of(ns), &op->call);
                if (!op->call.is_done)
                        conn_finish(conn_of(ns), &op->call, -ECANCELED);
        }
}
