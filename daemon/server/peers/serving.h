/*
 * Marks the peer that is being served. If the daemon crashes between the marks, the next one knows
 * which client was served (daemon/core/state/suspect.h). Loop thread only.
 */
#ifndef KVL_SERVER_SERVING_H
#define KVL_SERVER_SERVING_H

#include "daemon/core/state/tenant.h"
#include "daemon/core/state/suspect.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/peers/server.h"

/* Work from here to serving_end() is done for the peer. */
static inline struct state_serving serving_begin(const struct peer *p)
{
        const struct tenant *t = p->tenancy ? p->tenancy->tenant : NULL;

        return suspect_serve(
                &p->server->store, t ? t->mark : 0, t && p->member ? p->member->id : 0);
}

static inline void serving_end(struct server *s, struct state_serving was)
{
        suspect_serve_end(&s->store, was);
}

#endif
