/* ADMIN_EVENTS: recent events, and the next ones. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "daemon/server/handlers/handlers.h"
#include "daemon/server/handlers/tier-figures.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/peers/followers.h"

#define WAIT_MAX_MSEC 60000 /* kvlease.proto */

/* Refuses an unknown kind, and lists the words of EVENT_KIND_TABLE. */
static int refuse_kind(struct request *rq, const char *name)
{
        int r = detail_set(&rq->detail, -EINVAL,
                "there is no kind of events '%.32s': there are"
#define X(id, its_name, ...) " " its_name
                EVENT_KIND_TABLE(X)
#undef X
                        ,
                name);

        return r;
}

static int read_query(
        struct request *rq, const Kvlease__V1__AdminEventsRequest *m, struct event_query *ret)
{
        uint64_t now = server_now(rq->server), since = m->since_msec;

        *ret = (struct event_query){.after = m->after};
        for (size_t i = 0; i < m->n_kinds; i++) {
                enum event_kind kind = event_log_find_kind(m->kinds[i]);

                if (kind == EVENT_KINDS)
                        return refuse_kind(rq, m->kinds[i]);
                ret->filter.kinds |= UINT32_C(1) << kind;
        }
        if (strlen(m->tenant) >= sizeof(ret->tenant) || strlen(m->ns) >= sizeof(ret->ns))
                return detail_set(&rq->detail, -EINVAL,
                        "names of tenants have at most %d bytes, of namespaces %d", TENANT_NAME_MAX,
                        NS_NAME_MAX);
        strcpy(ret->tenant, m->tenant);
        strcpy(ret->ns, m->ns);
        ret->filter.tenant = ret->tenant;
        ret->filter.ns = ret->ns;
        if (since > 0 && since < now / NSEC_PER_MSEC)
                ret->filter.since_nsec = now - since * NSEC_PER_MSEC;
        if (m->last > 0 && m->after > 0)
                return detail_set(&rq->detail, -EINVAL, "'after' and 'last' exclude each other");
        return 0;
}

int handle_ADMIN_EVENTS(struct request *rq)
{
        const Kvlease__V1__AdminEventsRequest *m = rq->message;
        struct server *s = rq->server;
        struct event_log *c = &s->store.event_log;
        struct event_query q;
        int r = read_query(rq, m, &q);

        if (r < 0)
                return r;
        if (m->wait_msec > WAIT_MAX_MSEC)
                return detail_set(&rq->detail, -EINVAL,
                        "wait_msec is %" PRIu32 ": at most %d is allowed", m->wait_msec,
                        WAIT_MAX_MSEC);
        /* A request that waits gets whole seconds; one that doesn't gets all until now. */
        event_log_flush(c, server_now(s), m->wait_msec == 0);
        if (m->last > 0)
                q.after = event_log_before_last(c, &q.filter, m->last);
        if (m->wait_msec > 0 && m->after <= c->last && !event_log_next(c, &q.filter, q.after))
                return follower_add(rq, &q, m->wait_msec * NSEC_PER_MSEC);
        return events_fill(s, &q, rq->reply);
}
