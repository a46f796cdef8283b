/* Checks of the host's kernel and memory, and of the control groups of kvleased and its clients. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cgroup.h"
#include "base/parse.h"
#include "client/ctl/ctl.h"
#include "client/ctl/doctor.h"

/* ---- kernel ---------------------------------------------------------------------------------- */

/* Returns 6001 for "6.1.0-18-amd64"; -1: unknown. */
static int kernel_number(const char *release)
{
        int major, minor;

        return release && sscanf(release, "%d.%d", &major, &minor) == 2 ? major * 1000 + minor : -1;
}

void doctor_check_kernel(struct doctor *d)
{
        _cleanup_free_ char *release = doctor_read(d, "/proc/sys/kernel/osrelease");
        int number = kernel_number(release);

        if (number < 0) {
                doctor_find(d, DOCTOR_UNCHECKED, "the kernel's version can't be read");
        } else if (number < 5003) {
                doctor_find(d, DOCTOR_ERROR, "Linux %s has no pidfd_open(), which came with 5.3",
                        release);
                doctor_advise(d, "run kvleased on Linux 5.12 or later (Debian 12 has 6.1)");
        } else if (number < 5012) {
                doctor_find(d, DOCTOR_WARNING,
                        "Linux %s can't mount memory read-only for clients, which came with 5.12",
                        release);
                doctor_advise(d, "run kvleased on Linux 5.12 or later (Debian 12 has 6.1)");
        } else {
                doctor_find(d, DOCTOR_OK, "Linux %s%s", release,
                        number < 6005 ? ": clients prove who they are by a challenge" : "");
        }
}

#define CLOCK "/sys/devices/system/clocksource/clocksource0/current_clocksource"

void doctor_check_clock(struct doctor *d)
{
        static const char *const slow[] = {"hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"};
        _cleanup_free_ char *source = doctor_read(d, CLOCK);

        if (!source) {
                doctor_find(d, DOCTOR_UNCHECKED, "the clock's source can't be read");
                return;
        }
        for (size_t i = 0; i < ARRAY_SIZE(slow); i++)
                if (strcmp(source, slow[i]) == 0) {
                        doctor_find(d, DOCTOR_WARNING,
                                "the clock's source is %s: reading it is a system call", source);
                        doctor_advise(d,
                                "echo tsc > %s; if it isn't there, dmesg says why the kernel doesn't trust it",
                                CLOCK);
                        return;
                }
        doctor_find(d, DOCTOR_OK, "the clock's source is %s", source);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Reads the bytes of a line of a file in kB. Returns false if unknown. */
static bool read_kib(const struct doctor *d, const char *path, const char *name, uint64_t *ret)
{
        _cleanup_free_ char *text = doctor_read(d, "%s", path);
        uint64_t kib;

        if (!text || !doctor_number(text, name, &kib))
                return false;
        *ret = kib * 1024;
        return true;
}

/* Returns the leased bytes, which aren't available any more. */
static uint64_t charged_bytes(const struct doctor *d)
{
        uint64_t bytes = 0;

        for (size_t i = 0; i < d->daemon.n_devices; i++) {
                const struct figures_device *row = &d->daemon.devices[i];

                if (strcmp(row->tier, "host") == 0 ||
                        (strcmp(row->tier, "device") == 0 && strcmp(row->backend, "host") == 0))
                        bytes += row->charged_bytes;
        }
        return bytes;
}

void doctor_check_memory(struct doctor *d)
{
        uint64_t wanted = doctor_host_bytes(d), total, available;
        char wanted_text[FORMAT_BYTES_MAX], has_text[FORMAT_BYTES_MAX];

        if (!read_kib(d, "/proc/meminfo", "MemTotal:", &total) ||
                !read_kib(d, "/proc/meminfo", "MemAvailable:", &available)) {
                doctor_find(d, DOCTOR_UNCHECKED, "the host's memory can't be read");
                return;
        }
        available = MIN(available + charged_bytes(d), total);
        if (wanted <= available) {
                doctor_find(d, DOCTOR_OK, "%s of the host's memory may be leased, %s can be had",
                        format_bytes(wanted, wanted_text), format_bytes(available, has_text));
                return;
        }
        doctor_find(d, wanted > total ? DOCTOR_ERROR : DOCTOR_WARNING,
                "%s of the host's memory may be leased, and the host has %s%s",
                format_bytes(wanted, wanted_text),
                format_bytes(wanted > total ? total : available, has_text),
                wanted > total ? "" : " for it beside the processes that run now");
        doctor_advise(d,
                "set memory in [device host], or host_memory, to less than that, and restart kvleased");
}

void doctor_check_overcommit(struct doctor *d)
{
        _cleanup_free_ char *mode = doctor_read(d, "/proc/sys/vm/overcommit_memory");
        uint64_t limit, used, wanted = doctor_host_bytes(d);
        char wanted_text[FORMAT_BYTES_MAX], left_text[FORMAT_BYTES_MAX];

        if (!mode) {
                doctor_find(d, DOCTOR_UNCHECKED, "vm.overcommit_memory can't be read");
                return;
        }
        if (strcmp(mode, "2") != 0) {
                doctor_find(d, DOCTOR_OK, "vm.overcommit_memory is %s", mode);
                return;
        }
        if (!read_kib(d, "/proc/meminfo", "CommitLimit:", &limit) ||
                !read_kib(d, "/proc/meminfo", "Committed_AS:", &used)) {
                doctor_find(d, DOCTOR_UNCHECKED, "committed memory can't be read");
                return;
        }
        used -= MIN(used, charged_bytes(d));
        if (limit >= used && limit - used >= wanted) {
                doctor_find(d, DOCTOR_OK, "vm.overcommit_memory is 2, and there is room for %s",
                        format_bytes(wanted, wanted_text));
                return;
        }
        doctor_find(d, DOCTOR_WARNING,
                "vm.overcommit_memory is 2 and leaves %s, and kvleased may lease %s",
                format_bytes(limit - MIN(used, limit), left_text),
                format_bytes(wanted, wanted_text));
        doctor_advise(d,
                "sysctl -w vm.overcommit_memory=0, or raise vm.overcommit_ratio; put it into /etc/sysctl.d");
}

static const char *why_unread(int error)
{
        return error == -ESRCH   ? "its process is outside of kvleased's pid namespace"
               : error == -EXDEV ? "it is outside of this cgroup namespace"
                                 : strerror(-error);
}

/* ---- control group of kvleased
 * -------------------------------------------------------------------------------- */

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

/* ---- control groups of clients
 * --------------------------------------------------------------------------------- */

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
        }
        free(reported);
        if (n_unread > 0)
                find_unread(d, &d->daemon.clients[first_unread], n_unread, error);
        else
                doctor_find_well(
                        d, "clients whose control groups have room: %zu", d->daemon.n_clients);
}

