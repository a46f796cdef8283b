/* Asks a running kvleased, for kvleasectl doctor. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "client/ctl/admin.h"
#include "client/ctl/ctl.h"
#include "client/ctl/doctor.h"
#include "client/lib/connection/conn.h"
#include "client/lib/connection/error.h"
#include "proto/kvlease.pb-c.h"
#include "proto/msg.h"

#define CONNECT_SEC 5 /* not tuned: limit on waiting for the listener's queue */

static char *copy_text(const char *text)
{
        return need(strdup(text));
}

/* Whether the daemon's pid is one of root/proc. It counts in the daemon's pid namespace, which its
 * process shows. */
static bool is_here(const struct doctor *d, uint64_t pid, uint64_t pid_namespace)
{
        _cleanup_free_ char *path = doctor_path(d, "/proc/%" PRIu64 "/ns/pid", pid);
        _cleanup_free_ char *own = doctor_path(d, "/proc/self/ns/pid");
        struct stat st;

        if (stat(path, &st) == 0)
                return st.st_ino == pid_namespace;
        /* Another user's process: compares with the namespace of /proc. */
        return stat(own, &st) == 0 && st.st_ino == pid_namespace;
}

static int ask_status(struct doctor *d, struct admin *admin)
{
        Kvlease__V1__AdminStatusRequest request = KVLEASE__V1__ADMIN_STATUS_REQUEST__INIT;
        const Kvlease__V1__AdminStatusReply *s;
        struct doctor_daemon *to = &d->daemon;
        const ProtobufCMessage *reply;
        int r = admin_call(admin, MSG_ADMIN_STATUS, &request.base, &reply);

        if (r != CTL_OK)
                return r;
        s = (const Kvlease__V1__AdminStatusReply *)reply;
        to->pid = s->pid;
        to->is_here = is_here(d, s->pid, s->pid_namespace);
        to->uptime_sec = s->uptime_sec;
        to->open_files_needed = s->open_files_needed;
        to->open_files_max = s->open_files_max;
        to->kept_fds = s->kept_fds;
        to->kept_max = s->kept_max;
        to->kept_needed = (uint32_t)MIN(s->kept_needed, (uint64_t)UINT32_MAX);
        to->draining = s->draining;
        to->version = copy_text(s->daemon_version);
        to->segments = copy_text(s->segments);
        to->config_file = copy_text(s->config_file);
        to->state_dir = copy_text(s->state_dir);
        return CTL_OK;
}

static int ask_devices(struct doctor_daemon *to, struct admin *admin)
{
        Kvlease__V1__AdminListRequest request = KVLEASE__V1__ADMIN_LIST_REQUEST__INIT;
        const Kvlease__V1__AdminDevicesReply *m;
        const ProtobufCMessage *reply;

        do {
                int r = admin_call(admin, MSG_ADMIN_DEVICES, &request.base, &reply);

                if (r != CTL_OK)
                        return r;
                m = (const Kvlease__V1__AdminDevicesReply *)reply;
                to->devices = need(realloc(
                        to->devices, (to->n_devices + m->n_devices + 1) * sizeof(*to->devices)));
                for (size_t i = 0; i < m->n_devices; i++) {
                        const Kvlease__V1__AdminDevice *row = m->devices[i];

                        to->devices[to->n_devices++] = (struct doctor_device){copy_text(row->name),
                                copy_text(row->tier), copy_text(row->backend),
                                copy_text(row->transport), copy_text(row->state),
                                copy_text(row->why), row->budget_bytes, row->charged_bytes};
                }
                if (m->next <= request.after)
                        break; /* the last page, or one that repeats */
                request.after = m->next;
        } while (true);
        return CTL_OK;
}

static int ask_tenants(struct doctor_daemon *to, struct admin *admin)
{
        Kvlease__V1__AdminListRequest request = KVLEASE__V1__ADMIN_LIST_REQUEST__INIT;
        const Kvlease__V1__AdminTenantsReply *m;
        const ProtobufCMessage *reply;

        do {
                int r = admin_call(admin, MSG_ADMIN_TENANTS, &request.base, &reply);

                if (r != CTL_OK)
                        return r;
                m = (const Kvlease__V1__AdminTenantsReply *)reply;
                to->tenants = need(realloc(
                        to->tenants, (to->n_tenants + m->n_tenants + 1) * sizeof(*to->tenants)));
                for (size_t i = 0; i < m->n_tenants; i++) {
                        const Kvlease__V1__AdminTenant *row = m->tenants[i];

                        to->tenants[to->n_tenants++] = (struct doctor_tenant){copy_text(row->name),
                                copy_text(row->socket_path), copy_text(row->uids),
                                copy_text(row->gids), copy_text(row->group),
                                copy_text(row->no_room), row->limit_bytes};
                }
                if (m->next <= request.after)
                        break;
                request.after = m->next;
        } while (true);
        return CTL_OK;
}

