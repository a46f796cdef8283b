/*
 * Finding, leasing, letting go: in shared memory (fast.h) where the namespace is shared, else over
 * the socket.
 */
#include <errno.h>
#include <string.h>

#include "base/macros.h"
#include "base/probe.h"
#include "client/lib/calls/op.h"
#include "client/lib/connection/error.h"
#include "client/lib/objects/abi.h"
#include "client/lib/objects/args.h"
#include "client/lib/pages/lookup.h"
#include "client/lib/rings/flight.h"

/* ---- requests ----------------------------------------------------------------------------------
 */

uint64_t kvl_request_begin(struct kvl_ns *ns)
{
        return atomic_fetch_add_explicit(&ns->conn->n_requests, 1, memory_order_relaxed) + 1;
}

static int send_request_end(struct kvl_ns *ns, uint64_t request)
{
        Kvlease__V1__RequestEndRequest m = KVLEASE__V1__REQUEST_END_REQUEST__INIT;
        int r;

        m.ns_id = ns->id;
        m.request_id = request;
        conn_lock(conn_of(ns));
        r = conn_is_congested(conn_of(ns)) ? -EAGAIN
                                           : conn_notify(conn_of(ns), MSG_REQUEST_END, &m.base);
        conn_unlock(conn_of(ns));
        return r;
}

int kvl_request_end(struct kvl_ns *ns, uint64_t request)
{
        int r = args_check_ns(ns);

        if (r < 0 || request == 0)
                return r;
        r = fast_is_open(&ns->fast) ? flight_request_end(ns, request)
                                    : send_request_end(ns, request);
        return error_note(r, "");
}

/* ---- lookup ------------------------------------------------------------------------------------
 */

static Kvlease__V1__LookupRequest lookup_message(
        const struct kvl_ns *ns, uint64_t request, const uint8_t *keys, uint32_t n_keys)
{
        Kvlease__V1__LookupRequest m = KVLEASE__V1__LOOKUP_REQUEST__INIT;

        m.ns_id = ns->id;
        m.keys.data = (uint8_t *)keys;
        m.keys.len = (size_t)n_keys * KVL_KEY_BYTES;
        m.request_id = request;
        return m;
}

/* Looks up batch after batch as long as all of it is found. As kvl_lookup(). */
static int lookup_all(struct kvl_ns *ns, uint64_t request, const uint8_t *keys, uint32_t n_keys,
        bool stays, uint32_t *pages, uint32_t *ret_n_pages, uint64_t *ret_n_tokens)
{
        uint64_t deadline = client_deadline(ns->conn);
        bool goes_on = true;
        int r = 0;

        while (goes_on && *ret_n_pages < n_keys) {
                uint32_t done = *ret_n_pages;
                uint32_t n = MIN(n_keys - done, (uint32_t)KVL_MAX_LOOKUP_KEYS);
                Kvlease__V1__LookupRequest m =
                        lookup_message(ns, request, keys + (size_t)done * KVL_KEY_BYTES, n);
                struct op op;

                op_init(&op, ns, MSG_LOOKUP, pages + done, n);
                op.stays = stays;
                r = op_run(&op, &m.base, deadline);
                goes_on = r == 0 && op.n_pages == n;
                if (r != 0)
                        break;
                *ret_n_pages += op.n_pages;
                *ret_n_tokens += op.n_tokens;
        }
        return r == KVL_MISS && *ret_n_pages > 0 ? 0 : r;
}

static int lookup_on_socket(struct kvl_ns *ns, uint64_t request, const uint8_t *keys,
        uint32_t n_keys, bool stays, uint32_t *ret_pages, uint32_t *ret_n_pages,
        uint64_t *ret_n_tokens)
{
        uint32_t n_pages = 0;
        uint64_t n_tokens = 0;
        int r = lookup_all(ns, request, keys, n_keys, stays, ret_pages, &n_pages, &n_tokens);

        if (r != 0) {
                conn_lock(conn_of(ns));
                op_give_back(ns, MSG_LOOKUP, ret_pages, n_pages);
                conn_unlock(conn_of(ns));
                return r;
        }
        *ret_n_pages = n_pages;
        *ret_n_tokens = n_tokens;
        return 0;
}

