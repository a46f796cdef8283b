/* Calls on a namespace: op.h. */
#include "client/lib/calls/op.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/probe.h"
#include "client/lib/rings/flight.h"
#include "client/lib/ahead/stream.h"
#include "client/lib/connection/error.h"
#include "client/lib/mapping/map.h"
#include "client/lib/mapping/populate.h"
#include "client/lib/objects/abi.h"
#include "client/lib/objects/callback.h"
#include "client/lib/rings/fetch.h"
#include "gpu/device.h"
#include "proto/status.h"

/* Asked for beyond what the magazine has, where a lease came up short: the daemon may evict for it.
 * What more is needed is for the magazine's level to grow to. Not tuned. */
#define REFILL_MAX_PAGES 16u

/* LeaseRequest.contiguous; protocol. */
#define CONTIGUOUS_ALL       1
#define CONTIGUOUS_PREFERRED 2

/* What begins every reply that brings pages. */
typedef Kvlease__V1__LeaseReply pages_reply;

#define ASSERT_BRINGS_PAGES(type)                                                     \
        _Static_assert(offsetof(type, n_pages) == offsetof(pages_reply, n_pages) &&   \
                               offsetof(type, pages) == offsetof(pages_reply, pages), \
                #type)
ASSERT_BRINGS_PAGES(Kvlease__V1__PublishReply);
ASSERT_BRINGS_PAGES(Kvlease__V1__LookupReply);
ASSERT_BRINGS_PAGES(Kvlease__V1__SessionPagesReply);

static bool brings_pages(uint16_t type)
{
        return type == MSG_LEASE || type == MSG_LOOKUP || type == MSG_PUBLISH ||
               type == MSG_SESSION_PAGES;
}

/* ---- requests that carry pages -----------------------------------------------------------------
 */

/* [L] RELEASE or FREE; call NULL: nobody waits for the answer. */
static int send_pages(struct kvl_ns *ns, struct conn_call *call, uint16_t type,
        const uint32_t *pages, uint32_t n_pages)
{
        Kvlease__V1__ReleaseRequest release = KVLEASE__V1__RELEASE_REQUEST__INIT;
        Kvlease__V1__FreeRequest free_m = KVLEASE__V1__FREE_REQUEST__INIT;
        const ProtobufCMessage *m = &release.base;

        if (type == MSG_FREE)
                m = &free_m.base;
        release.ns_id = free_m.ns_id = ns->id;
        release.n_pages = free_m.n_pages = n_pages;
        release.pages = free_m.pages = (uint32_t *)pages;
        return call ? conn_start(conn_of(ns), call, type, m) : conn_notify(conn_of(ns), type, m);
}

/*
 * Pages of it that are claimed already are a help while nothing is waited for: two leases that wait
 * for what the other one holds would do so until both time out. So where it would have to wait it
 * is refused, and asked for as a whole (on_reply()).
 */
static int send_lease(struct op *op)
{
        Kvlease__V1__LeaseRequest m = KVLEASE__V1__LEASE_REQUEST__INIT;
        const struct op_lease *lease = &op->lease;

        m.ns_id = op->ns->id;
        m.n_pages = op->n_asked - op->n_claimed;
        m.request_id = lease->request;
        if (lease->n_min < op->n_asked)
                m.min_pages = lease->n_min - op->n_claimed;
        m.no_wait = lease->max_wait_msec < 0;
        m.max_wait_msec = lease->max_wait_msec > 0 ? (uint32_t)lease->max_wait_msec : 0;
        m.holds_some = op->n_claimed > 0 && !m.no_wait;
        if (lease->flags & KVL_LEASE_CONTIGUOUS)
                m.contiguous = CONTIGUOUS_ALL;
        else if (lease->flags & KVL_LEASE_PREFER_CONTIGUOUS)
                m.contiguous = CONTIGUOUS_PREFERRED;
        return conn_start(conn_of(op->ns), &op->call, MSG_LEASE, &m.base);
}

int op_send_pages(struct op *op)
{
        if (op->type == MSG_LEASE)
                return send_lease(op);
        return send_pages(op->ns, &op->call, op->type, op->pages, op->n_asked);
}

void op_give_back(struct kvl_ns *ns, uint16_t type, const uint32_t *pages, uint32_t n_pages)
{
        uint16_t how = type == MSG_LEASE ? MSG_FREE : MSG_RELEASE;
        uint32_t page;
        int r = 0;

        if (how == MSG_RELEASE && fast_is_open(&ns->fast)) {
                fast_release(&ns->fast, pages, n_pages, &page);
                return;
        }
        for (uint32_t i = 0, n; i < n_pages && r == 0; i += n) {
                n = MIN(n_pages - i, (uint32_t)KVL_MAX_LEASE_PAGES);
                r = send_pages(ns, NULL, how, pages + i, n);
        }
        /* Not to leak them: with the connection everything ends. */
        if (r < 0)
                conn_break(conn_of(ns), r, "out of memory while giving pages back");
}

#define BEYOND "kvleased answered with a page beyond the namespace"

static bool are_pages(const struct kvl_ns *ns, const pages_reply *m)
{
        for (size_t i = 0; i < m->n_pages; i++)
                if (m->pages[i] >= ns->info.capacity_pages)
                        return false;
        return true;
}

/* Pinned for a call that gave up. False: there are none such. */
static bool give_back_fetched(struct kvl_ns *ns, const ProtobufCMessage *reply)
{
        const Kvlease__V1__FetchReply *m = (const Kvlease__V1__FetchReply *)reply;

        for (size_t i = 0; i < m->n_pages; i++) {
                if (m->n_statuses != m->n_pages ||
                        (m->statuses[i] == WIRE_OK && m->pages[i] >= ns->info.capacity_pages))
                        return false;
                if (m->statuses[i] == WIRE_OK)
                        op_give_back(ns, MSG_LOOKUP, &m->pages[i], 1);
        }
        return true;
}

static void on_late(struct conn *c, struct conn_call *call, int code, const ProtobufCMessage *reply,
        struct frame *frame)
{
        const pages_reply *m = (const pages_reply *)reply;
        struct kvl_ns *ns = call->cookie;

        if (m && call->type == MSG_FETCH && !give_back_fetched(ns, reply)) {
                conn_finish_violated(c, call, BEYOND);
                return;
        }
        if (m && brings_pages(call->type)) {
                if (!are_pages(ns, m)) {
                        conn_finish_violated(c, call, BEYOND);
                        return;
                }
                op_give_back(ns, call->type, m->pages, (uint32_t)m->n_pages);
        }
        conn_finish(c, call, code);
}

/* ---- replies -----------------------------------------------------------------------------------
 */

/* Whether the reply brings as many pages as it may. */
static bool is_count_right(const struct op *op, int code, size_t n)
{
        switch (op->type) {
        case MSG_LEASE:
                n += code == 0 ? op->n_claimed : 0;
                return code == 0 ? n >= op->lease.n_min && n <= op->n_asked : n == 0;
        case MSG_LOOKUP:
        case MSG_SESSION_PAGES:
                return code == 0 ? n > 0 && n <= op->n_asked : n == 0;
        default: /* PUBLISH: all, or those before the one that was refused */
                return code == 0 || code == KVL_DUPLICATE ? n == op->n_asked : n < op->n_asked;
        }
}

/* Where they lie in the text. What is wrong with it; NULL: nothing. */
static const char *take_session_pages(struct op *op, const Kvlease__V1__SessionPagesReply *m)
{
        if (m->n_first_tokens != m->n_pages || m->n_tokens != m->n_pages ||
                m->keys.len != m->n_pages * KVL_KEY_BYTES)
                return "kvleased answered with pages whose places in the text are missing";
        for (size_t i = 0; i < m->n_pages; i++) {
                struct kvl_session_page *p = &op->session_pages[i];

                if (m->tokens[i] == 0 || m->tokens[i] > op->ns->info.page_tokens)
                        return "kvleased answered with a page of a wrong number of tokens";
                p->page = m->pages[i];
                p->n_tokens = m->tokens[i];
                p->first_token = m->first_tokens[i];
                memcpy(p->key, m->keys.data + i * KVL_KEY_BYTES, KVL_KEY_BYTES);
        }
        return NULL;
}

/* What is wrong with it; NULL: nothing. */
static const char *take_pages(struct op *op, int code, const pages_reply *m)
{
        const struct kvl_ns_info *info = &op->ns->info;
        bool is_other = false;

        if (!is_count_right(op, code, m->n_pages))
                return "kvleased answered with a wrong number of pages";
        if (!are_pages(op->ns, m))
                return BEYOND;
        for (size_t i = 0; op->type == MSG_PUBLISH && i < m->n_pages; i++)
                is_other |= m->pages[i] != op->pages[i];
        if (op->type == MSG_PUBLISH && code >= 0 && code <= KVL_DUPLICATE && code != KVL_MISS)
                code = is_other ? KVL_DUPLICATE : 0;
        if (op->type == MSG_LOOKUP) {
                const Kvlease__V1__LookupReply *lookup = (const Kvlease__V1__LookupReply *)m;

                op->n_tokens = lookup->tokens;
                if (lookup->n_page_tokens == m->n_pages)
                        op->page_tokens = lookup->page_tokens;
                if (op->n_tokens > (uint64_t)m->n_pages * info->page_tokens)
                        return "kvleased answered with more tokens than fit the pages";
        }
        if (op->type == MSG_SESSION_PAGES) {
                const char *wrong =
                        take_session_pages(op, (const Kvlease__V1__SessionPagesReply *)m);

                if (wrong)
                        return wrong;
        }
        if (m->n_pages > 0)
                memcpy(op->pages + op->n_claimed, m->pages, m->n_pages * sizeof(*m->pages));
        op->n_pages = (uint32_t)m->n_pages;
        if (code == 0)
                op->n_pages += op->n_claimed;
        op->code = code;
        return NULL;
}

/* Pages came that can't be mapped. Published ones are: their pins stay the caller's. */
void op_fail(struct op *op, int code)
{
        if (op->type != MSG_PUBLISH && brings_pages(op->type)) {
                op_give_back(op->ns, op->type, op->pages, op->n_pages);
                op->n_pages = op->n_claimed = 0;
        }
        conn_finish(conn_of(op->ns), &op->call, code);
}

/* The rest of a lease isn't to be had. */
static void give_back_claimed(struct op *op)
{
        op_give_back(op->ns, MSG_LEASE, op->pages, op->n_claimed);
        op->n_claimed = 0;
}

/* Not what is to stay where it is found, and not twice. */
static bool wants_device(const struct op *op)
{
        return op->up == OP_BELOW && !op->stays && op->n_pages > 0 &&
               (op->type == MSG_LOOKUP || op->type == MSG_SESSION_PAGES || op->type == MSG_FETCH);
}

/* Asks for the next set that can be mapped and isn't. 1; 0: there is none; as conn_start(). */
static int map_next(struct op *op)
{
        Kvlease__V1__MapRequest m = KVLEASE__V1__MAP_REQUEST__INIT;
        struct kvl_ns *ns = op->ns;
        int r;

        while (op->n_mapped < op->n_pages &&
                (!ns_wants_map(ns, op->pages[op->n_mapped]) ||
                        (op->up == OP_PREPARED && ns_is_lower(ns, op->pages[op->n_mapped]))))
                op->n_mapped++;
        if (op->n_mapped == op->n_pages)
                return 0;
        op->set = ns_set_of(ns, op->pages[op->n_mapped]);
        op->plane = ns->sets[op->set].n_planes;
        m.ns_id = ns->id;
        m.set_index = op->set;
        m.first_plane = op->plane;
        r = conn_start(conn_of(ns), &op->call, MSG_MAP, &m.base);
        return r < 0 ? r : 1;
}

void op_proceed(struct op *op)
{
        int r = wants_device(op) ? fetching_prepare(op) : 0;

        op->page_tokens = NULL;
        if (r == 0)
                r = map_next(op);
        if (r == 0 && op->up == OP_PREPARED)
                r = fetching_begin(op);
        if (r == 0)
                conn_finish(conn_of(op->ns), &op->call, op->code);
        else if (r < 0)
                op_fail(op, r);
}

/* As ns_map(), with the sentence. */
static int map(struct op *op, const Kvlease__V1__MapReply *m, struct frame *frame)
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

static void on_map(struct op *op, int code, const ProtobufCMessage *reply, struct frame *frame)
{
        if (reply && code == 0)
                code = map(op, (const Kvlease__V1__MapReply *)reply, frame);
        /* A condition is no answer to it, and would pass for one to the request before it. */
        if (code == 0)
                op_proceed(op);
        else if (code == -EPROTO || code > 0)
                conn_finish_violated(conn_of(op->ns), &op->call,
                        "kvleased answered wrongly where it was asked for memory");
        else
                op_fail(op, code);
}

/* A newer daemon's reasons are passed on as they are; an older one gives none. */
static uint32_t reason_of(int code, const Kvlease__V1__LeaseReply *m)
{
        if (m->reason != KVL_REASON_NONE)
                return m->reason;
        switch (code) {
        case KVL_QUOTA:
                return KVL_REASON_QUOTA;
        case KVL_FULL:
                return KVL_REASON_POOL_FULL;
        case KVL_DRAINING:
                return KVL_REASON_DRAINING;
        case KVL_TIMEOUT:
                return KVL_REASON_DEADLINE;
        default:
                return KVL_REASON_NONE;
        }
}

/* Pages are granted: for whom comes next the magazine is filled, but where there was no room for
 * this one. */
static void note_leased(struct op *op)
{
        struct fast *fast = &op->ns->fast;

        if (!fast_is_open(fast))
                return;
        fast_note_granted(fast, op->pages, op->n_pages);
        if (op->n_pages == op->n_asked && fast_take_refill(fast, true))
                flight_refill_locked(op->ns, MIN(op->n_asked - op->n_claimed, REFILL_MAX_PAGES));
}

/* It would have to wait, and must hold nothing while it does. */
static void lease_whole(struct op *op)
{
        int r;

        give_back_claimed(op);
        r = send_lease(op);
        if (r < 0)
                conn_finish(conn_of(op->ns), &op->call, r);
}

/* An older daemon gives any pages. */
static bool is_run_right(const struct op *op)
{
        for (uint32_t i = 1; op->lease.flags & KVL_LEASE_CONTIGUOUS && i < op->n_pages; i++)
                if (op->pages[i] != op->pages[0] + i)
                        return false;
        return true;
}

/* False: it was asked for anew, or is over. */
static bool take_lease(struct op *op, int code, const Kvlease__V1__LeaseReply *m, bool is_wrong)
{
        if (m && code == -EBUSY && op->n_claimed > 0) {
                lease_whole(op);
                return false;
        }
        if (m && !is_wrong) {
                op->lease.reason = (enum kvl_reason)reason_of(code, m);
                op->lease.waited_usec = m->waited_usec;
        }
        if (code == 0 && !is_wrong && !is_run_right(op)) {
                snprintf(op->call.detail, sizeof(op->call.detail),
                        "kvleased doesn't know KVL_LEASE_CONTIGUOUS: upgrade it");
                op_fail(op, -EOPNOTSUPP);
                return false;
        }
        if (code != 0)
                give_back_claimed(op);
        else if (!is_wrong)
                note_leased(op);
        return true;
}

/* How many were announced, as op->n_tokens. What is wrong with it; NULL: nothing. */
static const char *take_announced(struct op *op, int code, const Kvlease__V1__AnnounceReply *m)
{
        if (m->n_announced > op->n_asked || (code == 0) != (m->n_announced == op->n_asked))
                return "kvleased answered with a wrong number of announced pages";
        op->n_tokens = m->n_announced;
        return NULL;
}

static void on_reply(struct conn *c, struct conn_call *call, int code,
        const ProtobufCMessage *reply, struct frame *frame)
{
        struct op *op = container_of(call, struct op, call);
        const char *wrong = NULL;

        if (call->type == MSG_MAP) {
                on_map(op, code, reply, frame);
                return;
        }
        if (call->type == MSG_FETCH) {
                fetching_reply(op, code, reply);
                return;
        }
        op->code = code;
        if (reply && brings_pages(op->type))
                wrong = take_pages(op, code, (const pages_reply *)reply);
        if (reply && op->type == MSG_ANNOUNCE)
                wrong = take_announced(op, code, (const Kvlease__V1__AnnounceReply *)reply);
        if (op->type == MSG_LEASE &&
                !take_lease(op, code, (const Kvlease__V1__LeaseReply *)reply, wrong))
                return;
        if (reply && (op->type == MSG_INVALIDATE || op->type == MSG_REPORT ||
                             op->type == MSG_SESSION_TRUNCATE))
                op->n_tokens = ((const Kvlease__V1__CountReply *)reply)->count;
        if (wrong)
                conn_finish_violated(c, call, wrong);
        else
                op_proceed(op);
}

/* ---- both ways to call -------------------------------------------------------------------------
 */

void op_init(struct op *op, struct kvl_ns *ns, uint16_t type, uint32_t *pages, uint32_t n_asked)
{
        /* Not its kilobyte of text, which costs more than the rest of a publish. */
        memset(&op->call, 0, offsetof(struct conn_call, detail));
        op->call.detail[0] = '\0';
        op->call.on_reply = on_reply;
        op->call.on_late = on_late;
        op->call.cookie = ns;
        op->ns = ns;
        op->waited = NULL;
        list_init(&op->link);
        op->flight = NULL;
        op->stream_op = NULL;
        op->fetching = NULL;
        op->stays = false;
        op->up = OP_BELOW;
        op->way = FETCH_UP;
        op->targets = NULL;
        op->failed = 0;
        op->page_tokens = NULL;
        op->type = type;
        op->pages = pages;
        op->n_asked = n_asked;
        op->n_pages = op->n_claimed = op->n_mapped = 0;
        op->n_tokens = 0;
        op->session_pages = NULL;
        op->code = 0;
        if (type == MSG_LEASE)
                op->lease = (struct op_lease){.n_min = n_asked};
}

void op_fill_lease_result(const struct op *op, int code, struct kvl_lease_result *ret)
{
        const struct kvl_lease_result result = {
                .n_pages = code == 0 ? op->n_pages : 0,
                .reason = op->lease.reason,
                .waited_usec = op->lease.waited_usec,
        };

        abi_fill(ret, &result, sizeof(result));
}

int op_finish(struct op *op, int started, uint64_t deadline_nsec)
{
        int r = started;

        if (r == 0)
                r = conn_wait(conn_of(op->ns), &op->call, deadline_nsec);
        if (r == -ETIMEDOUT && op->up == OP_FETCHING)
                r = fetching_give_up(op);
        /* The request itself was answered; only the mapping wasn't. */
        if (r == -ETIMEDOUT && op->call.type == MSG_MAP && brings_pages(op->type)) {
                op_give_back(op->ns, op->type, op->pages, op->n_pages);
                op->n_pages = op->n_claimed = 0;
        }
        if (r != 0 && op->n_claimed > 0)
                give_back_claimed(op);
        fetching_drop(op);
        return error_note(r, op->call.detail);
}

/* Without the lock: what the call brought, whoever held its pages before. */
static void populate_got(const struct op *op, int code)
{
        bool brings = op->type == MSG_LEASE || op->type == MSG_LOOKUP ||
                      op->type == MSG_SESSION_PAGES || op->type == MSG_MAP || op->type == MSG_FETCH;

        if (code == 0 && brings)
                ns_populate(op->ns, op->pages, op->n_pages);
}

int op_run(struct op *op, const ProtobufCMessage *m, uint64_t deadline_nsec)
{
        struct conn *c = conn_of(op->ns);
        int r;

        conn_lock(c);
        r = op_finish(op, conn_start(c, &op->call, op->type, m), deadline_nsec);
        conn_unlock(c);
        populate_got(op, r);
        return r;
}

int op_run_pages(struct op *op, uint64_t deadline_nsec)
{
        struct conn *c = conn_of(op->ns);
        int r;

        conn_lock(c);
        r = op_finish(op, op_send_pages(op), deadline_nsec);
        conn_unlock(c);
        populate_got(op, r);
        return r;
}

/* Of calls that block: where they end. */
static void probe_started_call(const struct op *op, int code)
{
        if (op->type == MSG_LOOKUP && code == 0)
                PROBE(kvlease, hit, op->ns, op->n_pages, op->n_tokens, op->pages);
        else if (op->type == MSG_LOOKUP)
                PROBE(kvlease, miss, op->ns, code);
        else if (op->type == MSG_LEASE)
                PROBE(kvlease, leased, op->ns, code, op->n_pages, op->pages);
        else if (op->type == MSG_PUBLISH)
                PROBE(kvlease, published, op->ns, code, op->n_pages);
}

/* False: as many are under way as may be. */
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
        struct kvl_lease_result result = {.size = sizeof(result)};
        struct kvl_ns *ns = op->ns;
        struct ns_callback callback;

        conn_lock(conn_of(ns));
        /* Its callback may start another one. */
        count_ended(ns->conn);
        list_remove(&op->link);
        fetching_drop(op);
        ns_callback_enter(&callback, ns);
        conn_unlock(conn_of(ns));
        populate_got(op, call->code);
        error_note(call->code, call->detail);
        probe_started_call(op, call->code);
        if (op->done)
                op->done(ns, call->code, op->pages, op->n_pages, op->n_tokens, op->data);
        if (op->waited)
                op->waited(ns, call->code, op->data);
        if (op->type == MSG_LEASE && op->lease.done) {
                op_fill_lease_result(op, call->code, &result);
                op->lease.done(ns, call->code, op->pages, &result, op->data);
        }
        ns_callback_leave(&callback);
        free(op);
        return 1;
}