/* ---- huge pages ------------------------------------------------------------------------------ */

#define HUGE_PAGES "/sys/kernel/mm/transparent_hugepage/shmem_enabled"

/* Does kvleased make the huge pages of this line's device itself? */
static bool makes_huge_pages(const struct doctor *d, const struct doctor_line *line)
{
        const char *value = doctor_setting(d, "device", line->name, "populate");
        bool is_on = false;

        return strcmp(line->key, "huge_pages") == 0 && value && parse_bool(value, &is_on) == 0 &&
               is_on;
}

/* Whether any device asks the kernel for huge pages. */
static bool wants_huge_pages(const struct doctor *d)
{
        for (size_t i = 0; i < d->config.n; i++) {
                const struct doctor_line *line = &d->config.lines[i];
                bool is_on;

                if (strcmp(line->section, "device") == 0 &&
                        (strcmp(line->key, "host_huge_pages") == 0 ||
                                strcmp(line->key, "huge_pages") == 0) &&
                        parse_bool(line->value, &is_on) == 0 && is_on &&
                        !makes_huge_pages(d, line) &&
                        doctor_setting(d, "device", line->name, line->key) == line->value)
                        return true;
        }
        return false;
}

void doctor_check_huge_pages(struct doctor *d)
{
        _cleanup_free_ char *words = doctor_read(d, HUGE_PAGES);

        if (!wants_huge_pages(d)) {
                doctor_find(d, DOCTOR_OK, "the configuration asks the kernel for none");
                return;
        }
        if (words && !strstr(words, "[never]") && !strstr(words, "[deny]")) {
                doctor_find(d, DOCTOR_OK, "the kernel gives memory files huge pages: %s", words);
                return;
        }
        doctor_find(d, DOCTOR_WARNING, "huge pages are asked for, and this host gives none: %s",
                words ? words : "the kernel has no " HUGE_PAGES);
        if (words)
                doctor_advise(d,
                        "echo advise > %s, at each boot (a line 'w %s - - - - advise' in /etc/tmpfiles.d)",
                        HUGE_PAGES, HUGE_PAGES);
        else
                doctor_advise(d,
                        "set huge_pages and host_huge_pages = off, or run a kernel with CONFIG_TRANSPARENT_HUGEPAGE");
}
