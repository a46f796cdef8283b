/* The state that a restarted daemon must be told (conn.h, resume.c). All with the connection's
 * lock. */
#include <errno.h>

#include "base/macros.h"
#include "client/lib/life/life-impl.h"
#include "client/lib/mapping/map.h"
#include "client/lib/objects/ns.h"
#include "client/lib/objects/session.h"
#include "client/lib/calls/fetch.h"
#include "client/lib/calls/flight.h"
#include "gpu/device.h"

#define MAX_MAPPED_SETS 8192 /* of one RESUME_NS; protocol */

/* Memory from cudaipc lives as long as the daemon, whose end isn't known while it is away. */
static void set_void(struct kvl_ns *ns, bool is_void)
{
        if (ns->transport == TRANSPORT_CUDAIPC)
                atomic_store_explicit(&ns->fast.is_void, is_void, memory_order_relaxed);
}

/* The new daemon repeats recalls if it still wants the memory. */
void restart_away(void *data)
{
        struct kvl_conn *conn = data;

        list_for_each (ns, &conn->namespaces, struct kvl_ns, link) {
                ns_forget_recalls(ns);
                set_void(ns, true);
        }
}

static int tell_session(const struct kvl_session *session)
{
        Kvlease__V1__SessionOpenRequest m = KVLEASE__V1__SESSION_OPEN_REQUEST__INIT;

        m.ns_id = session->ns->id;
        m.id.data = (uint8_t *)session->id;
        m.id.len = session->id_bytes;
        m.must_exist = true;
        m.expire_sec = session->expire_sec;
        m.wanted = session->handle;
        return conn_tell(session->ns->conn->conn, MSG_SESSION_OPEN, &m.base);
}

/* Lists the mapped sets from `first` on, as many as fit one message. Returns where the next message
 * begins. */
static uint32_t list_mapped(
        const struct kvl_ns *ns, uint32_t first, Kvlease__V1__ResumeNsRequest *m, uint32_t *sets)
{
        m->ns_id = ns->id;
        m->shares = fast_is_open(&ns->fast);
        m->mapped_sets = sets;
        m->n_mapped_sets = 0;
        if (!ns->sets)
                return ns->n_sets;
        for (; first < ns->n_sets && m->n_mapped_sets < MAX_MAPPED_SETS; first++)
                if (ns_maps_some(ns, first))
                        sets[m->n_mapped_sets++] = first;
        return first;
}

static int tell_ns(const struct kvl_ns *ns)
{
        Kvlease__V1__ResumeNsRequest m = KVLEASE__V1__RESUME_NS_REQUEST__INIT;
        uint32_t sets[MAX_MAPPED_SETS], next = 0;
        int r = 0;

        list_for_each (session, &ns->sessions, struct kvl_session, link)
                if (r == 0)
                        r = tell_session(session);
        do {
                next = list_mapped(ns, next, &m, sets);
                if (r == 0)
                        r = conn_tell(ns->conn->conn, MSG_RESUME_NS, &m.base);
        } while (r == 0 && next < ns->n_sets);
        return r;
}

int restart_resume(void *data)
{
        struct kvl_conn *conn = data;
        int r = 0;

        if (conn->flights.ring.header)
                fetches_resume(conn);
        list_for_each (ns, &conn->namespaces, struct kvl_ns, link)
                if (r == 0)
                        r = tell_ns(ns);
        return r;
}

void restart_back(void *data)
{
        struct kvl_conn *conn = data;

        list_for_each (ns, &conn->namespaces, struct kvl_ns, link)
                set_void(ns, false);
        if (!conn->flights.ring.header)
                return;
        /* The REFILL that should have cleared the flag may be lost. */
        list_for_each (ns, &conn->namespaces, struct kvl_ns, link)
                if (fast_is_open(&ns->fast))
                        fast_return_refill(&ns->fast);
        /* Completions of the previous daemon. */
        flights_look(conn);
        fetches_back(conn);
        flights_back(conn);
}
