/* Announcing keys that are about to be computed. */
#include <errno.h>

#include "client/lib/calls/op.h"
#include "client/lib/connection/error.h"
#include "client/lib/objects/args.h"

/* Stores the number announced in op->n_tokens. Returns what is wrong; NULL: nothing. */
static const char *take_announced(struct op *op, int code, const Kvlease__V1__AnnounceReply *m)
{
        if (m->n_announced > op->n_asked || (code == 0) != (m->n_announced == op->n_asked))
                return "kvleased answered with a wrong number of announced pages";
        op->n_tokens = m->n_announced;
        return NULL;
}

static void take_announce_reply(struct op *op, int code, const ProtobufCMessage *reply)
{
        op_end_reply(op,
                reply ? take_announced(op, code, (const Kvlease__V1__AnnounceReply *)reply) : NULL);
}

static const struct op_type type_announce = {.msg = MSG_ANNOUNCE, .reply = take_announce_reply};

int kvl_announce(struct kvl_ns *ns, const uint32_t *pages, const uint8_t *keys, uint32_t n_pages,
        uint32_t *ret_n_pages)
{
        Kvlease__V1__AnnounceRequest m = KVLEASE__V1__ANNOUNCE_REQUEST__INIT;
        struct op op;
        int r = args_check_pages(ns, pages, n_pages, KVL_MAX_PUBLISH_PAGES);

        if (ret_n_pages)
                *ret_n_pages = 0;
        if (r < 0)
                return r;
        if (!keys || !ret_n_pages)
                return error_set(-EINVAL, "keys and room for the number of pages are needed");
        m.ns_id = ns->id;
        m.n_pages = n_pages;
        m.pages = (uint32_t *)pages;
        m.keys.data = (uint8_t *)keys;
        m.keys.len = (size_t)n_pages * KVL_KEY_BYTES;
        op_init(&op, ns, &type_announce, NULL, n_pages);
        r = op_run(&op, &m.base, client_deadline(ns->conn));
        *ret_n_pages = (uint32_t)op.n_tokens;
        return r;
}
