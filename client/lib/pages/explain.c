/* Queries that use no pages: whether keys are cached, and why; how many pages leases would get. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>

#include "base/macros.h"
#include "client/lib/calls/op.h"
#include "client/lib/connection/error.h"
#include "client/lib/objects/args.h"

#define MAX_KEYS 256 /* of one EXPLAIN; protocol */

struct explain_call {
        struct conn_call call;
        uint32_t n_keys;
        struct kvl_explanation *ret; /* borrowed, n_keys */
};

/* States of newer daemons are passed on unchanged. */
static void fill_explanation(const Kvlease__V1__Explanation *m, struct kvl_explanation *ret)
{
        bool has_page = m->state == KVL_EXPLAIN_CACHED || m->state == KVL_EXPLAIN_PENDING;

        *ret = (struct kvl_explanation){
                .state = (enum kvl_explain_state)m->state,
                .page = has_page ? m->page : KVL_PAGE_NONE,
                .tier = m->tier,
                .age_sec = m->age_sec,
                .unused_sec = m->unused_sec,
                .client_id = m->client_id,
        };
        snprintf(ret->by, sizeof(ret->by), "%s", m->by);
}

static void on_reply(struct conn *c, struct conn_call *call, int code,
        const ProtobufCMessage *reply, struct frame *frame)
{
        struct explain_call *e = container_of(call, struct explain_call, call);
        const Kvlease__V1__ExplainReply *m = (const Kvlease__V1__ExplainReply *)reply;

        if (m && code == 0 && m->n_explanations != e->n_keys) {
                conn_finish_violated(c, call, "kvleased explained a wrong number of keys");
                return;
        }
        for (uint32_t i = 0; m && code == 0 && i < e->n_keys; i++)
                fill_explanation(m->explanations[i], &e->ret[i]);
        conn_finish(c, call, code);
}

/* Explains at most MAX_KEYS keys. */
static int explain_keys(
        struct kvl_ns *ns, const uint8_t *keys, uint32_t n_keys, struct kvl_explanation *ret)
{
        Kvlease__V1__ExplainRequest m = KVLEASE__V1__EXPLAIN_REQUEST__INIT;
        struct explain_call e = {.call.on_reply = on_reply, .n_keys = n_keys, .ret = ret};
        int r;

        m.ns_id = ns->id;
        m.keys.data = (uint8_t *)keys;
        m.keys.len = (size_t)n_keys * KVL_KEY_BYTES;
        conn_lock(conn_of(ns));
        r = conn_start(conn_of(ns), &e.call, MSG_EXPLAIN, &m.base);
        if (r == 0)
                r = conn_wait(conn_of(ns), &e.call, client_deadline(ns->conn));
        conn_unlock(conn_of(ns));
        return error_note(r, e.call.detail);
}

int kvl_explain(
        struct kvl_ns *ns, const uint8_t *keys, uint32_t n_keys, struct kvl_explanation *ret)
{
        int r = args_check_keys(ns, keys, n_keys, MAX_KEYS);

        if (r == 0 && !ret)
                r = error_set(-EINVAL, "there is no room for the explanations");
        return r < 0 ? r : explain_keys(ns, keys, n_keys, ret);
}

/* ---- leasable pages ----------------------------------------------------------------------------
 */

struct leasable_call {
        struct conn_call call;
        uint64_t n_pages;
};

static void on_leasable(struct conn *c, struct conn_call *call, int code,
        const ProtobufCMessage *reply, struct frame *frame)
{
        if (reply && code == 0)
                container_of(call, struct leasable_call, call)->n_pages =
                        ((const Kvlease__V1__CountReply *)reply)->count;
        conn_finish(c, call, code);
}

/* Returns 0 with *ret_n_pages, or the refusal. together > 0: asks whether so many can be had at
 * once. */
