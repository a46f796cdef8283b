#include "daemon/server/peers/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/fd.h"
#include "daemon/server/base/creds.h"
#include "daemon/server/base/inbound.h"
#include "daemon/server/base/log.h"
#include "daemon/server/peers/access.h"
#include "daemon/server/peers/descriptors.h"
#include "daemon/server/peers/endings.h"
#include "daemon/server/peers/kept-sockets.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/turns.h"
#include "proto/sock.h"

/* ---- admission ------------------------------------------------------------------------------- */

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

/* Once. */
static void say_no_descriptors(void)
{
        if (log_first_of("no-descriptors"))
                log_message(LOG_NO_DESCRIPTORS, NULL,
                        "no file descriptors left: connections are closed; raise LimitNOFILE of kvleased");
}

/* An accepted connection becomes a peer of a tenant, or of administration, or is refused with the
 * reason. Takes fd. */
static void welcome_connection(struct listener *l, int fd)
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
                        say_no_descriptors();
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

/* Connections taken in one loop turn. Not tuned. */
#define ACCEPTS_PER_TURN 16

char *listener_tenant_path(const struct server *s, const char *tenant, char buf[LISTENER_PATH_MAX])
{
        snprintf(buf, LISTENER_PATH_MAX, "%s/t/%s/sock", s->config.daemon.runtime_dir, tenant);
        return buf;
}

static void set_paths(struct listener *l)
{
        const char *top = l->server->config.daemon.runtime_dir;

        switch (l->kind) {
        case LISTEN_TENANT:
                snprintf(l->dir, sizeof(l->dir), "%s/t/%s", top, l->tenancy->config.name);
                listener_tenant_path(l->server, l->tenancy->config.name, l->path);
                break;
        case LISTEN_DEFAULT:
                snprintf(l->path, sizeof(l->path), "%s/sock", top);
                break;
        case LISTEN_ADMIN:
                snprintf(l->path, sizeof(l->path), "%s/admin.sock", top);
                break;
        case LISTEN_MONITOR:
                snprintf(l->path, sizeof(l->path), "%s/monitor.sock", top);
                break;
        }
}

/* Gives `path` to a group by name. Returns false, with a warning, on failure. */
static bool give_to_group(const char *path, const char *group_name)
{
        gid_t gid;

        if (group_number(group_name, &gid) < 0) {
                log_warning(
                        "group %s does not exist: %s stays closed to it; make it with: groupadd --system %s",
                        group_name, path, group_name);
                return false;
        }
        if (lchown(path, (uid_t)-1, gid) < 0) {
                log_warning(
                        "cannot give %s to group %s: %s; run kvleased as root or as a member of the group",
                        path, group_name, strerror(errno));
                return false;
        }
        return true;
}

void listener_update_group(struct listener *l)
{
        const char *group_name = l->tenancy->config.access.group;

        if (l->inherited)
                return;
        if (*group_name)
                give_to_group(l->dir, group_name);
        else if (lchown(l->dir, (uid_t)-1, getegid()) < 0)
                log_warning("cannot give %s back to gid %u: %s", l->dir, (unsigned)getegid(),
                        strerror(errno));
}

static int make_tenant_dir(struct listener *l, struct detail *d)
{
        char why[DIR_WHY_BYTES];
        /* A directory left by an earlier daemon may have another mode or group. */
        int r = dir_make(l->dir, DIR_NO_LINK, 0750, why);

        if (r < 0)
                return detail_set(d, r, "cannot use the tenant's directory %s: %s", l->dir, why);
        /* A directory left by a crashed daemon is ours, too. */
        l->made_dir = r > 0 || l->server->rundir.after_crash;
        listener_update_group(l);
        return 0;
}

/* Tenant sockets are guarded by their directory, the default one by its rules. */
static unsigned socket_mode(const struct listener *l)
{
        return l->kind == LISTEN_ADMIN || l->kind == LISTEN_MONITOR ? 0600 : 0666;
}

static int explain_listen(int r, const struct listener *l, struct detail *d)
{
        const char *remedy = "";

        if (r == -EADDRINUSE)
                remedy = ": another process listens there, stop it";
        else if (r == -EEXIST)
                remedy = ": a file that is no socket is in the way, remove it";
        return detail_set(d, r, "cannot listen at %s: %s%s", l->path, strerror(-r), remedy);
}

/* Gives the socket to the group of administrators or of monitors. Does nothing if every user may
 * connect, or only root. */