/* Tells the daemon, unless that lies in the ring still unread, or there is no room. */
static inline void touch(struct kvl_ns *ns, uint64_t request, uint32_t n_keys, uint32_t page,
        const struct fast_hit *hit)
{
        struct ring *ring = &ns->conn->flights.ring;
        struct touch_mark *mark = touch_mark_of(&ns->touches, page);
        uint64_t what = touch_what(page, hit->generation, request);

        if (touch_is_unread(mark, ring, what))
                return;
        if (ring_is_busy(ring))
                ring_drop_touch(ring);
        else if (flight_touch(ns, request, n_keys, page, hit))
                touch_note(mark, ring, what);
}

/* 0, KVL_MISS or KVL_STALE; pages found may not be mapped yet. */
static inline int find(struct kvl_ns *ns, uint64_t request, const uint8_t *keys, uint32_t n_keys,
        uint32_t *ret_pages, struct fast_hit *ret_hit)
{
        uint32_t n;

        if (fast_is_stale(&ns->fast))
                return KVL_STALE;
        fast_lookup(&ns->fast, keys, n_keys, ret_pages, ret_hit);
        n = ret_hit->n_pages;
        fast_count(&ns->fast, n_keys, n);
        touch(ns, request, n_keys, n > 0 ? ret_pages[n - 1] : KVL_PAGE_NONE, ret_hit);
        return n > 0 ? 0 : KVL_MISS;
}

/* Maps and populates the pages of a call of `type` that are got already, or gives them back. */
static int map_got(struct kvl_ns *ns, uint16_t type, uint32_t *pages, uint32_t n_pages)
{
        struct op op;

        op_init(&op, ns, type, pages, n_pages);
        op.n_pages = n_pages;
        return op_run_mapping(&op, client_deadline(ns->conn));
}

/* What was found in shared memory is brought to the device, mapped and populated, or (stays) mapped
 * where it lies. As kvl_lookup(). Not inlined, as lease_more(). */
static __attribute__((noinline)) int map_found(
        struct kvl_ns *ns, bool stays, uint32_t *pages, struct fast_hit *hit)
{
        struct op op;
        int r;

        op_init(&op, ns, MSG_LOOKUP, pages, hit->n_pages);
        op.n_pages = hit->n_pages;
        op.n_tokens = hit->n_tokens;
        op.stays = stays;
        r = op_run_mapping(&op, client_deadline(ns->conn));
        hit->n_pages = op.n_pages;
        hit->n_tokens = op.n_tokens;
        return r;
}

static inline int look_up_checked(struct kvl_ns *ns, uint64_t request, const uint8_t *keys,
        uint32_t n_keys, bool stays, uint32_t *ret_pages, uint32_t *ret_n_pages,
        uint64_t *ret_n_tokens)
{
        struct fast_hit hit;
        int r;

        if (!fast_is_open(&ns->fast))
                return lookup_on_socket(
                        ns, request, keys, n_keys, stays, ret_pages, ret_n_pages, ret_n_tokens);
        r = find(ns, request, keys, n_keys, ret_pages, &hit);
        if (r != 0)
                return error_note(r, "");
        if (!ns_are_populated(ns, ret_pages, hit.n_pages))
                r = map_found(ns, stays, ret_pages, &hit);
        if (r != 0)
                return r;
        *ret_n_pages = hit.n_pages;
        *ret_n_tokens = hit.n_tokens;
        return 0;
}

static int look_up(struct kvl_ns *ns, uint64_t request, const uint8_t *keys, uint32_t n_keys,
        bool stays, uint32_t *ret_pages, uint32_t *ret_n_pages, uint64_t *ret_n_tokens)
{
        int r = args_check_keys(ns, keys, n_keys, UINT32_MAX);

        if (r < 0)
                return r;
        if (!ret_pages || !ret_n_pages || !ret_n_tokens)
                return error_set(-EINVAL, "there is no room for what is found");
        PROBE(kvlease, lookup, ns, request, n_keys);
        r = look_up_checked(ns, request, keys, n_keys, stays, ret_pages, ret_n_pages, ret_n_tokens);
        if (r == 0)
                PROBE(kvlease, hit, ns, *ret_n_pages, *ret_n_tokens, ret_pages);
        else
                PROBE(kvlease, miss, ns, r);
        return r;
}

