/* Checks of the host's kernel and memory. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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
