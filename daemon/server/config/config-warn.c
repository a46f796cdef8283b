#include "daemon/server/config/config.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/macros.h"
#include "base/parse.h"
#include "daemon/server/config/tenant-check.h"
#include "gpu/device.h"

#define TOO_MUCH "memory and host_memory are %s of the host together, "

bool config_exceeds_host(uint64_t bytes, struct detail *d)
{
        const uint64_t total = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
        char text[FORMAT_BYTES_MAX], total_text[FORMAT_BYTES_MAX];

        if (bytes <= total)
                return false;
        detail_set(d, 0,
                TOO_MUCH "which has %s: leases will fail, or the machine will run out of memory",
                format_bytes(bytes, text), format_bytes(total, total_text));
        return true;
}

bool config_exceeds_cgroup(uint64_t bytes, struct detail *d)
{
        char text[FORMAT_BYTES_MAX], limit_text[FORMAT_BYTES_MAX], group[CGROUP_PATH_MAX];
        uint64_t limit;

        if (cgroup_memory_limit("", 0, group, &limit) < 0 || bytes <= limit)
                return false;
        detail_set(d, 0,
                TOO_MUCH
                "and the control group %.400s may have %s: the kernel kills kvleased once "
                "it needs more; lower them, or raise the group's limit (MemoryMax= of a service, the memory limit of a container)",
                format_bytes(bytes, text), group, format_bytes(limit, limit_text));
        return true;
}

/* ---- tenants --------------------------------------------------------------------------------- */

/* The device on which a tenant can hold an extent set most easily. */
struct nearest {
        const char *name; /* NULL: not known */
        uint64_t extent_bytes;
};

static void look_at_device(struct nearest *n, const char *name, uint64_t extent_bytes)
{
        if (extent_bytes < n->extent_bytes)
                *n = (struct nearest){name, extent_bytes};
}

static uint64_t extent_of(const struct config *c, const char *name)
{
        const struct device_config *d = config_find_device(c, name);
        struct device_config defaults = {0};

        options_set_defaults(SECTION_DEVICE, &defaults);
        return d ? d->extent_bytes : defaults.extent_bytes;
}

/* Finds the nearest device on which the tenant may be placed; extent_bytes UINT64_MAX: none.
 * `names` is scratch for the option 'devices', of which *ret borrows. */
static void find_nearest(const struct config *c, const struct tenant_config *t,
        char names[CONFIG_DEVICES_TEXT + 1], struct nearest *ret)
{
        enum place_policy policy = PLACE_PACK;
        const char *only = "";
        char *save = NULL;

        *ret = (struct nearest){NULL, UINT64_MAX};
        (void)placement_parse(t->placement, &policy, &only); /* checked */
        strcpy(names, c->daemon.devices);
        if (*only) {
                look_at_device(ret, only, extent_of(c, only));
        } else if (strcmp(names, "auto") != 0) {
                for (char *n = strtok_r(names, ", ", &save); n; n = strtok_r(NULL, ", ", &save))
                        look_at_device(ret, n, extent_of(c, n));
        } else {
                for (size_t i = 0; i < c->n_devices; i++)
                        look_at_device(ret, c->devices[i].name, c->devices[i].extent_bytes);
                look_at_device(ret, NULL, extent_of(c, ""));
        }
}

static void warn_small(
        const struct config *c, const struct tenant_config *t, config_report_fn report, void *data)
{
        char names[CONFIG_DEVICES_TEXT + 1];
        struct nearest nearest;
        struct detail d;

        find_nearest(c, t, names, &nearest);
        if (nearest.extent_bytes == UINT64_MAX)
                return;
        if (t->limit_bytes < nearest.extent_bytes)
                tenant_refuse_small(
                        t, SMALL_LIMIT, t->limit_bytes, nearest.name, nearest.extent_bytes, &d);
        else if (t->class == TENANT_PINNED && t->burst == BURST_NONE && t->reservation.bytes == 0 &&
                 !tenant_reserve_is_moved(t))
                tenant_refuse_small(t, SMALL_RESERVE, 0, nearest.name, nearest.extent_bytes, &d);
        else
                return;
        report(data, false, d.text);
}

static void warn_unused(const struct config *c, config_report_fn report, void *data)
{
        struct detail d;

        if (strcmp(c->daemon.devices, "auto") == 0)
                return;
        for (size_t i = 0; i < c->n_devices; i++) {
                if (config_lists_device(c->daemon.devices, c->devices[i].name))
                        continue;
                detail_set(&d, 0,
                        "[device %s] describes no device in use: 'devices' in [daemon] does not name it",
                        c->devices[i].name);
                report(data, false, d.text);
        }
}

void config_warn(const struct config *c, config_report_fn report, void *data)
{
        uint64_t sum = 0;
        struct detail d;

        for (size_t i = 0; i < c->n_devices; i++)
                sum += c->devices[i].host_memory_bytes +
                       (host_is_name(c->devices[i].name) ? c->devices[i].memory_bytes : 0);
        if (config_exceeds_host(sum, &d))
                report(data, false, d.text);
        warn_unused(c, report, data);
        for (size_t i = 0; i < c->tenants.n; i++)
                warn_small(c, &c->tenants.rows[i], report, data);
}