int kvl_lookup(struct kvl_ns *ns, uint64_t request, const uint8_t *keys, uint32_t n_keys,
        uint32_t *ret_pages, uint32_t *ret_n_pages, uint64_t *ret_n_tokens)
{
        return look_up(ns, request, keys, n_keys, false, ret_pages, ret_n_pages, ret_n_tokens);
}

int kvl_find(struct kvl_ns *ns, uint64_t request, const uint8_t *keys, uint32_t n_keys,
        uint32_t *ret_pages, uint32_t *ret_n_pages, uint64_t *ret_n_tokens)
{
        return look_up(ns, request, keys, n_keys, true, ret_pages, ret_n_pages, ret_n_tokens);
}

int kvl_lookup_start(struct kvl_ns *ns, uint64_t request, const uint8_t *keys, uint32_t n_keys,
        kvl_done_fn done, void *data)
{
        Kvlease__V1__LookupRequest m;
        struct fast_hit hit = {0};
        struct op *op;
        int r = args_check_keys(ns, keys, n_keys, KVL_MAX_LOOKUP_KEYS);

        if (r == 0)
                r = op_new(ns, MSG_LOOKUP, n_keys, done, data, &op);
        if (r < 0)
                return r;
        if (fast_is_open(&ns->fast)) {
                r = find(ns, request, keys, n_keys, op->pages, &hit);
                op->n_pages = hit.n_pages;
                op->n_tokens = hit.n_tokens;
                return op_start_done(op, r);
        }
        m = lookup_message(ns, request, keys, n_keys);
        return op_start(op, &m.base);
}

/* ---- lookup in steps ---------------------------------------------------------------------------
 */

static int extend_shared(struct lookup *l, uint32_t n_keys)
{
        struct fast_hit hit;

        if (fast_is_stale(&l->ns->fast))
                return error_note(KVL_STALE, "");
        fast_lookup(&l->ns->fast, l->keys + (size_t)l->n_pages * KVL_KEY_BYTES, n_keys,
                l->pages + l->n_pages, &hit);
        l->n_pages += hit.n_pages;
        l->n_tokens += hit.n_tokens;
        return hit.n_pages > 0 ? 0 : KVL_MISS;
}

int lookup_extend(struct lookup *l, uint32_t n_keys)
{
        uint64_t n_tokens;
        uint32_t n;
        int r;

        if (fast_is_open(&l->ns->fast))
                return extend_shared(l, n_keys);
        r = lookup_on_socket(l->ns, l->request, l->keys + (size_t)l->n_pages * KVL_KEY_BYTES,
                n_keys, false, l->pages + l->n_pages, &n, &n_tokens);
        if (r == 0) {
                l->n_pages += n;
                l->n_tokens += n_tokens;
        }
        return r;
}

void lookup_cut(struct lookup *l, uint32_t n_pages)
{
        if (l->n_pages <= n_pages)
                return;
        conn_lock(conn_of(l->ns));
        op_give_back(l->ns, MSG_LOOKUP, l->pages + n_pages, l->n_pages - n_pages);
        conn_unlock(conn_of(l->ns));
        l->n_pages = n_pages;
}

int lookup_end(struct lookup *l)
{
        struct fast_hit hit = {.n_pages = l->n_pages, .n_tokens = l->n_tokens};
        struct kvl_ns *ns = l->ns;
        uint32_t last = KVL_PAGE_NONE;
        int r = l->n_pages > 0 ? 0 : KVL_MISS;

        if (!fast_is_open(&ns->fast))
                return r;
        if (r == 0) {
                last = l->pages[l->n_pages - 1];
                hit.generation = fast_generation(&ns->fast, last);
        }
        fast_count(&ns->fast, l->n_keys, l->n_pages);
        touch(ns, l->request, l->n_keys, last, &hit);
        if (!ns_are_populated(ns, l->pages, l->n_pages))
                r = map_found(ns, false, l->pages, &hit);
        l->n_pages = r == 0 ? hit.n_pages : 0;
        l->n_tokens = hit.n_tokens;
        if (r == 0)
                PROBE(kvlease, hit, ns, l->n_pages, l->n_tokens, l->pages);
        else
                PROBE(kvlease, miss, ns, r);
        return r;
}

