#include "client/lib/calls/give-back.h"

#include "base/macros.h"
#include "client/lib/objects/ns.h"

/* Sends the request by conn_start(), or by conn_notify() if call is NULL. Returns their result. */
static int send_request(
        struct kvl_ns *ns, struct conn_call *call, uint16_t type, const ProtobufCMessage *m)
{
        return call ? conn_start(conn_of(ns), call, type, m) : conn_notify(conn_of(ns), type, m);
}

int send_release(struct kvl_ns *ns, struct conn_call *call, const uint32_t *pages, uint32_t n_pages)
{
        Kvlease__V1__ReleaseRequest m = KVLEASE__V1__RELEASE_REQUEST__INIT;

        m.ns_id = ns->id;
        m.n_pages = n_pages;
        m.pages = (uint32_t *)pages;
        return send_request(ns, call, MSG_RELEASE, &m.base);
}

int send_free(struct kvl_ns *ns, struct conn_call *call, const uint32_t *pages, uint32_t n_pages)
{
        Kvlease__V1__FreeRequest m = KVLEASE__V1__FREE_REQUEST__INIT;

        m.ns_id = ns->id;
        m.n_pages = n_pages;
        m.pages = (uint32_t *)pages;
        return send_request(ns, call, MSG_FREE, &m.base);
}

typedef int send_fn(
        struct kvl_ns *ns, struct conn_call *call, const uint32_t *pages, uint32_t n_pages);

static void send_all(struct kvl_ns *ns, send_fn *send, const uint32_t *pages, uint32_t n_pages)
{
        int r = 0;

        for (uint32_t i = 0, n; i < n_pages && r == 0; i += n) {
                n = MIN(n_pages - i, (uint32_t)KVL_MAX_LEASE_PAGES);
                r = send(ns, NULL, pages + i, n);
        }
        /* The end of the connection frees them, so they don't leak. */
        if (r < 0)
                conn_break(conn_of(ns), r, "out of memory while giving pages back");
}

void give_back_pins(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages)
{
        uint32_t page;

        if (fast_is_open(&ns->fast))
                fast_release(&ns->fast, pages, n_pages, &page);
        else
                send_all(ns, send_release, pages, n_pages);
}

void give_back_leased(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages)
{
        send_all(ns, send_free, pages, n_pages);
}
