/* Why keys hit or miss, as the daemon remembers it. */
#include <errno.h>
#include <stdio.h>

#include "base/macros.h"
#include "client/lib/error.h"
#include "client/lib/op.h"

#define MAX_KEYS 256 /* protocol */

struct explain_call {
        struct conn_call call;
        uint32_t n_keys;
        struct kvl_explanation *ret; /* borrowed, n_keys */
};

/* A newer daemon's states are passed on as they are. */
static void fill(const Kvlease__V1__Explanation *m, struct kvl_explanation *ret)
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
                fill(m->explanations[i], &e->ret[i]);
        conn_finish(c, call, code);
}

int kvl_explain(
        struct kvl_ns *ns, const uint8_t *keys, uint32_t n_keys, struct kvl_explanation *ret)
{
        Kvlease__V1__ExplainRequest m = KVLEASE__V1__EXPLAIN_REQUEST__INIT;
        struct explain_call e = {.call.on_reply = on_reply, .n_keys = n_keys, .ret = ret};
        int r = op_check_keys(ns, keys, n_keys, MAX_KEYS);

        if (r == 0 && !ret)
                r = error_set(-EINVAL, "there is no room for the explanations");
        if (r < 0)
                return r;
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