/* ---- lease -------------------------------------------------------------------------------------
 */

static int check_lease(const struct kvl_ns *ns, uint32_t n_pages)
{
        int r = args_check_ns(ns);

        return r < 0 ? r : args_check_count("pages", n_pages, KVL_MAX_LEASE_PAGES);
}

/* Pages got from the magazine, which is filled up where few are left. */
static uint32_t claim(struct kvl_ns *ns, uint32_t n_pages, uint32_t *ret_pages)
{
        uint32_t n;

        /* Nothing could be published any more once the connection is over. */
        if (!fast_is_open(&ns->fast) || fast_is_stale(&ns->fast) || conn_of(ns)->broken)
                return 0;
        n = fast_claim(&ns->fast, n_pages, ret_pages);
        if (n == n_pages && fast_take_refill(&ns->fast, false))
                flight_refill(ns, 0);
        return n;
}

/* What the magazine didn't have. Not inlined: its call's room on the stack is zeroed (the
 * compiler's hardening), which costs more than a page from the magazine. */
static __attribute__((noinline)) int lease_more(struct kvl_ns *ns, uint64_t request,
        uint32_t n_pages, uint32_t n_claimed, uint32_t *ret_pages)
{
        struct op op;

        op_init(&op, ns, MSG_LEASE, ret_pages, n_pages);
        op.n_claimed = n_claimed;
        op.lease.request = request;
        /* Or it would be in the way of the next one until the tenant's max_wait is over. */
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
        n_claimed = claim(ns, n_pages, ret_pages);
        if (n_claimed < n_pages)
                r = lease_more(ns, request, n_pages, n_claimed, ret_pages);
        else if (!ns_are_populated(ns, ret_pages, n_pages))
                r = map_got(ns, MSG_LEASE, ret_pages, n_pages);
        PROBE(kvlease, leased, ns, r, n_pages, ret_pages);
        return r;
}

/* The rest of it, where the magazine didn't have all. Takes the op. */
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
                r = op_new(ns, MSG_LEASE, n_pages, done, data, &op);
        if (r < 0)
                return r;
        op->lease.request = request;
        op->n_claimed = claim(ns, n_pages, op->pages);
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

/* Pages from the magazine lie anywhere; one page is a run. */
static uint32_t claim_as(struct kvl_ns *ns, uint32_t n_pages,
        const struct kvl_lease_options *options, uint32_t *ret_pages)
{
        return options->flags == 0 || n_pages == 1 ? claim(ns, n_pages, ret_pages) : 0;
}

/* The magazine alone has as many as are of use: how many more there are to be is the daemon's to
 * say, which must know of them for that. */
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
        op_give_back(op->ns, MSG_LEASE, op->pages, op->n_claimed);
        conn_unlock(conn_of(op->ns));
        op->n_claimed = 0;
}

/* The daemon's time to wait, and then the connection's, which a tenant's own max_wait is kept to,
 * too: nobody here knows how long that is. */
static uint64_t limit_wait(const struct kvl_conn *conn, struct op_lease *lease)
{
        if (conn->timeout_msec < 0)
                return CONN_FOREVER;
        if (lease->max_wait_msec == 0)
                lease->max_wait_msec = conn->timeout_msec;
        return client_deadline(conn) + (uint64_t)MAX(lease->max_wait_msec, 0) * NSEC_PER_MSEC;
}

