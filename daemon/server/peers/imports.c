#include "daemon/server/peers/imports.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/exchange/import.h"
#include "daemon/exchange/session-load.h"
#include "daemon/core/state/group.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/serving.h"
#include "daemon/server/peers/answer.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/peers/pending.h"
#include "proto/kvlease.pb-c.h"
#include "proto/status.h"

struct peer_import {
        struct pending pending;
        struct import *import;     /* borrowed; NULL: of a SESSION_LOAD, */
        struct session_load *load; /* likewise */
};

static void drop_import(struct pending *w)
{
        struct peer_import *i = container_of(w, struct peer_import, pending);

        if (i->import)
                import_cancel(i->import);
        else
                session_load_cancel(i->load);
        pending_remove(&i->pending);
        free(i);
}

static const struct pending_ops pending_ops = {PENDING_IMPORT, drop_import, NULL, NULL};

/* Ends the import and answers its request. */
static void answer(struct peer_import *i, ProtobufCMessage *reply, int code, const char *detail)
{
        struct peer *p = i->pending.peer;
        const struct frame_header request = i->pending.request;
        struct server *s = p->server;
        const struct state_serving was = serving_begin(p);

        pending_remove(&i->pending);
        free(i);
        answer_end(p, &request, reply, code, detail);
        serving_end(s, was);
}

/* The reason of an import that brought nothing. */
static const char *why_nothing(int code)
{
        switch (code) {
        case KVL_STATUS_MISS:
                return "no other host has it, or not in time";
        case KVL_STATUS_PENDING:
                return "a client of this host computes or imports it meanwhile";
        default:
                return "";
        }
}

static void on_imported(const struct import_outcome *outcome, void *data)
{
        Kvlease__V1__ImportReply reply = KVLEASE__V1__IMPORT_REPLY__INIT;

        reply.n_pages = outcome->n_pages;
        answer(data, &reply.base, outcome->code, why_nothing(outcome->code));
}

static void on_probed(const struct import_outcome *outcome, void *data)
{
        Kvlease__V1__ProbeHostsReply reply = KVLEASE__V1__PROBE_HOSTS_REPLY__INIT;

        reply.n_pages = outcome->n_pages;
        reply.would_load = outcome->would_load;
        answer(data, &reply.base, outcome->code, why_nothing(outcome->code));
}

static void on_loaded(uint32_t n_pages, int code, void *data)
{
        Kvlease__V1__SessionLoadReply reply = KVLEASE__V1__SESSION_LOAD_REPLY__INIT;

        reply.n_pages = n_pages;
        answer(data, &reply.base, code,
                code == KVL_STATUS_MISS ? "no other host has continued it, or not in time" : "");
}

/* Makes an import of so many bytes. NULL: *ret has the error, with the sentence. */
static struct peer_import *import_new(struct request *rq, size_t bytes, int *ret)
{
        struct peer_import *i;

        if (rq->peer->waits[PENDING_IMPORT].n >= IMPORTS_PER_PEER_MAX) {
                *ret = detail_set(&rq->detail, -EBUSY,
                        "%d IMPORTs, SESSION_LOADs and PROBE_HOSTS of this connection aren't answered yet, the most there may be",
                        IMPORTS_PER_PEER_MAX);
                return NULL;
        }
        i = bytes > pending_left(rq->peer) ? NULL : calloc(1, sizeof(*i));
        if (i)
                i->pending.attach = rq->attach;
        else
                *ret = detail_set(&rq->detail, -ENOMEM, "%s", PENDING_FULL_TEXT);
        return i;
}

/* Defers the request if its import was begun; r isn't 0: it wasn't. */
static int defer(struct request *rq, struct peer_import *i, size_t bytes, int r)
{
        if (r != 0) {
                free(i);
                return r;
        }
        pending_add(&i->pending, rq->peer, &pending_ops, bytes, rq->header, false);
        rq->is_deferred = true;
        return 0;
}

int imports_ask(struct request *rq, const struct import_request *want, uint32_t timeout_msec)
{
        uint64_t now_nsec = server_now(rq->server);
        size_t bytes = sizeof(struct peer_import) + (size_t)want->n_keys * KEY_BYTES;
        struct import_request within = *want;
        int r = 0;
        struct peer_import *i = import_new(rq, bytes, &r);

        if (!i)
                return r;
        within.deadline_nsec = now_nsec + timeout_msec * NSEC_PER_MSEC;
        return defer(rq, i, bytes,
                import_begin(rq->attach, &within, now_nsec,
                        within.only_probes ? on_probed : on_imported, i, &i->import, &rq->detail));
}

int imports_ask_session(struct request *rq)
{
        const Kvlease__V1__SessionLoadRequest *m = rq->message;
        uint64_t now_nsec = server_now(rq->server);
        size_t bytes = sizeof(struct peer_import) + m->id.len;
        int r = 0;
        struct peer_import *i = import_new(rq, bytes, &r);

        if (!i)
                return r;
        return defer(rq, i, bytes,
                session_load_begin(rq->attach,
                        &(struct session_load_request){m->id.data,
                                (uint32_t)MIN(m->id.len, (size_t)UINT32_MAX),
                                now_nsec + m->timeout_msec * NSEC_PER_MSEC, on_loaded, i},
                        now_nsec, &i->load, &rq->detail));
}
