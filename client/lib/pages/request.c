/* Requests of the engine: their numbers, and their ends. */
#include <errno.h>

#include "client/lib/connection/error.h"
#include "client/lib/objects/args.h"
#include "client/lib/calls/flight.h"

uint64_t kvl_request_begin(struct kvl_ns *ns)
{
        return atomic_fetch_add_explicit(&ns->conn->n_requests, 1, memory_order_relaxed) + 1;
}

static int send_request_end(struct kvl_ns *ns, uint64_t request, uint32_t ending)
{
        Kvlease__V1__RequestEndRequest m = KVLEASE__V1__REQUEST_END_REQUEST__INIT;
        int r;

        m.ns_id = ns->id;
        m.request_id = request;
        m.ending = ending;
        conn_lock(conn_of(ns));
        r = conn_is_congested(conn_of(ns)) ? -EAGAIN
                                           : conn_notify(conn_of(ns), MSG_REQUEST_END, &m.base);
        conn_unlock(conn_of(ns));
        return r;
}

int kvl_request_end(struct kvl_ns *ns, uint64_t request)
{
        return kvl_request_end_as(ns, request, 0);
}

int kvl_request_end_as(struct kvl_ns *ns, uint64_t request, uint32_t ending)
{
        int r = args_check_ns(ns);

        if (r < 0 || request == 0)
                return r;
        r = fast_is_open(&ns->fast) ? flight_request_end(ns, request, ending)
                                    : send_request_end(ns, request, ending);
        return error_note(r, "");
}