/* As lease_more(). */
static __attribute__((noinline)) int lease_more_with(struct kvl_ns *ns, uint64_t request,
        uint32_t n_pages, const struct kvl_lease_options *options, uint32_t n_claimed,
        uint32_t *ret_pages, struct kvl_lease_result *ret)
{
        struct op op;
        int r;

        op_init(&op, ns, MSG_LEASE, ret_pages, n_pages);
        op.n_claimed = n_claimed;
        prepare_options(&op, request, options);
        r = op_run_pages(&op, limit_wait(ns->conn, &op.lease));
        op_fill_lease_result(&op, r, ret);
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
                r = map_got(ns, MSG_LEASE, ret_pages, n_pages);
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
                r = op_new(ns, MSG_LEASE, n_pages, NULL, data, &op);
        if (r < 0)
                return r;
        op->lease.done = done;
        op->n_claimed = claim_as(ns, n_pages, &o, op->pages);
        prepare_options(op, request, &o);
        return start_lease(op);
}

/* ---- release -----------------------------------------------------------------------------------
 */

static int release_shared(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages)
{
        uint32_t page;

        if (fast_release(&ns->fast, pages, n_pages, &page) < 0)
                return error_set(-EINVAL, "page %u isn't pinned by this connection", page);
        return 0;
}

int kvl_release(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages)
{
        uint64_t deadline;
        int r = args_check_pages(ns, pages, n_pages, UINT32_MAX);

        if (r < 0)
                return r;
        if (fast_is_open(&ns->fast))
                return release_shared(ns, pages, n_pages);
        deadline = client_deadline(ns->conn);
        for (uint32_t i = 0, n; i < n_pages && r == 0; i += n) {
                struct op op;

                n = MIN(n_pages - i, (uint32_t)KVL_MAX_LEASE_PAGES);
                op_init(&op, ns, MSG_RELEASE, (uint32_t *)pages + i, n);
                r = op_run_pages(&op, deadline);
        }
        return r;
}

int kvl_release_start(
        struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages, kvl_done_fn done, void *data)
{
        struct op *op;
        int r = args_check_pages(ns, pages, n_pages, KVL_MAX_LEASE_PAGES);

        /* There is nothing to be under way. */
        if (r == 0 && !done && fast_is_open(&ns->fast))
                return release_shared(ns, pages, n_pages);
        if (r == 0)
                r = op_new(ns, MSG_RELEASE, n_pages, done, data, &op);
        if (r < 0)
                return r;
        memcpy(op->pages, pages, n_pages * sizeof(*pages));
        if (fast_is_open(&ns->fast))
                return op_start_done(op, release_shared(ns, pages, n_pages));
        return op_start(op, NULL);
}

/* ---- pages that are held -----------------------------------------------------------------------
 */

#define MAX_HELD_PAGES 256 /* of one HELD; protocol */

static int pin_shared(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages)
{
        uint32_t page = 0;
        int r = fast_pin_again(&ns->fast, pages, n_pages, &page);

        if (r == -EOVERFLOW)
                return error_set(r, "page %u is pinned too often: release some of its pins", page);
        if (r < 0)
                return error_set(r, "page %u isn't pinned by this connection", page);
        return 0;
}

int kvl_pin(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages)
{
        uint64_t deadline;
        int r = args_check_pages(ns, pages, n_pages, UINT32_MAX);

        if (r < 0)
                return r;
        if (fast_is_open(&ns->fast))
                return pin_shared(ns, pages, n_pages);
        deadline = client_deadline(ns->conn);
        for (uint32_t i = 0, n; i < n_pages && r == 0; i += n) {
                Kvlease__V1__PinRequest m = KVLEASE__V1__PIN_REQUEST__INIT;
                struct op op;

                n = MIN(n_pages - i, (uint32_t)KVL_MAX_LEASE_PAGES);
                m.ns_id = ns->id;
                m.pages = (uint32_t *)pages + i;
                m.n_pages = n;
                op_init(&op, ns, MSG_PIN, NULL, 0);
                r = op_run(&op, &m.base, deadline);
        }
        return r;
}

