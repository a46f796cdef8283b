#include "daemon/server/services/welcome.h"

#include <errno.h>
#include <string.h>

#include "base/fd.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/tenancy.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/peers/turns.h"
#include "daemon/server/peers/access.h"
#include "daemon/server/peers/descriptors.h"
#include "daemon/server/peers/endings.h"
#include "daemon/server/peers/listener.h"
#include "daemon/server/base/log.h"

/* Bound of connections on the monitor socket: monitors take none from clients. Not tuned. */
#define MONITORS_MAX 32

/* Connections of administrators beyond max_clients. Not tuned. */
#define ADMIN_EXTRA_CONNECTIONS 4

/* Finds the one tenant whose uids name the user, except share groups. Returns 0, or -EACCES with
 * the sentence. */
static int find_tenancy_of_uid(
        struct server *s, const struct creds *c, struct tenancy **ret_tenancy, struct detail *d)
{
        struct tenancy *found = NULL, *group = NULL;

        if (c->uid == UID_NOBODY)
                return detail_set(d, -EACCES,
                        "uid %d stands for every user unknown here: use the socket of a tenant",
                        UID_NOBODY);
        list_for_each (t, &s->tenancies.list, struct tenancy, link) {
                if (!id_list_has(&t->config.access.uids, c->uid))
                        continue;
                if (t->config.access.share_group) {
                        group = t;
                        continue;
                }
                if (found)
                        return detail_set(d, -EACCES,
                                "uid %u is listed by tenants %s and %s: use the socket of one of them",
                                (unsigned)c->uid, found->config.name, t->config.name);
                found = t;
        }
        if (!found && group)
                return detail_set(d, -EACCES,
                        "uid %u is listed by share group %s alone, which is never found here: use its own socket",
                        (unsigned)c->uid, group->config.name);
        if (!found)
                return detail_set(d, -EACCES,
                        "no tenant lists uid %u: use the socket of a tenant, or add it to one with kvleasectl tenants set NAME uids+=%u",
                        (unsigned)c->uid, (unsigned)c->uid);
        *ret_tenancy = found;
        return 0;
}

/* An administrator can connect even if clients use all connections. */
static uint32_t max_connections(const struct listener *l)
{
        return l->server->config.daemon.max_clients +
               (l->kind == LISTEN_ADMIN ? ADMIN_EXTRA_CONNECTIONS : 0);
}

/* Determines the peer's tenant, or the reason of its refusal. */
static int admit_connection(
        struct listener *l, const struct creds *c, struct tenancy **ret_tenancy, struct detail *d)
{
        struct server *s = l->server;
        struct tenancy *t = l->tenancy;
        int r;

        if (l->kind == LISTEN_ADMIN)
                r = access_admin(s->config.daemon.admin_group, c, d);
        else if (l->kind == LISTEN_MONITOR)
                r = access_monitor(&s->config.daemon, c, d);
        else if (l->kind == LISTEN_DEFAULT)
                r = find_tenancy_of_uid(s, c, &t, d);
        else
                r = access_tenant(&t->config, c, d);
        if (r < 0)
                return r;
        /* A resuming client comes on another connection; HELLO counts it. */
        if (s->peers.n_peers - s->peers.n_refused - s->peers.n_adopted >= max_connections(l))
                return detail_set(d, -EMFILE,
                        "kvleased has %u connections, the most it may have: raise max_clients in [daemon]",
                        s->peers.n_peers - s->peers.n_refused);
        if (t && t->n_peers - t->n_adopted >= t->config.max_clients)
                return detail_set(d, -EMFILE,
                        "tenant %s has %u connections, the most it may have: raise it with kvleasectl tenants set %s max_clients=...",
                        t->config.name, t->n_peers, t->config.name);
        if (l->kind == LISTEN_MONITOR && s->peers.n_monitors >= MONITORS_MAX)
                return detail_set(d, -EMFILE,
                        "%u connections read what kvleased tells, the most there may be: end one",
                        s->peers.n_monitors);
        r = t ? descriptors_admit_connection(t, false, d) : 0;
        if (r == 0 && t)
                r = turns_connect(t, d);
        if (r < 0)
                return r;
        *ret_tenancy = t;
        return 0;
}

/* Opens the process at the other end. -ESRCH: it has exited. */
static int get_process(int fd, pid_t pid, bool *ret_by_number)
{
        int pidfd = creds_peer_pidfd(fd);

        *ret_by_number = pidfd == -ENOPROTOOPT;
        return *ret_by_number ? creds_open_pidfd(pid) : pidfd;
}

void welcome_connection(struct listener *l, int fd)
{
        struct server *s = l->server;
        struct creds c = {0};
        struct detail d = {""};
        struct peer_origin origin = {.kind = l->kind, .listener_id = l->id};
        struct peer *unused;
        int pidfd, r;

        r = creds_get(fd, &c);
        pidfd = r < 0 ? r : get_process(fd, c.pid, &origin.by_number);
        if (pidfd < 0) {
                /* Usually the process has exited: there is no peer to answer. */
                if (pidfd == -EMFILE || pidfd == -ENFILE)
                        listener_say_no_descriptors();
                else if (pidfd != -ESRCH && log_first_of("peer-process"))
                        log_warning("cannot watch process %d of a new connection: %s", (int)c.pid,
                                strerror(-pidfd));
                creds_deinit(&c);
                endings_refuse(s, fd, l->id);
                return;
        }
        origin.pid = c.pid;
        origin.uid = c.uid;
        origin.refuse_code = admit_connection(l, &c, &origin.tenancy, &d);
        origin.refuse_detail = d.text;
        creds_deinit(&c);
        if (origin.refuse_code < 0 && s->peers.n_refused >= descriptors_most_refused(s)) {
                fd_close(pidfd);
                endings_refuse(s, fd, l->id);
                return;
        }
        r = peer_new(s, &origin, fd, pidfd, &unused);
        if (r < 0 && log_first_of("peer-new"))
                log_warning("cannot serve a new connection: %s", strerror(-r));
}
