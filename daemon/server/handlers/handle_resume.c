/* RESUME_NS, RESUMED: reports of a resuming client after its HELLO. */
#include <errno.h>

#include "daemon/core/clients/client-record.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/life/resume.h"
#include "daemon/server/handlers/handlers.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/events.h"
#include "daemon/server/peers/peer.h"
#include "proto/kvlease.pb-c.h"

#define MAX_MAPPED_SETS 8192 /* in one message; kvlease.proto */

static int check_resuming(struct request *rq)
{
        if (rq->peer->resumption.resuming)
                return 0;
        return detail_set(&rq->detail, -EINVAL,
                "nothing is resumed on this connection, or RESUMED was said already");
}

int handle_RESUME_NS(struct request *rq)
{
        const Kvlease__V1__ResumeNsRequest *m = rq->message;
        int r = check_resuming(rq);
        struct attach *a;

        if (r < 0)
                return r;
        if (m->n_mapped_sets > MAX_MAPPED_SETS)
                return detail_set(&rq->detail, -EMSGSIZE,
                        "the request names %zu sets: at most %d are allowed in one",
                        m->n_mapped_sets, MAX_MAPPED_SETS);
        a = attach_find(rq->peer->member, m->ns_id);
        if (!a)
                return detail_set(&rq->detail, -ESTALE,
                        "the namespace with ns_id %u is gone: connect anew, as a new client",
                        m->ns_id);
        /* Else it would pin pages, and submit, in segments that are never read. */
        if (m->shares && (!pins_is_open(&a->share) || !ring_is_open(&rq->peer->ring))) {
                attach_lose_pins(a);
                return detail_set(&rq->detail, -ESTALE,
                        "the segments that the client shares for namespace %s weren't kept: connect anew, as a new client",
                        a->ns->name);
        }
        return attach_name_mapped(a, m->mapped_sets, (uint32_t)m->n_mapped_sets, &rq->detail);
}

/* Repeats notices that the client may have missed, and wakes it if it waits for completions. */
static void catch_up_client(struct peer *p)
{
        events_tell_again(p);
        if (ring_is_open(&p->ring) && ring_wakes_client(&p->ring))
                events_ring(p);
        peer_schedule(p);
}

int handle_RESUMED(struct request *rq)
{
        struct peer *p = rq->peer;
        int r = check_resuming(rq);

        if (r < 0)
                return r;
        client_token_commit(p->member);
        member_resumed(p->member);
        p->resumption.resuming = false;
        rq->after = catch_up_client;
        return 0;
}
