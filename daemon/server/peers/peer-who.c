/* Who a peer is, for people, and what of it the chronicle is told. */
#include <stdio.h>

#include "daemon/server/peers/peer.h"
#include "daemon/server/server.h"
#include "daemon/server/tenants/tenants.h"
#include "daemon/server/waits/followers.h"

void peer_set_who(struct peer *p)
{
        if (p->tenancy)
                snprintf(p->who, sizeof(p->who), "process %d%s%s%s", (int)p->pid,
                        p->name[0] ? " (" : "", p->name, p->name[0] ? ")" : "");
        else
                snprintf(p->who, sizeof(p->who), "uid %u", (unsigned)p->uid);
}

static const char *end_reason(const struct peer *p)
{
        if (p->muted || p->doomed)
                return "broke the protocol";
        if (p->adopted)
                return "did not come back";
        if (peer_is_waiting(p) || (p->pidfd >= 0 && creds_pidfd_exited(p->pidfd)))
                return "exited";
        return "hung up";
}

void peer_note_end(struct peer *p, const char *why)
{
        server_note(p->server, &(struct chronicle_note){.kind = EVENT_CLIENT,
                                       .tenant = p->tenancy->config.name,
                                       .by = p->who,
                                       .reason = why ? why : end_reason(p)});
}

void peer_note_violation(struct peer *p, const char *rule)
{
        server_note(p->server, &(struct chronicle_note){.kind = EVENT_VIOLATION,
                                       .tenant = p->tenancy ? p->tenancy->config.name : NULL,
                                       .by = p->who,
                                       .reason = rule});
}