/* 0; -ENOENT: one isn't the group's; as a call on the socket. */
static int check_held(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages)
{
        uint64_t deadline = client_deadline(ns->conn);
        int r = 0;

        for (uint32_t i = 0, n; i < n_pages && r == 0; i += n) {
                Kvlease__V1__HeldRequest m = KVLEASE__V1__HELD_REQUEST__INIT;
                struct op op;

                n = MIN(n_pages - i, (uint32_t)MAX_HELD_PAGES);
                m.ns_id = ns->id;
                m.pages = (uint32_t *)pages + i;
                m.n_pages = n;
                op_init(&op, ns, MSG_HELD, NULL, 0);
                r = op_run(&op, &m.base, deadline);
        }
        return r;
}

int kvl_map_pages(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages)
{
        int r = args_check_pages(ns, pages, n_pages, UINT32_MAX);

        if (r < 0)
                return r;
        if (ns->conn->metadata_only)
                return error_set(-EACCES, "a metadata-only connection maps nothing");
        r = check_held(ns, pages, n_pages);
        return r != 0 ? r : map_got(ns, MSG_MAP, (uint32_t *)pages, n_pages);
}

/* ---- the rest ----------------------------------------------------------------------------------
 */

static int invalidate(struct kvl_ns *ns, const uint8_t *key, uint64_t tag, uint64_t *ret_n_pages)
{
        Kvlease__V1__InvalidateRequest m = KVLEASE__V1__INVALIDATE_REQUEST__INIT;
        struct op op;
        int r;

        m.ns_id = ns->id;
        if (key) {
                m.key.data = (uint8_t *)key;
                m.key.len = KVL_KEY_BYTES;
        }
        m.tag = tag;
        op_init(&op, ns, MSG_INVALIDATE, NULL, 0);
        r = op_run(&op, &m.base, client_deadline(ns->conn));
        if (r == 0 && ret_n_pages)
                *ret_n_pages = op.n_tokens;
        return r;
}

int kvl_invalidate(struct kvl_ns *ns, const uint8_t *key, uint64_t *ret_n_pages)
{
        int r = args_check_ns(ns);

        return r < 0 ? r : invalidate(ns, key, 0, ret_n_pages);
}

int kvl_invalidate_tag(struct kvl_ns *ns, uint64_t tag, uint64_t *ret_n_pages)
{
        int r = args_check_ns(ns);

        if (r == 0 && tag == 0)
                r = error_set(-EINVAL, "the tag is 0, which is none");
        return r < 0 ? r : invalidate(ns, NULL, tag, ret_n_pages);
}

/* [L] As kvl_report(); -ESTALE where the connection isn't broken: to be begun anew, the daemon was
 * restarted and has forgotten the messages before. */
static int report_all(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages,
        uint64_t deadline_nsec, uint64_t *ret_n_freed)
{
        Kvlease__V1__ReportRequest m = KVLEASE__V1__REPORT_REQUEST__INIT;
        uint32_t done = 0;
        struct op op;
        int r;

        m.ns_id = ns->id;
        do {
                m.continues = done > 0;
                m.pages = (uint32_t *)pages + done;
                m.n_pages = MIN(n_pages - done, (uint32_t)KVL_MAX_LEASE_PAGES);
                done += (uint32_t)m.n_pages;
                m.more = done < n_pages;
                op_init(&op, ns, MSG_REPORT, NULL, 0);
                r = op_finish(
                        &op, conn_start(conn_of(ns), &op.call, MSG_REPORT, &m.base), deadline_nsec);
        } while (r == 0 && m.more);
        if (r == 0)
                *ret_n_freed = op.n_tokens;
        return r;
}

int kvl_report(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages, uint64_t *ret_n_freed)
{
        uint64_t deadline, n_freed;
        struct conn *c;
        int r = n_pages > 0 ? args_check_pages(ns, pages, n_pages, UINT32_MAX) : args_check_ns(ns);

        if (r < 0)
                return r;
        c = conn_of(ns);
        deadline = client_deadline(ns->conn);
        conn_lock(c);
        do
                r = report_all(ns, pages, n_pages, deadline, &n_freed);
        while (r == -ESTALE && !c->broken);
        conn_unlock(c);
        if (r == 0 && ret_n_freed)
                *ret_n_freed = n_freed;
        return r;
}
