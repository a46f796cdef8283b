#include "daemon/server/waits/imports.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/core/exchange/import.h"
#include "daemon/core/objects/group.h"
#include "daemon/server/objects/server.h"
#include "daemon/server/objects/serving.h"
#include "daemon/server/peers/answer.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/peers/pending.h"
#include "proto/kvlease.pb-c.h"
#include "proto/status.h"

struct peer_import {
        struct pending pending;
        struct attach *attach; /* borrowed; open as long as this is */
        struct import *import; /* borrowed */
};

static void drop_import(struct pending *w)
{
        struct peer_import *i = container_of(w, struct peer_import, pending);

        import_cancel(i->import);
        pending_remove(&i->pending);
        free(i);
}

static const struct pending_ops pending_ops = {PENDING_IMPORT, drop_import, NULL};

/* Of an import of which nothing came. */
static const char *why_nothing(int code)
{
        switch (code) {
        case KVL_STATUS_MISS:
                return "no other host has it, or not in time";
        case KVL_STATUS_PENDING:
                return "somebody on this host computes or imports it meanwhile";
        default:
                return "";
        }
}

static void on_imported(uint32_t n_pages, int code, void *data)
{
        Kvlease__V1__ImportReply reply = KVLEASE__V1__IMPORT_REPLY__INIT;
        struct peer_import *i = data;
        struct peer *p = i->pending.peer;
        const struct frame_header request = i->pending.request;
        struct server *s = p->server;
        const struct state_serving was = serving_begin(p);

        pending_remove(&i->pending);
        free(i);
        reply.n_pages = n_pages;
        answer_end(p, &request, &reply.base, code, why_nothing(code));
        serving_end(s, was);
}

int imports_ask(struct request *rq, struct attach *a)
{
        const Kvlease__V1__ImportRequest *m = rq->message;
        uint64_t now_nsec = server_now(rq->server);
        const struct import_request want = {
                .parent_key = m->parent_key.len > 0 ? m->parent_key.data : NULL,
                .keys = m->keys.data,
                .n_keys = (uint32_t)(m->keys.len / KEY_BYTES),
                .deadline_nsec = now_nsec + m->timeout_msec * NSEC_PER_MSEC,
        };
        size_t bytes = sizeof(struct peer_import) + m->keys.len;
        struct peer_import *i;
        int r;

        if (rq->peer->waits[PENDING_IMPORT].n >= IMPORTS_PER_PEER_MAX)
                return detail_set(&rq->detail, -EBUSY,
                        "%d IMPORTs of this connection aren't answered yet, the most there may be",
                        IMPORTS_PER_PEER_MAX);
        i = bytes > pending_left(rq->peer) ? NULL : calloc(1, sizeof(*i));
        if (!i)
                return detail_set(&rq->detail, -ENOMEM, "%s", PENDING_FULL_TEXT);
        i->attach = a;
        r = import_begin(a, &want, now_nsec, on_imported, i, &i->import, &rq->detail);
        if (r != 0) {
                free(i);
                return r;
        }
        pending_add(&i->pending, rq->peer, &pending_ops, bytes, rq->header, false);
        rq->is_deferred = true;
        return 0;
}

static struct peer_import *find_import(struct peer *p, uint32_t ns_id)
{
        list_for_each (w, &p->waits[PENDING_IMPORT].list, struct pending, link) {
                struct peer_import *i = container_of(w, struct peer_import, pending);

                if (ns_id == 0 || i->attach->id == ns_id)
                        return i;
        }
        return NULL;
}

void imports_cancel(struct peer *p, uint32_t ns_id)
{
        struct peer_import *i;

        while ((i = find_import(p, ns_id))) {
                const struct frame_header request = i->pending.request;

                drop_import(&i->pending);
                answer_refuse(
                        p, &request, -ENOENT, "the namespace was closed while the request waited");
        }
}