int op_new(struct kvl_ns *ns, uint16_t type, uint32_t n_asked, kvl_done_fn done, void *data,
        struct op **ret_op)
{
        struct op *op;

        if (!count_started(ns->conn))
                return error_set(-EAGAIN,
                        "%d started calls of this connection are under way, the most there may be: "
                        "start this one when one of them has called back",
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

void op_free(struct op *op)
{
        count_ended(op->ns->conn);
        free(op);
}

/* [L] Takes the op. `started`: what starting it gave. */
static int keep_started(struct op *op, int started)
{
        if (started == 0) {
                list_append(&op->ns->ops, &op->link);
                return 0;
        }
        if (op->n_claimed > 0)
                give_back_claimed(op);
        op_free(op);
        return error_note(started, "");
}

int op_start(struct op *op, const ProtobufCMessage *m)
{
        struct kvl_ns *ns = op->ns;
        struct conn *c = conn_of(ns);
        int r;

        conn_lock(c);
        r = m ? conn_start(c, &op->call, op->type, m) : op_send_pages(op);
        r = keep_started(op, r);
        conn_unlock(c);
        return r;
}

int op_start_flight(struct op *op, const struct kvl_publish *publish)
{
        struct conn *c = conn_of(op->ns);
        int r;

        conn_lock(c);
        r = keep_started(op, flight_start(op, publish));
        conn_unlock(c);
        return r;
}

int op_begin_fetch(struct op *op, void *stream)
{
        struct conn *c = conn_of(op->ns);
        int r;

        op->n_mapped = op->n_pages; /* what is read, or was, isn't to be mapped for that */
        r = c->broken ? error_note(-ENOTCONN, c->detail) : fetching_prepare(op);
        if (r == 0 && op->way == FETCH_COPY)
                r = stream_start_fetch(op, stream);
        else if (r == 0)
                op_proceed(op);
        if (r < 0)
                fetching_drop(op);
        return r < 0 ? error_note(r, op->call.detail) : 0;
}

void op_drop_fetch(struct op *op)
{
        conn_abandon(conn_of(op->ns), &op->call);
        fetching_drop(op);
}

int op_run_flight(struct op *op, const struct kvl_publish *publish, uint64_t deadline_nsec)
{
        struct conn *c = conn_of(op->ns);
        int r;

        conn_lock(c);
        r = op_finish(op, flight_start(op, publish), deadline_nsec);
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
        keep_started(op, 0);
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

void ops_cancel(struct kvl_ns *ns)
{
        list_for_each (op, &ns->ops, struct op, link) {
                if (op->call.is_done)
                        continue;
                if (op->n_claimed > 0)
                        give_back_claimed(op);
                /* What its reply brings ends with the namespace. */
                op->call.on_late = NULL;
                conn_abandon(conn_of(ns), &op->call);
                if (!op->call.is_done)
                        conn_finish(conn_of(ns), &op->call, -ECANCELED);
        }
}
