/* Checks of the control groups of kvleased and of its clients. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cgroup.h"
#include "base/parse.h"
#include "client/ctl/ctl.h"
#include "client/ctl/doctor.h"

static const char *why_unread(int error)
{
        return error == -ESRCH   ? "its process is outside of kvleased's pid namespace"
               : error == -EXDEV ? "it is outside of this cgroup namespace"
                                 : strerror(-error);
}

/* ---- kvleased -------------------------------------------------------------------------------- */

static void find_limit(struct doctor *d, const char *group, uint64_t limit)
{
        uint64_t wanted = doctor_host_bytes(d);
        char wanted_text[FORMAT_BYTES_MAX], limit_text[FORMAT_BYTES_MAX];

        if (wanted <= limit) {
                doctor_find(d, DOCTOR_OK, "%s may have %s, %s may be leased", group,
                        format_bytes(limit, limit_text), format_bytes(wanted, wanted_text));
                return;
        }
        doctor_find(d, DOCTOR_WARNING, "%s may have %s, and kvleased may lease %s of the host's",
                group, format_bytes(limit, limit_text), format_bytes(wanted, wanted_text));
        doctor_advise(d,
                "systemctl edit %s: [Service] MemoryMax=infinity (of a container: its "
                "memory limit), or lease less: memory in [device host], host_memory",
                d->unit_name);
}

void doctor_check_cgroup(struct doctor *d)
{
        const char *unit = doctor_unit_setting(d, "MemoryMax");
        char group[CGROUP_PATH_MAX];
        uint64_t limit;
        int r = doctor_has_process(d) ? cgroup_memory_limit(d->root, d->daemon.pid, group, &limit)
                                      : -ESRCH;

        if (r == 0)
                find_limit(d, group, limit);
        else if (r == -ENODATA)
                doctor_find(d, DOCTOR_OK, "the control group of kvleased has no limit");
        else if (doctor_has_process(d))
                doctor_find(d, DOCTOR_UNCHECKED, "the control group of kvleased can't be read: %s",
                        why_unread(r));
        else if (unit && parse_bytes(unit, &limit) == 0)
                find_limit(d, d->unit_name, limit);
        else if (d->unit_path)
                doctor_find(d, DOCTOR_OK, "%s has no MemoryMax in bytes", d->unit_name);
        else
                doctor_find(d, DOCTOR_UNCHECKED, "kvleased isn't running here");
}

/* ---- clients --------------------------------------------------------------------------------- */

/* Returns the memory of host devices that is charged to the process that writes it first. */
static uint64_t bytes_of_writers(const struct doctor *d)
{
        uint64_t bytes = 0;

        for (size_t i = 0; i < d->daemon.n_devices; i++) {
                const struct figures_device *row = &d->daemon.devices[i];
                const char *value = doctor_setting(d, "device", row->name, "populate");
                bool is_populated = false;

                if (strcmp(row->tier, "device") != 0 || strcmp(row->backend, "host") != 0 ||
                        (value && parse_bool(value, &is_populated) == 0 && is_populated))
                        continue;
                bytes += row->budget_bytes;
        }
        return bytes;
}

static const struct figures_tenant *tenant_of(const struct doctor *d, const char *name)
{
        for (size_t i = 0; i < d->daemon.n_tenants; i++)
                if (strcmp(d->daemon.tenants[i].name, name) == 0)
                        return &d->daemon.tenants[i];
        return NULL;
}

/* Returns the memory of the client's tenant that may be charged to the client. */
static uint64_t most_of(const struct doctor *d, const struct figures_client *c)
{
        const struct figures_tenant *t = tenant_of(d, c->tenant);

        return t ? MIN(t->limit_bytes, bytes_of_writers(d)) : 0;
}

/* Whether an earlier client of the same tenant was reported for the group of client i. `reported`
 * has the group of each reported client, and "" for the others. */
static bool is_reported(const struct doctor *d, char (*reported)[CGROUP_PATH_MAX], size_t i)
{
        for (size_t k = 0; k < i; k++)
                if (strcmp(reported[k], reported[i]) == 0 &&
                        strcmp(d->daemon.clients[k].tenant, d->daemon.clients[i].tenant) == 0)
                        return true;
        return false;
}

/* Does cgroup_memory_limit(); -ESRCH: kvleased doesn't see the client's process. A client that may
 * hold nothing needs no limit: -ENODATA. */
static int limit_of(const struct doctor *d, const struct figures_client *c,
        char group[CGROUP_PATH_MAX], uint64_t *ret_limit)
{
        if (most_of(d, c) == 0)
                return -ENODATA;
        return c->pid > 0 ? cgroup_memory_limit(d->root, c->pid, group, ret_limit) : -ESRCH;
}

static void find_unread(struct doctor *d, const struct figures_client *first, size_t n, int error)
{
        doctor_find(d, DOCTOR_UNCHECKED,
                "clients whose control groups can't be read: %zu of %zu, the first: %s of tenant %s (pid %" PRIu64
                "): %s",
                n, d->daemon.n_clients, first->name, first->tenant, first->pid, why_unread(error));
        doctor_advise(d,
                "run kvleased in the host's pid namespace, and kvleasectl doctor as root on the host, outside of containers");
}

void doctor_check_client_cgroups(struct doctor *d)
{
        char(*reported)[CGROUP_PATH_MAX], group[CGROUP_PATH_MAX], most[FORMAT_BYTES_MAX],
                has[FORMAT_BYTES_MAX];
        size_t n_unread = 0, first_unread = 0;
        bool is_wrong = false;
        int error = 0;
        uint64_t limit;

        if (!doctor_has_process(d)) {
                doctor_find(d, DOCTOR_UNCHECKED, "kvleased isn't running here");
                return;
        }
        reported = need(calloc(d->daemon.n_clients + 1, sizeof(*reported)));
        for (size_t i = 0; i < d->daemon.n_clients; i++) {
                const struct figures_client *c = &d->daemon.clients[i];
                int r = limit_of(d, c, group, &limit);

                if (r < 0 && r != -ENODATA && n_unread++ == 0) {
                        first_unread = i;
                        error = r;
                }
                if (r < 0 || limit >= most_of(d, c))
                        continue;
                strcpy(reported[i], group);
                if (is_reported(d, reported, i))
                        continue;
                doctor_find(d, DOCTOR_WARNING,
                        "tenant %s may hold %s, which is charged to whoever writes it first, and the control group %s of its client %s (pid %" PRIu64
                        ") may have %s",
                        c->tenant, format_bytes(most_of(d, c), most), group, c->name, c->pid,
                        format_bytes(limit, has));
                doctor_advise(d,
                        "set populate = on in [device host], so that kvleased's own group is "
                        "charged; or give the group %s more than its processes need; or kvleasectl tenants set %s limit=...",
                        most, c->tenant);
                is_wrong = true;
        }
        free(reported);
        if (n_unread > 0)
                find_unread(d, &d->daemon.clients[first_unread], n_unread, error);
        else if (!is_wrong)
                doctor_find(d, DOCTOR_OK, "clients whose control groups have room: %zu",
                        d->daemon.n_clients);
}