static void open_to_group(struct listener *l)
{
        const struct daemon_config *c = &l->server->config.daemon;
        const char *name = l->kind == LISTEN_ADMIN     ? c->admin_group
                           : l->kind == LISTEN_MONITOR ? c->monitor_group
                                                       : "";
        gid_t gid;

        if (!*name)
                return;
        if (group_number(name, &gid) < 0)
                log_info(
                        "group %s does not exist: only root and uid %u may %s; groupadd --system %s lets others",
                        name, (unsigned)geteuid(),
                        l->kind == LISTEN_ADMIN ? "administer" : "monitor", name);
        else if (give_to_group(l->path, name) && chmod(l->path, 0660) < 0)
                log_warning("cannot open %s to group %s: %s", l->path, name, strerror(errno));
}

static int bind_socket(struct listener *l, struct detail *d)
{
        int r;

        if (l->kind == LISTEN_TENANT) {
                r = make_tenant_dir(l, d);
                if (r < 0)
                        return r;
        }
        l->fd = sock_listen(l->path, socket_mode(l));
        if (l->fd < 0)
                return explain_listen(l->fd, l, d);
        open_to_group(l);
        l->kept = kept_sockets_add(l->server, l->path, l->fd);
        return 0;
}

/* Takes over the previous process's socket of this path. Configured groups may have changed
 * since. */
static int take_kept(struct listener *l)
{
        int fd = kept_sockets_take(l->server, l->path, &l->kept);

        if (fd < 0)
                return fd;
        l->fd = fd;
        l->made_dir = l->kind == LISTEN_TENANT;
        if (l->kind == LISTEN_TENANT)
                listener_update_group(l);
        open_to_group(l);
        return 0;
}

/* Finds the socket made by systemd, else the stored one, else makes one. */
static int find_socket(struct listener *l, struct detail *d)
{
        static const char *const names[] = {[LISTEN_DEFAULT] = "default",
                [LISTEN_ADMIN] = "admin",
                [LISTEN_MONITOR] = "monitor"};
        char name[TENANT_NAME_MAX + 16];
        int fd;

        snprintf(name, sizeof(name), "%s%s", l->kind == LISTEN_TENANT ? "tenant-" : "",
                l->kind == LISTEN_TENANT ? l->tenancy->config.name : names[l->kind]);
        fd = activation_take(&l->server->activation, name, l->path, d);
        if (fd == -ENOENT)
                return take_kept(l) == 0 ? 0 : bind_socket(l, d);
        if (fd < 0)
                return fd;
        l->fd = fd;
        l->inherited = true;
        return 0;
}

static int take_socket(struct listener *l, struct detail *d)
{
        int r = find_socket(l, d);

        if (r < 0 || l->server->sockets.old_sockets)
                return r;
        r = inbound_listen(l->fd);
        return r < 0 ? detail_set(d, r, "cannot listen at %s: %s", l->path, strerror(-r)) : 0;
}

static void pause_listener(struct listener *l)
{
        l->paused = true;
        uv_poll_stop(&l->poll);
}

/* Refuses a connection without a free descriptor: the loop would spin if it weren't accepted. */
static void refuse_without_fd(struct listener *l)
{
        struct server *s = l->server;
        int fd;

        s->sockets.spare_fd = fd_close(s->sockets.spare_fd);
        fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0)
                endings_refuse(s, fd, l->id);
        s->sockets.spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        say_no_descriptors();
        /* Connections at the reaper use the descriptor: it is free when they end. */
        if (s->sockets.spare_fd < 0 && l->n_endings > 0)
                pause_listener(l);
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
        struct listener *l = container_of(poll, struct listener, poll);
        uint64_t then = clock_now_nsec();

        for (unsigned i = 0; i < ACCEPTS_PER_TURN && !l->paused; i++) {
                int fd;

                if (l->kind == LISTEN_ADMIN) {
                        admin_fds_open(l->server);
                } else if (!admin_fds_hold(l->server)) {
                        refuse_without_fd(l);
                        return;
                }
                fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

                if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
                        refuse_without_fd(l);
                        return;
                }
                if (fd < 0)
                        return;
                welcome_connection(l, fd);
                then = turn_watch_since(&l->server->turn_watch, "connect",
                        l->tenancy ? l->tenancy->config.name : NULL, then);
        }
}

/* Closes the socket. If another process has it, too, this isn't its last descriptor, and waiting
 * connections go on waiting. */
