/* Finding pages: in shared memory (fast.h) if the namespace is shared, else over the socket. */
#include "client/lib/pages/lookup.h"

#include <errno.h>

#include "base/macros.h"
#include "base/probe.h"
#include "client/lib/calls/give-back.h"
#include "client/lib/calls/op.h"
#include "client/lib/connection/error.h"
#include "client/lib/objects/args.h"
#include "client/lib/calls/fetch.h"
#include "client/lib/calls/flight.h"

/* ---- lookup ------------------------------------------------------------------------------------
 */

/* Returns what is wrong with a reply whose pages are right; NULL: nothing. */
static const char *take_tokens(struct op *op, const Kvlease__V1__LookupReply *m)
{
        op->n_tokens = m->tokens;
        if (m->n_page_tokens == m->n_pages)
                op->fetch.page_tokens = m->page_tokens;
        if (op->n_tokens > (uint64_t)m->n_pages * op->ns->info.page_tokens)
                return "kvleased answered with more tokens than fit the pages";
        return NULL;
}

static void take_lookup_reply(struct op *op, int code, const ProtobufCMessage *reply)
{
        const op_pages_reply *m = (const op_pages_reply *)reply;
        const char *wrong = m ? op_check_pages(op, m, is_found_right(op, code, m->n_pages)) : NULL;

        if (m && !wrong)
                wrong = take_tokens(op, (const Kvlease__V1__LookupReply *)reply);
        if (m && !wrong)
                op_take_pages(op, m);
        op_end_reply(op, wrong);
}

/* Blocking calls probe in the public function. */
static void probe_looked_up(const struct op *op, int code)
{
        if (code == 0)
                PROBE(kvlease, hit, op->ns, op->n_pages, op->n_tokens, op->pages);
        else
                PROBE(kvlease, miss, op->ns, code);
}

static const struct op_type type_lookup = {
        .msg = MSG_LOOKUP,
        .populates = true,
        .reply = take_lookup_reply,
        .late = op_late_pins,
        .give_back = give_back_pins,
        .fetch = &fetch_steps,
        .probe = probe_looked_up,
};

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

/* Where a lookup puts its result; the caller's. */
struct found {
        uint32_t *pages, *n_pages;
        uint64_t *n_tokens;
};

/* Looks up batch after batch as long as each is found completely. Returns as kvl_lookup(). */
static int lookup_all(struct kvl_ns *ns, uint64_t request, const uint8_t *keys, uint32_t n_keys,
        bool stays, const struct found *ret)
{
        uint64_t deadline = client_deadline(ns->conn);
        bool goes_on = true;
        int r = 0;

        while (goes_on && *ret->n_pages < n_keys) {
                uint32_t done = *ret->n_pages;
                uint32_t n = MIN(n_keys - done, (uint32_t)KVL_MAX_LOOKUP_KEYS);
                Kvlease__V1__LookupRequest m =
                        lookup_message(ns, request, keys + (size_t)done * KVL_KEY_BYTES, n);
                struct op op;

                op_init(&op, ns, &type_lookup, ret->pages + done, n);
                op.fetch.stays = stays;
                r = op_run(&op, &m.base, deadline);
                goes_on = r == 0 && op.n_pages == n;
                if (r != 0)
                        break;
                *ret->n_pages += op.n_pages;
                *ret->n_tokens += op.n_tokens;
        }
        return r == KVL_MISS && *ret->n_pages > 0 ? 0 : r;
}

static int lookup_on_socket(struct kvl_ns *ns, uint64_t request, const uint8_t *keys,
        uint32_t n_keys, bool stays, const struct found *ret)
{
        uint32_t n_pages = 0;
        uint64_t n_tokens = 0;
        int r = lookup_all(
                ns, request, keys, n_keys, stays, &(struct found){ret->pages, &n_pages, &n_tokens});

        if (r != 0) {
                conn_lock(conn_of(ns));
                give_back_pins(ns, ret->pages, n_pages);
                conn_unlock(conn_of(ns));
                return r;
        }
        *ret->n_pages = n_pages;
        *ret->n_tokens = n_tokens;
        return 0;
}

/* Submits a TOUCH, unless the same one is unread in the ring, or there is no room. */
static inline void touch_deepest(struct kvl_ns *ns, uint64_t request, uint32_t n_keys,
        uint32_t page, const struct fast_hit *hit)
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

