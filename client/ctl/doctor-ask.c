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

/* An array of copied rows, one behind the other. */
struct copies {
        const struct figure_table *table;
        void **rows; /* owned; its texts, too */
        size_t *n;
};

static void copy_row(const void *row, void *data)
{
        const struct copies *c = data;
        size_t size = c->table->size;
        char *copy;

        *c->rows = need(realloc(*c->rows, (*c->n + 1) * size));
        copy = (char *)*c->rows + (*c->n)++ * size;
        memcpy(copy, row, size);
        for (size_t i = 0; i < c->table->n_figures; i++) {
                char **text = (char **)(void *)(copy + c->table->figures[i].offset);

                if (c->table->figures[i].is_text && *text)
                        *text = copy_text(*text);
        }
}

static int ask_status(struct doctor *d, struct admin *admin)
{
        struct doctor_daemon *to = &d->daemon;
        const struct figures_status *s;
        struct copies remotes = {&figures_table_remote, (void **)&to->remotes, &to->n_remotes};
        int r = admin_status(admin, &s);

        if (r != CTL_OK)
                return r;
        to->pid = s->pid;
        to->is_here = is_here(d, s->pid, s->pid_namespace);
        to->uptime_sec = s->uptime_sec;
        to->open_files_needed = s->open_files_needed;
        to->open_files_max = s->open_files_max;
        to->kept_fds = (uint32_t)s->kept_fds;
        to->kept_max = (uint32_t)s->kept_max;
        to->kept_needed = (uint32_t)MIN(s->kept_needed, (uint64_t)UINT32_MAX);
        to->draining = s->draining;
        to->version = copy_text(s->daemon_version);
        to->segments = copy_text(s->segments);
        to->config_file = copy_text(s->config_file);
        to->state_dir = copy_text(s->state_dir);
        to->no_events = copy_text(s->no_events);
        for (size_t i = 0; i < s->n_remotes; i++)
                copy_row(&s->remotes[i], &remotes);
        return CTL_OK;
}

static int ask_rows(struct admin *admin, const struct noun *noun, void **rows, size_t *n)
{
        struct copies c = {noun->figures, rows, n};

        return admin_each(admin, noun, NULL, copy_row, &c);
}

static void free_rows(const struct figure_table *t, void *rows, size_t n)
{
        for (size_t i = 0; i < n * t->n_figures; i++) {
                const struct figure *f = &t->figures[i % t->n_figures];

                if (f->is_text)
                        free(*(char **)(void *)((char *)rows + i / t->n_figures * t->size +
                                                f->offset));
        }
        free(rows);
}

static int ask_all(struct doctor *d, const char *path)
{
        struct doctor_daemon *to = &d->daemon;
        struct admin *admin = NULL;
        int r = admin_open(path, &admin);

        if (r == CTL_OK)
                r = ask_status(d, admin);
        if (r == CTL_OK)
                r = ask_rows(admin, &noun_devices, (void **)&to->devices, &to->n_devices);
        if (r == CTL_OK)
                r = ask_rows(admin, &noun_tenants, (void **)&to->tenants, &to->n_tenants);
        if (r == CTL_OK)
                r = ask_rows(admin, &noun_clients, (void **)&to->clients, &to->n_clients);
        if (r == CTL_OK)
                r = ask_rows(admin, &noun_exchanges, (void **)&to->exchanges, &to->n_exchanges);
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
        free_rows(&figures_table_device, daemon->devices, daemon->n_devices);
        free_rows(&figures_table_tenant, daemon->tenants, daemon->n_tenants);
        free_rows(&figures_table_client, daemon->clients, daemon->n_clients);
        free_rows(&figures_table_exchange, daemon->exchanges, daemon->n_exchanges);
        free_rows(&figures_table_remote, daemon->remotes, daemon->n_remotes);
        free(daemon->why);
        free(daemon->version);
        free(daemon->segments);
        free(daemon->config_file);
        free(daemon->state_dir);
        free(daemon->no_events);
}