static void close_fd(struct listener *l)
{
        if (l->kept > 0 || l->inherited)
                fd_close(l->fd);
        else
                endings_close_listening(l->server, l->fd);
        l->fd = -1;
}

static void remove_files(struct listener *l)
{
        if (!l->inherited && l->fd >= 0)
                unlink(l->path);
        if (l->made_dir)
                rmdir(l->dir);
}

static struct listener *find_listener(const struct server *s, uint64_t id)
{
        struct listener *all[] = {s->sockets.default_listener, s->sockets.admin_listener,
                s->sockets.monitor_listener};

        for (size_t i = 0; i < ARRAY_SIZE(all); i++)
                if (all[i] && all[i]->id == id)
                        return all[i];
        list_for_each (t, &s->tenancies.list, struct tenancy, link)
                if (t->listener && t->listener->id == id)
                        return t->listener;
        return NULL;
}

void listener_note_ending(struct server *s, uint64_t id, bool begins)
{
        struct listener *l = find_listener(s, id);

        if (!l)
                return;
        l->n_endings += begins ? 1 : -1;
        if (l->n_endings >= ENDINGS_MAX && !l->paused) {
                pause_listener(l);
                if (log_first_of("endings"))
                        log_warning(
                                "%u connections at %s were sent descriptors whose closing takes "
                                "long: no client is accepted there until it is done; Linux 6.16 and later take none",
                                l->n_endings, l->path);
        } else if (l->n_endings < ENDINGS_MAX && l->paused) {
                l->paused = false;
                uv_poll_start(&l->poll, UV_READABLE, on_connection);
        }
}

int listener_open(struct server *s, enum listener_kind kind, struct tenancy *t,
        struct listener **ret_listener, struct detail *d)
{
        struct listener *l = calloc(1, sizeof(*l));
        int r;

        if (!l)
                return detail_set(d, -ENOMEM, "out of memory");
        *l = (struct listener){.server = s, .kind = kind, .tenancy = t, .fd = -1};
        l->id = ++s->sockets.last_listener_id;
        set_paths(l);
        r = take_socket(l, d);
        if (r == 0) {
                r = uv_poll_init(&s->loop.uv, &l->poll, l->fd);
                if (r < 0)
                        detail_set(d, r, "cannot watch %s: %s", l->path, uv_strerror(r));
        }
        if (r < 0) {
                if (l->kept > 0)
                        keep_drop(&s->store.keep, KEEP_LISTENER, l->kept);
                remove_files(l);
                close_fd(l);
                free(l);
                return r;
        }
        uv_poll_start(&l->poll, UV_READABLE, on_connection);
        *ret_listener = l;
        return 0;
}

static void on_closed(uv_handle_t *handle)
{
        free(container_of((uv_poll_t *)handle, struct listener, poll));
}

void listener_leave(struct listener *l)
{
        if (!l)
                return;
        if (l->kept == 0)
                remove_files(l);
        uv_close((uv_handle_t *)&l->poll, on_closed);
        close_fd(l);
}

static void on_refuse(uv_poll_t *poll, int status, int events)
{
        struct listener *l = container_of(poll, struct listener, poll);

        if (endings_empty(l->server, &l->fd, ACCEPTS_PER_TURN))
                return;
        /* Not before: the store must not close the last descriptor while connections wait. A socket
         * found after a restart is known to be shut down (kept-sockets.c). */
        if (l->kept > 0 && !l->server->life.leaving)
                keep_drop(&l->server->store.keep, KEEP_LISTENER, l->kept);
        uv_close((uv_handle_t *)&l->poll, on_closed);
        l->fd = fd_close(l->fd);
}

void listener_close(struct listener *l)
{
        if (!l)
                return;
        if (l->inherited) {
                listener_leave(l);
                return;
        }
        remove_files(l);
        l->tenancy = NULL;
        /* Its queue grows no more. */
        shutdown(l->fd, SHUT_RDWR);
        uv_poll_start(&l->poll, UV_READABLE, on_refuse);
}

bool admin_fds_hold(struct server *s)
{
        for (unsigned i = 0; i < SOCKETS_ADMIN_FDS; i++) {
                if (s->sockets.admin_fds[i] < 0)
                        s->sockets.admin_fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
                if (s->sockets.admin_fds[i] < 0)
                        return false;
        }
        return true;
}

void admin_fds_open(struct server *s)
{
        for (unsigned i = 0; i < SOCKETS_ADMIN_FDS; i++)
                s->sockets.admin_fds[i] = fd_close(s->sockets.admin_fds[i]);
}
