/* FETCH over the socket: fetches pages from lower tiers, demotes them, or copies them. */
#include <errno.h>

#include "daemon/core/clients/grants.h"
#include "daemon/core/clients/pin.h"
#include "daemon/server/handlers/client-handlers.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/peers/fetches.h"
#include "proto/kvlease.pb-c.h"

int handle_FETCH(struct request *rq)
{
        const Kvlease__V1__FetchRequest *m = rq->message;
        struct attach *a = request_attach(rq, m->ns_id);
        int r;

        if (!a)
                return -ENOENT;
        if (m->n_pages == 0 || m->n_pages > FETCHES_MAX_PAGES)
                return detail_set(&rq->detail, m->n_pages == 0 ? -EINVAL : -EMSGSIZE,
                        "the request names %zu pages: 1 to %d are allowed", m->n_pages,
                        FETCHES_MAX_PAGES);
        if (m->n_targets != 0 && m->n_targets != m->n_pages)
                return detail_set(&rq->detail, -EINVAL,
                        "%zu pages and %zu targets: one each, or none", m->n_pages, m->n_targets);
        if (m->down && m->n_targets > 0)
                return detail_set(&rq->detail, -EINVAL,
                        "pages that go down the tiers are copied into no targets");
        if (m->n_targets == 0 && (m->first_plane > 0 || m->n_planes > 0))
                return detail_set(
                        &rq->detail, -EINVAL, "planes are named of copies, and no targets are");
        if (m->first_plane > 0 && m->n_planes == 0)
                return detail_set(&rq->detail, -EINVAL,
                        "planes from %u on, and none of them: n_planes is 0", m->first_plane);
        r = attach_check_version(a, &rq->detail);
        if (r == 0 && m->n_targets == 0)
                r = pin_check(a, (uint32_t)m->n_pages, &rq->detail);
        return r != 0 ? r : fetches_ask(rq, a);
}