static int ask_clients(struct doctor_daemon *to, struct admin *admin)
{
        Kvlease__V1__AdminListRequest request = KVLEASE__V1__ADMIN_LIST_REQUEST__INIT;
        const Kvlease__V1__AdminClientsReply *m;
        const ProtobufCMessage *reply;

        do {
                int r = admin_call(admin, MSG_ADMIN_CLIENTS, &request.base, &reply);

                if (r != CTL_OK)
                        return r;
                m = (const Kvlease__V1__AdminClientsReply *)reply;
                to->clients = need(realloc(
                        to->clients, (to->n_clients + m->n_clients + 1) * sizeof(*to->clients)));
                for (size_t i = 0; i < m->n_clients; i++) {
                        const Kvlease__V1__AdminClient *row = m->clients[i];

                        to->clients[to->n_clients++] = (struct doctor_client){
                                copy_text(row->tenant), copy_text(row->name), row->pid};
                }
                if (m->next <= request.after)
                        break;
                request.after = m->next;
        } while (true);
        return CTL_OK;
}

static int ask_exchanges(struct doctor_daemon *to, struct admin *admin)
{
        Kvlease__V1__AdminListRequest request = KVLEASE__V1__ADMIN_LIST_REQUEST__INIT;
        const Kvlease__V1__AdminExchangesReply *m;
        const ProtobufCMessage *reply;

        do {
                int r = admin_call(admin, MSG_ADMIN_EXCHANGES, &request.base, &reply);

                if (r != CTL_OK)
                        return r;
                m = (const Kvlease__V1__AdminExchangesReply *)reply;
                to->exchanges = need(realloc(to->exchanges,
                        (to->n_exchanges + m->n_exchanges + 1) * sizeof(*to->exchanges)));
                for (size_t i = 0; i < m->n_exchanges; i++) {
                        const Kvlease__V1__AdminExchange *row = m->exchanges[i];

                        to->exchanges[to->n_exchanges++] = (struct doctor_exchange){
                                copy_text(row->tenant), copy_text(row->remote), row->probed_pages,
                                row->found_pages};
                }
                if (m->next <= request.after)
                        break;
                request.after = m->next;
        } while (true);
        return CTL_OK;
}

static int ask_all(struct doctor *d, const char *path)
{
        struct admin *admin = NULL;
        int r = admin_open(path, &admin);

        if (r == CTL_OK)
                r = ask_status(d, admin);
        if (r == CTL_OK)
                r = ask_devices(&d->daemon, admin);
        if (r == CTL_OK)
                r = ask_tenants(&d->daemon, admin);
        if (r == CTL_OK)
                r = ask_clients(&d->daemon, admin);
        if (r == CTL_OK)
                r = ask_exchanges(&d->daemon, admin);
        admin_close(admin);
        return r;
}

/* Why the daemon can't be asked: by the errno of connecting. */
static enum doctor_daemon_state judge_connect(int r)
{
        switch (r) {
        case -ENOENT:
        case -ECONNREFUSED:
                return DAEMON_ABSENT;
        case -EACCES:
        case -EPERM:
                return DAEMON_FORBIDDEN;
        default:
                return DAEMON_BROKEN;
        }
}

void doctor_ask_daemon(struct doctor *d)
{
        _cleanup_free_ char *path = doctor_path(d, "%s", d->socket_path);
        uint64_t until = clock_now_nsec() + CONNECT_SEC * NSEC_PER_SEC;
        struct conn *conn;
        int r = admin_connect(path, until, &conn);

        if (r < 0) {
                d->daemon.state = judge_connect(r);
                d->daemon.why = copy_text(error_get());
                return;
        }
        conn_close(conn);
        fail_capture(&d->daemon.why);
        r = ask_all(d, path);
        fail_capture(NULL);
        d->daemon.state = r == CTL_OK        ? DAEMON_UP
                          : r == CTL_REFUSED ? DAEMON_FORBIDDEN
                                             : DAEMON_BROKEN;
}

void doctor_free_daemon(struct doctor_daemon *daemon)
{
        for (size_t i = 0; i < daemon->n_devices; i++) {
                free(daemon->devices[i].name);
                free(daemon->devices[i].tier);
                free(daemon->devices[i].backend);
                free(daemon->devices[i].transport);
                free(daemon->devices[i].state);
                free(daemon->devices[i].why);
        }
        for (size_t i = 0; i < daemon->n_tenants; i++) {
                free(daemon->tenants[i].name);
                free(daemon->tenants[i].socket_path);
                free(daemon->tenants[i].uids);
                free(daemon->tenants[i].gids);
                free(daemon->tenants[i].group);
                free(daemon->tenants[i].no_room);
        }
        for (size_t i = 0; i < daemon->n_clients; i++) {
                free(daemon->clients[i].tenant);
                free(daemon->clients[i].name);
        }
        for (size_t i = 0; i < daemon->n_exchanges; i++) {
                free(daemon->exchanges[i].tenant);
                free(daemon->exchanges[i].remote);
        }
        free(daemon->devices);
        free(daemon->tenants);
        free(daemon->clients);
        free(daemon->exchanges);
        free(daemon->why);
        free(daemon->version);
        free(daemon->segments);
        free(daemon->config_file);
        free(daemon->state_dir);
}
