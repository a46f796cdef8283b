/* ADMIN_RECALL. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "daemon/core/clients/attach.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/reclaim/recall.h"
#include "daemon/server/handlers/handlers.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/base/log.h"
#include "daemon/server/peers/recalls.h"
#include "proto/kvlease.pb-c.h"

/* The longest time of a recall, as for the option revoke_timeout. */
#define TIMEOUT_MAX_MSEC (3600u * 1000u)

static void log_recall(const struct request *rq, const struct tenant *t, uint32_t n)
{
        char uid[16];

        snprintf(uid, sizeof(uid), "%u", (unsigned)rq->peer->identity.uid);
        log_event(LEVEL_NOTICE, LOG_FIELDS({"TENANT", t->name}, {"PEER_UID", uid}),
                "%" PRIu32 " extent sets of tenant %s are recalled, asked for by uid %s", n,
                t->name, uid);
}

int handle_ADMIN_RECALL(struct request *rq)
{
        const Kvlease__V1__AdminRecallRequest *m = rq->message;
        Kvlease__V1__CountReply *reply = rq->reply;
        struct server *s = rq->server;
        struct tenant *t;
        struct ns *ns;
        uint32_t n;
        int r = request_tenant_ns(rq, m->tenant, m->ns, &t, &ns);

        if (r < 0)
                return r;
        if (m->timeout_msec > TIMEOUT_MAX_MSEC)
                return detail_set(&rq->detail, -EINVAL,
                        "timeout_msec is %" PRIu32 ": at most an hour (%u) is allowed",
                        m->timeout_msec, TIMEOUT_MAX_MSEC);
        n = recall_sets(t, ns, m->bytes ? m->bytes : UINT64_MAX, m->timeout_msec * NSEC_PER_MSEC);
        if (n > 0)
                log_recall(rq, t, n);
        reply->count = n;
        /* Begin at once: a little unused memory is freed before the reply is sent. */
        if (recalls_turn(s))
                loop_kick(&s->loop);
        return 0;
}
