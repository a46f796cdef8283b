/*
 * Who was served when the daemon dies by a fault of its own (daemon/core/recovery/culprit.h): the
 * signals that say so, and marks around what is done for a peer. Loop thread only.
 */
#ifndef KVL_SERVER_CRASH_H
#define KVL_SERVER_CRASH_H

#include "daemon/core/objects/tenant.h"
#include "daemon/core/recovery/culprit.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/server.h"
#include "daemon/server/tenants/tenants.h"

/*
 * From now on SIGABRT, SIGBUS, SIGFPE, SIGILL and SIGSEGV of the calling thread are noted in the
 * root of the store's state; then they do what they did before. On a stack of their own: also where
 * the thread's is used up. The store stays where it is until crash_unwatch().
 */
void crash_watch(struct store *s);
void crash_unwatch(void);

/* What is done from here on is for the peer, until crash_serve_end(). */
static inline struct state_serving crash_serve(const struct peer *p)
{
        const struct tenant *t = p->tenancy ? p->tenancy->tenant : NULL;

        return culprit_serve(
                &p->server->store, t ? t->mark : 0, t && p->member ? p->member->id : 0);
}

static inline void crash_serve_end(struct server *s, struct state_serving was)
{
        culprit_serve_end(&s->store, was);
}

#endif