/* Returns 0, KVL_MISS or KVL_STALE; found pages may not be mapped yet. */
static inline int find_shared(struct kvl_ns *ns, uint64_t request, const uint8_t *keys,
        uint32_t n_keys, uint32_t *ret_pages, struct fast_hit *ret_hit)
{
        uint32_t n;

        if (fast_is_stale(&ns->fast))
                return KVL_STALE;
        fast_lookup(&ns->fast, keys, n_keys, ret_pages, ret_hit);
        n = ret_hit->n_pages;
        fast_count(&ns->fast, n_keys, n);
        touch_deepest(ns, request, n_keys, n > 0 ? ret_pages[n - 1] : KVL_PAGE_NONE, ret_hit);
        return n > 0 ? 0 : KVL_MISS;
}

/* Brings pages found in shared memory to the device, maps and populates them; `stays`: maps them in
 * their tier. Returns as kvl_lookup(). Not inlined, like lease_more(). */
static __attribute__((noinline)) int map_found(
        struct kvl_ns *ns, bool stays, uint32_t *pages, struct fast_hit *hit)
{
        struct op op;
        int r;

        op_init(&op, ns, &type_lookup, pages, hit->n_pages);
        op.n_pages = hit->n_pages;
        op.n_tokens = hit->n_tokens;
        op.fetch.stays = stays;
        r = op_run_mapping(&op, client_deadline(ns->conn));
        hit->n_pages = op.n_pages;
        hit->n_tokens = op.n_tokens;
        return r;
}

static inline int look_up_checked(struct kvl_ns *ns, uint64_t request, const uint8_t *keys,
        uint32_t n_keys, bool stays, const struct found *ret)
{
        struct fast_hit hit;
        int r;

        if (!fast_is_open(&ns->fast))
                return lookup_on_socket(ns, request, keys, n_keys, stays, ret);
        r = find_shared(ns, request, keys, n_keys, ret->pages, &hit);
        if (r != 0)
                return error_note(r, "");
        if (!ns_are_populated(ns, ret->pages, hit.n_pages))
                r = map_found(ns, stays, ret->pages, &hit);
        if (r != 0)
                return r;
        *ret->n_pages = hit.n_pages;
        *ret->n_tokens = hit.n_tokens;
        return 0;
}

static int look_up(struct kvl_ns *ns, uint64_t request, const uint8_t *keys, uint32_t n_keys,
        bool stays, const struct found *ret)
{
        int r = args_check_keys(ns, keys, n_keys, UINT32_MAX);

        if (r < 0)
                return r;
        if (!ret->pages || !ret->n_pages || !ret->n_tokens)
                return error_set(-EINVAL, "there is no room for what is found");
        PROBE(kvlease, lookup, ns, request, n_keys);
        r = look_up_checked(ns, request, keys, n_keys, stays, ret);
        if (r == 0)
                PROBE(kvlease, hit, ns, *ret->n_pages, *ret->n_tokens, ret->pages);
        else
                PROBE(kvlease, miss, ns, r);
        return r;
}

int kvl_lookup(struct kvl_ns *ns, uint64_t request, const uint8_t *keys, uint32_t n_keys,
        uint32_t *ret_pages, uint32_t *ret_n_pages, uint64_t *ret_n_tokens)
{
        return look_up(ns, request, keys, n_keys, false,
                &(struct found){ret_pages, ret_n_pages, ret_n_tokens});
}

int kvl_find(struct kvl_ns *ns, uint64_t request, const uint8_t *keys, uint32_t n_keys,
        uint32_t *ret_pages, uint32_t *ret_n_pages, uint64_t *ret_n_tokens)
{
        return look_up(ns, request, keys, n_keys, true,
                &(struct found){ret_pages, ret_n_pages, ret_n_tokens});
}
int kvl_lookup_start(struct kvl_ns *ns, uint64_t request, const uint8_t *keys, uint32_t n_keys,
        kvl_done_fn done, void *data)
{
        Kvlease__V1__LookupRequest m;
        struct fast_hit hit = {0};
        struct op *op;
        int r = args_check_keys(ns, keys, n_keys, KVL_MAX_LOOKUP_KEYS);

        if (r == 0)
                r = op_new(ns, &type_lookup, n_keys, done, data, &op);
        if (r < 0)
                return r;
        if (fast_is_open(&ns->fast)) {
                r = find_shared(ns, request, keys, n_keys, op->pages, &hit);
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
                n_keys, false, &(struct found){l->pages + l->n_pages, &n, &n_tokens});
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
        give_back_pins(l->ns, l->pages + n_pages, l->n_pages - n_pages);
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
        touch_deepest(ns, l->request, l->n_keys, last, &hit);
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
