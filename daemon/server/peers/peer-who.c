/* A peer's identity for people, its rights, and its entries in the event log. */
#include <stdio.h>

#include "daemon/core/clients/member.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/tenancy.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/peers/access.h"

void peer_set_who(struct peer *p)
{
        if (p->tenancy)
                snprintf(p->identity.who, sizeof(p->identity.who), "process %d%s%s%s",
                        (int)p->identity.pid, p->identity.name[0] ? " (" : "", p->identity.name,
                        p->identity.name[0] ? ")" : "");
        else
                snprintf(p->identity.who, sizeof(p->identity.who), "uid %u",
                        (unsigned)p->identity.uid);
}

static const char *end_reason(const struct peer *p)
{
        if (p->muted || p->doomed)
                return "broke the protocol";
        if (p->resumption.adopted)
                return "did not come back";
        if (peer_is_waiting(p) || (p->conn.pidfd >= 0 && creds_pidfd_exited(p->conn.pidfd)))
                return "exited";
        return "hung up";
}

void peer_note_end(struct peer *p, const char *why)
{
        server_note(p->server, &(struct event_note){.kind = EVENT_CLIENT,
                                       .tenant = p->tenancy->config.name,
                                       .by = p->identity.who,
                                       .reason = why ? why : end_reason(p)});
}

void peer_note_violation(struct peer *p, const char *rule)
{
        server_note(p->server, &(struct event_note){.kind = EVENT_VIOLATION,
                                       .tenant = p->tenancy ? p->tenancy->config.name : NULL,
                                       .by = p->identity.who,
                                       .reason = rule});
}

void peer_update_rights(struct peer *p)
{
        const struct tenant_config *config = p->tenancy ? &p->tenancy->config : NULL;
        struct creds c = {0};
        bool may = true;

        if (!config || !p->member)
                return;
        if (access_has_publishers(config)) {
                may = p->conn.fd >= 0 && creds_get(p->conn.fd, &c) == 0 &&
                      access_may_publish(config, &c);
                creds_deinit(&c);
        }
        if (may == p->member->read_only)
                member_set_read_only(p->member, !may);
}
