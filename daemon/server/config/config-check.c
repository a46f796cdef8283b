#include "daemon/server/config/config.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "base/parse.h"
#include "daemon/server/config/remote-config.h"
#include "daemon/server/config/tenant-check.h"
#include "gpu/device.h"

#define SENTENCE_MAX 704

struct checker {
        const struct config *config;
        config_check_fn fn;
        void *data;
};

KVL_PRINTF(3, 4) static void report_at(struct checker *r, struct origin o, const char *format, ...)
{
        char sentence[SENTENCE_MAX];
        va_list args;

        va_start(args, format);
        vsnprintf(sentence, sizeof(sentence), format, args);
        va_end(args);
        r->fn(r->data, o, sentence);
}

/* An earlier device with the same file; NULL: none. */
static const struct device_config *find_same_disk(
        const struct config *c, const struct device_config *d)
{
        for (const struct device_config *other = c->devices; other < d; other++)
                if (strcmp(other->disk, d->disk) == 0)
                        return other;
        return NULL;
}

static struct origin origin_of(const struct device_config *d, const char *key)
{
        return d->from.of[option_index(option_find(SECTION_DEVICE, key))];
}

static void check_disk(struct checker *r, const struct device_config *d)
{
        const struct device_config *same = d->disk[0] ? find_same_disk(r->config, d) : NULL;
        char size[FORMAT_BYTES_MAX], extent[FORMAT_BYTES_MAX];

        if (d->disk[0] && d->disk_bytes == 0)
                report_at(r, origin_of(d, "disk"),
                        "[device %s] disk = %s has no size: say how large the file is by disk_size",
                        d->name, d->disk);
        if (!d->disk[0] && d->disk_bytes > 0)
                report_at(r, origin_of(d, "disk_size"),
                        "[device %s] disk_size is given, but no file: name it by disk, or leave disk_size out",
                        d->name);
        if (d->disk_bytes > 0 && config_disk_budget(d->disk_bytes) < d->extent_bytes)
                report_at(r, origin_of(d, "disk_size"),
                        "[device %s] disk_size = %s holds no extent set of %s beside its index: raise it to twice 'extent', or make 'extent' smaller",
                        d->name, format_bytes(d->disk_bytes, size),
                        format_bytes(d->extent_bytes, extent));
        if (same)
                report_at(r, origin_of(d, "disk"),
                        "[device %s] disk = %s is the file of [device %s] already: give each device its own",
                        d->name, d->disk, same->name);
}

/* Another use of the member: a device may have only one. NULL: none. */
static const char *find_twice(
        const struct checker *r, const struct device_config *d, const char *member)
{
        if (config_lists_device(r->config->daemon.devices, member))
                return "'devices' in [daemon]";
        for (size_t i = 0; i < r->config->n_devices; i++)
                if (&r->config->devices[i] != d &&
                        config_lists_device(r->config->devices[i].members, member))
                        return r->config->devices[i].name;
        return NULL;
}

/* 'all' leaves no GPU for another device. */
static void check_all(struct checker *r, const struct device_config *d)
{
        const char *devices = r->config->daemon.devices;

        for (size_t i = 0; i < r->config->n_devices; i++) {
                const struct device_config *other = &r->config->devices[i];

                if (other != d && other->members[0] &&
                        strncasecmp(other->members, "host", strlen("host")) != 0)
                        report_at(r, origin_of(d, "members"),
                                "[device %s] members = all takes the GPUs of [device %s], too: name those of each",
                                d->name, other->name);
        }
        if (strcasestr(devices, "GPU-") || strcasestr(devices, "MIG-"))
                report_at(r, origin_of(d, "members"),
                        "[device %s] members = all takes the GPUs that 'devices' in [daemon] lists, too: leave them out there, or name the members",
                        d->name);
}

static void check_members(struct checker *r, const struct device_config *d)
{
        char name[DEVICE_MEMBERS_TEXT + 1];
        unsigned n = 0, n_host = 0;
        const char *twice;
        size_t len;

        if (d->members[0] && device_is_name(d->name))
                report_at(r, origin_of(d, "members"),
                        "[device %s] has members, and the name of a device without: give the section another name, as [device tp2]",
                        d->name);
        if (strcmp(d->members, "all") == 0) {
                check_all(r, d);
                return;
        }
        for (const char *at = d->members; *(at += strspn(at, ", ")); at += len) {
                len = strcspn(at, ", ");
                snprintf(name, sizeof(name), "%.*s", (int)len, at);
                n++;
                n_host += host_is_name(name);
                twice = config_lists_device(at + len, name) ? d->name : find_twice(r, d, name);
                if (!device_is_name(name))
                        report_at(r, origin_of(d, "members"),
                                "[device %s] members: '%.64s' is no device: UUIDs of GPUs as nvidia-smi -L prints them, or 'all' alone",
                                d->name, name);
                else if (twice)
                        report_at(r, origin_of(d, "members"),
                                "[device %s] members: %s is in %s already: leave it out there",
                                d->name, name, twice);
        }
        if (d->members[0] && (n < 2 || n > DEVICE_MEMBERS_MAX))
                report_at(r, origin_of(d, "members"),
                        "[device %s] members: %u devices are named; 2 to %d can be spanned",
                        d->name, n, DEVICE_MEMBERS_MAX);
        if (n_host > 0 && n_host < n)
                report_at(r, origin_of(d, "members"),
                        "[device %s] members: GPUs and the host's memory aren't spanned together",
                        d->name);
}