static int ask_leasable(struct kvl_ns *ns, uint32_t together, uint64_t *ret_n_pages)
{
        Kvlease__V1__LeasableRequest m = KVLEASE__V1__LEASABLE_REQUEST__INIT;
        struct leasable_call l = {.call.on_reply = on_leasable};
        int r;

        m.ns_id = ns->id;
        m.together = together;
        conn_lock(conn_of(ns));
        r = conn_start(conn_of(ns), &l.call, MSG_LEASABLE, &m.base);
        if (r == 0)
                r = conn_wait(conn_of(ns), &l.call, client_deadline(ns->conn));
        conn_unlock(conn_of(ns));
        *ret_n_pages = l.n_pages;
        return error_note(r, l.call.detail);
}

int kvl_leasable_pages(struct kvl_ns *ns)
{
        uint64_t asked;
        uint32_t n;
        int r;

        if (!ns)
                return error_set(-EINVAL, "a namespace is needed");
        r = client_check_process(ns->conn);
        if (r < 0)
                return r;
        if (fast_is_open(&ns->fast) && fast_leasable(&ns->fast, &n))
                return (int)MIN(n, (uint32_t)INT_MAX);
        r = ask_leasable(ns, 0, &asked);
        return r != 0 ? r : (int)MIN(asked, (uint64_t)INT_MAX);
}

int kvl_check_room(struct kvl_ns *ns, uint32_t n_pages)
{
        uint64_t unused; /* older daemons return a count for any question */
        int r;

        if (!ns || n_pages == 0)
                return error_set(-EINVAL, "a namespace and a number of pages are needed");
        r = client_check_process(ns->conn);
        return r < 0 ? r : ask_leasable(ns, n_pages, &unused);
}

/* ---- probe -------------------------------------------------------------------------------------
 */

/* Counts how many of at most MAX_KEYS keys are cached, from the first on; may be 0. tiers may be
 * NULL. Returns 0, or as kvl_probe(). */
typedef int probe_some_fn(struct kvl_ns *ns, const uint8_t *keys, uint32_t n_keys, uint8_t *tiers,
        uint32_t *ret_n_keys);

static int probe_shared(struct kvl_ns *ns, const uint8_t *keys, uint32_t n_keys, uint8_t *tiers,
        uint32_t *ret_n_keys)
{
        uint32_t pages[MAX_KEYS];

        if (fast_is_stale(&ns->fast))
                return error_note(KVL_STALE, "");
        *ret_n_keys = fast_peek(&ns->fast, keys, n_keys, pages);
        for (uint32_t i = 0; tiers && i < *ret_n_keys; i++)
                tiers[i] = (uint8_t)kvl_page_tier(ns, pages[i]);
        return 0;
}

static int probe_on_socket(struct kvl_ns *ns, const uint8_t *keys, uint32_t n_keys, uint8_t *tiers,
        uint32_t *ret_n_keys)
{
        struct kvl_explanation found[MAX_KEYS];
        uint32_t n = 0;
        int r = explain_keys(ns, keys, n_keys, found);

        if (r != 0)
                return r;
        for (; n < n_keys && found[n].state == KVL_EXPLAIN_CACHED; n++)
                if (tiers)
                        tiers[n] = (uint8_t)found[n].tier;
        *ret_n_keys = n;
        return 0;
}

int kvl_probe(struct kvl_ns *ns, const uint8_t *keys, uint32_t n_keys, uint8_t *ret_tiers,
        uint32_t *ret_n_keys)
{
        uint32_t n_found = 0, n, found;
        probe_some_fn *probe_some;
        int r = args_check_keys(ns, keys, n_keys, UINT32_MAX);

        if (r < 0)
                return r;
        if (!ret_n_keys)
                return error_set(-EINVAL, "there is no room for the number of keys");
        probe_some = fast_is_open(&ns->fast) ? probe_shared : probe_on_socket;
        do {
                n = MIN(n_keys - n_found, (uint32_t)MAX_KEYS);
                r = probe_some(ns, keys + (size_t)n_found * KVL_KEY_BYTES, n,
                        ret_tiers ? ret_tiers + n_found : NULL, &found);
                if (r != 0)
                        return r;
                n_found += found;
        } while (found == n && n_found < n_keys);
        if (n_found == 0)
                return error_note(KVL_MISS, "");
        *ret_n_keys = n_found;
        return 0;
}
