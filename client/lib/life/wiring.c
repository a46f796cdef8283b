/* Which parts of the library learn of events below them, and in which order. Parts don't call
 * higher layers by name: their events come here. */
#include "client/lib/pages/stream.h"
#include "client/lib/pages/window.h"
#include "client/lib/calls/op.h"
#include "client/lib/life/life-impl.h"
#include "client/lib/mapping/map.h"
#include "client/lib/objects/ns.h"
#include "client/lib/pages/sessions.h"
#include "client/lib/calls/fetch.h"
#include "client/lib/calls/flight.h"

/* ---- of a connection ---------------------------------------------------------------------------
 */

/* conn_side.look: takes completions that came beside the socket. */
static bool take_beside(void *data)
{
        struct kvl_conn *conn = data;
        bool completed = conn->flights.ring.header && flights_look(conn);

        return streams_look(conn) || completed;
}

/* conn_side.broken: ends requests beside the socket. */
static void end_beside(void *data, int code, const char *why)
{
        struct kvl_conn *conn = data;

        if (conn->flights.ring.header)
                flights_broken(conn, code, why);
        fetches_broken(conn, code, why);
        streams_broken(conn, code, why);
}

static const struct client_listeners listeners = {
        .device_broken = streams_break,
};

void client_wire(struct kvl_conn *conn)
{
        conn->listeners = &listeners;
        conn->conn->events.tell = events_tell;
        conn->conn->events.data = conn;
        conn->conn->side = (struct conn_side){
                .look = take_beside,
                .broken = end_beside,
                .away = restart_away,
                .resume = restart_resume,
                .back = restart_back,
                .data = conn,
        };
}

/* ---- of a namespace ----------------------------------------------------------------------------
 */

void ns_cancel_calls(struct kvl_ns *ns)
{
        windows_cancel(ns);
        streams_cancel(ns);
        ops_cancel(ns);
}

void ns_wait_calls(struct kvl_ns *ns)
{
        ns_wait_callbacks(ns);
        /* A release that a callback put on a stream belongs to no call. */
        streams_cancel(ns);
}

void ns_forget(struct kvl_ns *ns)
{
        conn_forget_cookie(conn_of(ns), ns);
        flights_forget_ns(ns);
        fetches_forget_ns(ns);
        ns_forget_recalls(ns);
        sessions_free(ns);
        windows_free(ns);
}