/* A tier that holds nothing is a mistake. */
static void check_host_memory(struct checker *r, const struct device_config *d)
{
        char memory[FORMAT_BYTES_MAX], extent[FORMAT_BYTES_MAX];

        if (d->host_memory_bytes == 0 || d->host_memory_bytes >= d->extent_bytes)
                return;
        report_at(r, origin_of(d, "host_memory"),
                "[device %s] host_memory = %s holds no extent set of %s: raise it, set it to 0, or make 'extent' smaller",
                d->name, format_bytes(d->host_memory_bytes, memory),
                format_bytes(d->extent_bytes, extent));
}

static void check_remotes(struct checker *r)
{
        const struct config *c = r->config;

        for (size_t i = 0; i < c->n_remotes; i++) {
                const struct remote_config *m = &c->remotes[i];
                struct remote_settings settings;
                struct detail d = {""};
                const char *key;

                if (m->from.is_spoilt)
                        continue;
                if (remote_settings_read(m, &settings, &key, &d) < 0)
                        report_at(r,
                                key ? m->from.of[option_index(option_find(SECTION_REMOTE, key))]
                                    : m->from.section,
                                "[remote %s] %.600s", m->name, d.text);
        }
}

/* Reports a fault of a tenant's option. */
static void report_of_tenant(
        struct checker *r, const struct tenant_config *t, const char *key, const char *sentence)
{
        struct origin o = t->from.of[option_index(option_find(SECTION_TENANT, key))];

        report_at(r, o.file == ORIGIN_DEFAULT ? t->from.section : o, "[tenant %s] %.600s", t->name,
                sentence);
}

static void check_tenant_remote(struct checker *r, const struct tenant_config *t)
{
        struct exchange_tenant secret;
        struct detail d = {""};

        if (t->remote.name[0] && name_is_valid(t->remote.name, TENANT_NAME_MAX) &&
                !config_find_remote(r->config, t->remote.name))
                report_at(r, t->from.of[option_index(option_find(SECTION_TENANT, "remote"))],
                        "[tenant %s] remote = %s: there is no section [remote %s]", t->name,
                        t->remote.name, t->remote.name);
        if (tenant_secret_read(t, &secret, &d) < 0)
                report_of_tenant(r, t, "remote_secret", d.text);
        tenant_secret_wipe(&secret);
}

/* Checks one word of 'devices', and the words behind it. */
static void check_device_name(struct checker *r, const char *name, const char *behind)
{
        struct origin o =
                r->config->daemon.from.of[option_index(option_find(SECTION_DAEMON, "devices"))];
        const struct device_config *spanning;
        char shown[FORMAT_EXCERPT_MAX];

        if (config_lists_device(behind, name)) {
                report_at(r, o, "[daemon] devices: %s is there twice", name);
                return;
        }
        spanning = config_find_device(r->config, name);
        if (device_is_name(name) || (spanning && spanning->members[0]))
                return;
        format_excerpt(name, strlen(name), shown);
        report_at(r, o,
                "[daemon] devices: '%s' is no device: allowed are auto alone, or UUIDs of GPUs as "
                "nvidia-smi -L prints them, host, host-1, ..., and names of sections [device NAME] "
                "with 'members', separated by commas, without quotes or a comment behind",
                shown);
}

static void check_devices(struct checker *r)
{
        const char *list = r->config->daemon.devices;
        char name[CONFIG_DEVICES_TEXT + 1];
        size_t len;

        if (strcmp(list, "auto") == 0)
                return;
        for (const char *at = list; *(at += strspn(at, ", ")); at += len) {
                len = strcspn(at, ", ");
                snprintf(name, sizeof(name), "%.*s", (int)len, at);
                check_device_name(r, name, at + len);
        }
}

struct tenant_reporter {
        struct checker *checker;
        const struct tenant_config *tenant;
};

static void report_tenant_check(void *data, const char *key, const char *sentence)
{
        const struct tenant_reporter *t = data;

        report_of_tenant(t->checker, t->tenant, key, sentence);
}

static void check_tenant(struct checker *r, const struct tenant_config *t)
{
        char err[SENTENCE_MAX];

        if (config_check_socket_path(r->config->daemon.runtime_dir, t->name, err, sizeof(err)) < 0)
                report_at(r, t->from.section, "%s", err);
        if (t->from.is_spoilt)
                return;
        tenant_config_check_all(
                t, &r->config->daemon, report_tenant_check, &(struct tenant_reporter){r, t});
        check_tenant_remote(r, t);
}

void config_check_whole(const struct config *c, config_check_fn fn, void *data)
{
        struct checker checker = {c, fn, data}, *r = &checker;

        check_devices(r);
        for (size_t i = 0; i < c->n_devices; i++) {
                if (c->devices[i].from.is_spoilt)
                        continue;
                check_members(r, &c->devices[i]);
                check_host_memory(r, &c->devices[i]);
                check_disk(r, &c->devices[i]);
        }
        check_remotes(r);
        for (size_t i = 0; i < c->tenants.n; i++)
                check_tenant(r, &c->tenants.rows[i]);
}
