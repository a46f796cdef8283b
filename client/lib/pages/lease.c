/* Leasing pages: from the magazine (fast.h) if the namespace is shared, else over the socket. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "base/probe.h"
#include "client/lib/calls/give-back.h"
#include "client/lib/calls/op.h"
#include "client/lib/connection/error.h"
#include "client/lib/objects/args.h"
#include "client/lib/calls/flight.h"

/* Pages asked for beyond the magazine's when a lease came up short: the daemon may evict for them.
 * Larger needs raise the magazine's level. Not tuned. */
#define REFILL_MAX_PAGES 16u

/* LeaseRequest.contiguous; protocol. */
#define CONTIGUOUS_ALL       1
#define CONTIGUOUS_PREFERRED 2

/* ---- over the socket ---------------------------------------------------------------------------
 */

/* Claimed pages help only while nothing waits: two leases that wait for each other's pages would
 * both time out. So if the lease would have to wait, it is refused, and asked for as a whole
 * (lease_whole()). */
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

/* Reasons of newer daemons are passed on unchanged; older ones give none. */
static uint32_t reason_of(int code, const Kvlease__V1__LeaseReply *m)
{
        if (m->reason != KVL_REASON_NONE)
                return m->reason;
        switch (code) {
        case KVL_QUOTA:
                return KVL_REASON_QUOTA;
        case KVL_RESERVATION:
                return KVL_REASON_RESERVATION_FULL;
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

/* Pages were granted. Has the magazine refilled for later leases, unless this one was short. */
static void note_leased(struct op *op)
{
        struct fast *fast = &op->ns->fast;

        if (!fast_is_open(fast))
                return;
        fast_note_granted(fast, op->pages, op->n_pages);
        if (op->n_pages == op->n_asked && fast_take_refill(fast, true))
                flight_refill_locked(op->ns, MIN(op->n_asked - op->n_claimed, REFILL_MAX_PAGES));
}

/* The lease would have to wait, and must hold nothing while it does. */
static void lease_whole(struct op *op)
{
        int r;

        op_give_back_claimed(op);
        r = send_lease(op);
        if (r < 0)
                conn_finish(conn_of(op->ns), &op->call, r);
}

/* Older daemons ignore the flag. */
static bool is_run_right(const struct op *op)
{
        for (uint32_t i = 1; op->lease.flags & KVL_LEASE_CONTIGUOUS && i < op->n_pages; i++)
                if (op->pages[i] != op->pages[0] + i)
                        return false;
        return true;
}

/* Returns false if the lease was asked for anew, or is over. */
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
                op_give_back_claimed(op);
        else if (!is_wrong)
                note_leased(op);
        return true;
}

/* Whether the reply has a possible number of pages. */
static bool is_count_right(const struct op *op, int code, size_t n)
{
        n += code == 0 ? op->n_claimed : 0;
        return code == 0 ? n >= op->lease.n_min && n <= op->n_asked : n == 0;
}

static void take_lease_reply(struct op *op, int code, const ProtobufCMessage *reply)
{
        const op_pages_reply *m = (const op_pages_reply *)reply;
        const char *wrong = m ? op_check_pages(op, m, is_count_right(op, code, m->n_pages)) : NULL;

        if (m && !wrong)
                op_take_pages(op, m);
        if (take_lease(op, code, m, wrong))
                op_end_reply(op, wrong);
}

/* Fills the result of a lease that ended with `code`, as far as ret->size goes. ret may be NULL. */
static void fill_result(const struct op *op, int code, struct kvl_lease_result *ret)
{
        const struct kvl_lease_result result = {
                .n_pages = code == 0 ? op->n_pages : 0,
                .reason = op->lease.reason,
                .waited_usec = op->lease.waited_usec,
        };

        abi_fill(ret, &result, sizeof(result));
}

/* Blocking calls probe in the public function. */
static void probe_leased(const struct op *op, int code)
{
        PROBE(kvlease, leased, op->ns, code, op->n_pages, op->pages);
}

static void call_back_leased(struct op *op, int code)
{
        struct kvl_lease_result result = {.size = sizeof(result)};

        if (!op->lease.done)
                return;
        fill_result(op, code, &result);
        op->lease.done(op->ns, code, op->pages, &result, op->data);
}

static const struct op_type type_lease = {
        .msg = MSG_LEASE,
        .populates = true,
        .send = send_lease,
        .reply = take_lease_reply,
        .late = op_late_leased,
        .give_back = give_back_leased,
        .probe = probe_leased,
        .call_back = call_back_leased,
};

/* ---- lease -------------------------------------------------------------------------------------
 */

static int check_lease(const struct kvl_ns *ns, uint32_t n_pages)
{
        int r = args_check_ns(ns);

        return r < 0 ? r : args_check_count("pages", n_pages, KVL_MAX_LEASE_PAGES);
}

/* Claims pages from the magazine, and has it refilled if few are left. */
static uint32_t magazine_claim(struct kvl_ns *ns, uint32_t n_pages, uint32_t *ret_pages)
{
        uint32_t n;

        /* Nothing can be published once the connection is over. */
        if (!fast_is_open(&ns->fast) || fast_is_stale(&ns->fast) || conn_of(ns)->broken)
                return 0;
        n = fast_claim(&ns->fast, n_pages, ret_pages);
        if (n == n_pages && fast_take_refill(&ns->fast, false))
                flight_refill(ns, 0);
        return n;
}

/* Leases the pages that the magazine didn't have. Not inlined: the compiler's hardening zeroes its
 * op, which costs more than a page from the magazine. */
static __attribute__((noinline)) int lease_more(struct kvl_ns *ns, uint64_t request,
        uint32_t n_pages, uint32_t n_claimed, uint32_t *ret_pages)
{
        struct op op;

        op_init(&op, ns, &type_lease, ret_pages, n_pages);
        op.n_claimed = n_claimed;
        op.lease.request = request;
        /* Otherwise a timed-out lease would delay the next one until the tenant's max_wait. */
        op.lease.max_wait_msec = MAX(ns->conn->timeout_msec, 0);
        return op_run_pages(&op, client_deadline(ns->conn));
}

int kvl_lease(struct kvl_ns *ns, uint64_t request, uint32_t n_pages, uint32_t *ret_pages)
{
        uint32_t n_claimed;
        int r = check_lease(ns, n_pages);

        if (r < 0)
                return r;
        if (!ret_pages)
                return error_set(-EINVAL, "there is no room for the pages");
        PROBE(kvlease, lease, ns, request, n_pages);
        n_claimed = magazine_claim(ns, n_pages, ret_pages);
        if (n_claimed < n_pages)
                r = lease_more(ns, request, n_pages, n_claimed, ret_pages);
        else if (!ns_are_populated(ns, ret_pages, n_pages))
                r = op_map_got(ns, &type_lease, ret_pages, n_pages);
        PROBE(kvlease, leased, ns, r, n_pages, ret_pages);
        return r;
}

/* Leases the pages that the magazine didn't have. Takes the op. */
static int start_lease(struct op *op)
{
        if (op->n_claimed < op->n_asked)
                return op_start(op, NULL);
        op->n_pages = op->n_asked;
        return op_start_done(op, 0);
}

int kvl_lease_start(
        struct kvl_ns *ns, uint64_t request, uint32_t n_pages, kvl_done_fn done, void *data)
{
        struct op *op;
        int r = check_lease(ns, n_pages);

        if (r == 0)
                r = op_new(ns, &type_lease, n_pages, done, data, &op);
        if (r < 0)
                return r;
        op->lease.request = request;
        op->n_claimed = magazine_claim(ns, n_pages, op->pages);
        return start_lease(op);
}

/* ---- lease with a say in it ---------------------------------------------------------------------
 */

static int check_options(
        const struct kvl_lease_options *options, uint32_t n_pages, struct kvl_lease_options *ret)
{
        int r = abi_copy_options(ret, sizeof(*ret), options);

        if (r < 0)
                return r;
        if (ret->min_pages > n_pages)
                return error_set(-EINVAL, "min_pages is %u, must be at most the %u pages asked for",
                        ret->min_pages, n_pages);
        if (ret->min_pages == 0)
                ret->min_pages = n_pages;
        r = abi_check_flags(ret->flags, KVL_LEASE_CONTIGUOUS | KVL_LEASE_PREFER_CONTIGUOUS);
        if (r < 0)
                return r;
        if (ret->flags & KVL_LEASE_CONTIGUOUS && ret->flags & KVL_LEASE_PREFER_CONTIGUOUS)
                return error_set(-EINVAL,
                        "KVL_LEASE_CONTIGUOUS and KVL_LEASE_PREFER_CONTIGUOUS: one of them");
        return 0;
}

/* Pages of the magazine aren't contiguous; one page is. */
static uint32_t claim_as(struct kvl_ns *ns, uint32_t n_pages,
        const struct kvl_lease_options *options, uint32_t *ret_pages)
{
        return options->flags == 0 || n_pages == 1 ? magazine_claim(ns, n_pages, ret_pages) : 0;
}

/* Sets the options. If the magazine had min_pages or more, but not all, gives them back: the daemon
 * is to decide the number, and must know of these pages for that. */
static void prepare_options(
        struct op *op, uint64_t request, const struct kvl_lease_options *options)
{
        op->lease.request = request;
        op->lease.n_min = options->min_pages;
        op->lease.max_wait_msec = options->max_wait_msec;
        op->lease.flags = options->flags;
        if (op->n_claimed < options->min_pages || op->n_claimed == op->n_asked)
                return;
        conn_lock(conn_of(op->ns));
        op_give_back_claimed(op);
        conn_unlock(conn_of(op->ns));
}

/* Returns when the call gives up: after the daemon's wait and the connection's time-out. The
 * time-out also limits the tenant's max_wait, which isn't known here. */
static uint64_t limit_wait(const struct kvl_conn *conn, struct op_lease *lease)
{
        if (conn->timeout_msec < 0)
                return CONN_FOREVER;
        if (lease->max_wait_msec == 0)
                lease->max_wait_msec = conn->timeout_msec;
        return client_deadline(conn) + (uint64_t)MAX(lease->max_wait_msec, 0) * NSEC_PER_MSEC;
}

/* Does lease_more() with options. */
static __attribute__((noinline)) int lease_more_with(struct kvl_ns *ns, uint64_t request,
        uint32_t n_pages, const struct kvl_lease_options *options, uint32_t n_claimed,
        uint32_t *ret_pages, struct kvl_lease_result *ret)
{
        struct op op;
        int r;

        op_init(&op, ns, &type_lease, ret_pages, n_pages);
        op.n_claimed = n_claimed;
        prepare_options(&op, request, options);
        r = op_run_pages(&op, limit_wait(ns->conn, &op.lease));
        fill_result(&op, r, ret);
        PROBE(kvlease, leased, ns, r, op.n_pages, ret_pages);
        return r;
}

static int lease_with(struct kvl_ns *ns, uint64_t request, uint32_t n_pages,
        const struct kvl_lease_options *options, uint32_t *ret_pages, struct kvl_lease_result *ret)
{
        struct kvl_lease_result result = {0};
        uint32_t n_claimed;
        int r = 0;

        PROBE(kvlease, lease, ns, request, n_pages);
        n_claimed = claim_as(ns, n_pages, options, ret_pages);
        if (n_claimed < n_pages)
                return lease_more_with(ns, request, n_pages, options, n_claimed, ret_pages, ret);
        if (!ns_are_populated(ns, ret_pages, n_pages))
                r = op_map_got(ns, &type_lease, ret_pages, n_pages);
        result.n_pages = r == 0 ? n_pages : 0;
        abi_fill(ret, &result, sizeof(result));
        PROBE(kvlease, leased, ns, r, n_pages, ret_pages);
        return r;
}

int kvl_lease_with(struct kvl_ns *ns, uint64_t request, uint32_t n_pages,
        const struct kvl_lease_options *options, uint32_t *ret_pages, struct kvl_lease_result *ret)
{
        const struct kvl_lease_result nothing = {0};
        struct kvl_lease_options o = {0};
        int r;

        abi_fill(ret, &nothing, sizeof(nothing));
        r = check_lease(ns, n_pages);
        if (r == 0)
                r = check_options(options, n_pages, &o);
        if (r < 0)
                return r;
        r = abi_check_size(ret, "result's");
        if (r < 0)
                return r;
        if (!ret_pages)
                return error_set(-EINVAL, "there is no room for the pages");
        return lease_with(ns, request, n_pages, &o, ret_pages, ret);
}

int kvl_lease_with_start(struct kvl_ns *ns, uint64_t request, uint32_t n_pages,
        const struct kvl_lease_options *options, kvl_lease_done_fn done, void *data)
{
        struct kvl_lease_options o = {0};
        struct op *op;
        int r = check_lease(ns, n_pages);

        if (r == 0)
                r = check_options(options, n_pages, &o);
        if (r == 0)
                r = op_new(ns, &type_lease, n_pages, NULL, data, &op);
        if (r < 0)
                return r;
        op->lease.done = done;
        op->n_claimed = claim_as(ns, n_pages, &o, op->pages);
        prepare_options(op, request, &o);
        return start_lease(op);
}
