#include "daemon/server/settings/config.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "base/fd.h"
#include "base/ini.h"
#include "base/macros.h"
#include "daemon/server/settings/tenant-attrs.h"

#define SENTENCE_MAX 1024

struct reader {
        struct config *config;
        const char *file;
        bool tenants_only;
        config_report_fn report;
        void *data;
        size_t n_errors;
        int fatal; /* -ENOMEM: reading on makes no sense */
        /* The section being read; base is NULL where it was refused and is skipped. */
        enum option_section section;
        char name[TENANT_NAME_MAX + 1];
        void *base;
        uint64_t *set;
        bool seen_daemon;
};

KVL_PRINTF(3, 4) static void report(struct reader *r, bool is_error, const char *format, ...)
{
        char sentence[SENTENCE_MAX];
        va_list args;

        va_start(args, format);
        vsnprintf(sentence, sizeof(sentence), format, args);
        va_end(args);
        r->n_errors += is_error;
        r->report(r->data, is_error, sentence);
}

void tenant_config_init(struct tenant_config *t, const char *name)
{
        assert(strlen(name) <= TENANT_NAME_MAX);
        memset(t, 0, sizeof(*t));
        strcpy(t->name, name);
        options_set_defaults(SECTION_TENANT, t);
}

struct tenant_config *tenant_table_find(const struct tenant_table *t, const char *name)
{
        for (size_t i = 0; i < t->n; i++)
                if (strcmp(t->rows[i].name, name) == 0)
                        return &t->rows[i];
        return NULL;
}

int tenant_table_add(struct tenant_table *t, const char *name, struct tenant_config **ret_row)
{
        struct tenant_config *rows;

        if (t->n == CONFIG_TENANTS_MAX)
                return -ENOSPC;
        rows = realloc(t->rows, (t->n + 1) * sizeof(*rows));
        if (!rows)
                return -ENOMEM;
        t->rows = rows;
        *ret_row = &rows[t->n++];
        tenant_config_init(*ret_row, name);
        return 0;
}

void tenant_table_remove(struct tenant_table *t, const char *name)
{
        struct tenant_config *row = tenant_table_find(t, name);

        if (!row)
                return;
        t->n--;
        memmove(row, row + 1, (size_t)(t->rows + t->n - row) * sizeof(*row));
}

int tenant_table_copy(const struct tenant_table *t, struct tenant_table *ret_copy)
{
        struct tenant_config *rows = malloc((t->n + 1) * sizeof(*rows));

        if (!rows)
                return -ENOMEM;
        if (t->n > 0)
                memcpy(rows, t->rows, t->n * sizeof(*rows));
        *ret_copy = (struct tenant_table){rows, t->n};
        return 0;
}

void tenant_table_deinit(struct tenant_table *t)
{
        free(t->rows);
        *t = (struct tenant_table){0};
}

uint64_t config_disk_budget(uint64_t file_bytes)
{
        return file_bytes / 16 * 15;
}

const struct device_config *config_find_device(const struct config *c, const char *name)
{
        for (size_t i = 0; i < c->n_devices; i++)
                if (strcmp(c->devices[i].name, name) == 0)
                        return &c->devices[i];
        return NULL;
}

static void config_init(struct config *c)
{
        memset(c, 0, sizeof(*c));
        options_set_defaults(SECTION_DAEMON, &c->daemon);
}

void config_deinit(struct config *c)
{
        tenant_table_deinit(&c->tenants);
}

static int section_of(const char *word, enum option_section *ret_section)
{
        for (unsigned s = 0; s < N_SECTIONS; s++)
                if (strcmp(option_section_name(s), word) == 0) {
                        *ret_section = s;
                        return 0;
                }
        return -ENOENT;
}

/* Points the reader at the tenant, made where it is missing. False: refused, err says why. */
static bool open_tenant(
        struct reader *r, const char *name, bool may_exist, char *err, size_t err_len)
{
        struct tenant_config *t = tenant_table_find(&r->config->tenants, name);
        int e;

        if (!name_is_valid(name, TENANT_NAME_MAX)) {
                snprintf(err, err_len,
                        "[tenant NAME] needs a name of 1 to %d characters of A-Z a-z 0-9 . _ -, "
                        "not "
                        "starting with '.' or '-'",
                        TENANT_NAME_MAX);
                return false;
        }
        if (t && !may_exist) {
                snprintf(
                        err, err_len, "[tenant %s] is there twice: put its options together", name);
                return false;
        }
        e = t ? 0 : tenant_table_add(&r->config->tenants, name, &t);
        if (e < 0) {
                snprintf(err, err_len, "[tenant %s]: %s", name,
                        e == -ENOSPC ? "too many tenants" : "out of memory");
                r->fatal = e == -ENOMEM ? e : r->fatal;
                return false;
        }
        r->base = t;
        r->set = &t->set;
        return true;
}

static bool open_device(
        struct reader *r, const char *name, bool may_exist, char *err, size_t err_len)
{
        struct config *c = r->config;
        struct device_config *d = (struct device_config *)config_find_device(c, name);

        if (!name_is_valid(name, TENANT_NAME_MAX)) {
                snprintf(err, err_len,
                        "[device NAME] needs the name of a device: 'host' or a GPU's UUID");
                return false;
        }
        if (d && !may_exist) {
                snprintf(
                        err, err_len, "[device %s] is there twice: put its options together", name);
                return false;
        }
        if (!d && c->n_devices == CONFIG_DEVICES_MAX) {
                snprintf(err, err_len, "[device %s]: at most %d devices", name, CONFIG_DEVICES_MAX);
                return false;
        }
        if (!d) {
                d = &c->devices[c->n_devices++];
                strcpy(d->name, name);
                options_set_defaults(SECTION_DEVICE, d);
        }
        r->base = d;
        r->set = &d->set;
        return true;
}

static bool open_daemon(
        struct reader *r, const char *name, bool may_exist, char *err, size_t err_len)
{
        if (*name || (r->seen_daemon && !may_exist)) {
                snprintf(err, err_len,
                        *name ? "[daemon] has no name"
                              : "[daemon] is there twice: put its options together");
                return false;
        }
        r->seen_daemon = true;
        r->base = &r->config->daemon;
        r->set = &r->config->daemon.set;
        return true;
}

/* Makes `word name` the section being read. False: refused, err says why, the section is skipped.
 */
static bool open_section(struct reader *r, const char *word, const char *name, bool may_exist,
        char *err, size_t err_len)
{
        r->base = NULL;
        if (section_of(word, &r->section) < 0 ||
                (r->tenants_only && r->section != SECTION_TENANT)) {
                char shown[FORMAT_EXCERPT_MAX];

                snprintf(err, err_len, "[%s]: no such section, allowed are %s",
                        format_excerpt(word, strlen(word), shown),
                        r->tenants_only ? "[tenant NAME]"
                                        : "[daemon], [device NAME] and [tenant NAME]");
                return false;
        }
        snprintf(r->name, sizeof(r->name), "%s", name);
        switch (r->section) {
        case SECTION_DAEMON:
                return open_daemon(r, name, may_exist, err, err_len);
        case SECTION_DEVICE:
                return open_device(r, name, may_exist, err, err_len);
        default:
                return open_tenant(r, name, may_exist, err, err_len);
        }
}

/* The section being read as it would stand in the file. */
static const char *section_text(const struct reader *r, char *buf, size_t size)
{
        snprintf(
                buf, size, *r->name ? "[%s %s]" : "[%s]", option_section_name(r->section), r->name);
        return buf;
}

/* Says that a section has no such option, and which was meant. */
static void explain_unknown(enum option_section s, const char *key, char *err, size_t err_len)
{
        const struct option *near = option_nearest(s, key);
        char shown[FORMAT_EXCERPT_MAX];

        format_excerpt(key, strlen(key), shown);
        if (near)
                snprintf(err, err_len, "no option '%s', did you mean '%s'?", shown, near->key);
        else
                snprintf(err, err_len, "no option '%s': kvleased --help-config lists them", shown);
}

/* Sets one option of the section being read; err has the sentence where it returns -EINVAL. */
static int apply(struct reader *r, const char *key, const char *value, bool may_repeat, char *err,
        size_t err_len)
{
        const struct option *o = option_find(r->section, key);
        int e;

        if (!o) {
                explain_unknown(r->section, key, err, err_len);
                return -EINVAL;
        }
        if ((*r->set & option_bit(o)) && !may_repeat) {
                snprintf(err, err_len, "%s is given twice: keep one of them", key);
                return -EINVAL;
        }
        e = option_set(o, r->base, value, err, err_len);
        if (e == 0)
                *r->set |= option_bit(o);
        return e;
}

static int read_entry(const struct ini_entry *e, void *data, char *err, size_t err_len)
{
        struct reader *r = data;
        char why[SENTENCE_MAX - 200] = "", section[TENANT_NAME_MAX + 16];

        if (!e->key) {
                if (!open_section(r, e->section, e->name, false, why, sizeof(why)))
                        report(r, true, "%s:%u: %s", r->file, e->line, why);
                return r->fatal;
        }
        if (!*e->section)
                report(r, true, "%s:%u: '%s' stands before the first [section]", r->file, e->line,
                        e->key);
        else if (r->base && apply(r, e->key, e->value, false, why, sizeof(why)) < 0)
                report(r, true, "%s:%u: %s %s", r->file, e->line,
                        section_text(r, section, sizeof(section)), why);
        return 0;
}

static int read_text(struct reader *r, const char *text, size_t len)
{
        char err[SENTENCE_MAX];
        int e = ini_parse(r->file, text, len, read_entry, r, err, sizeof(err));

        if (e < 0)
                report(r, true, "%s", err);
        if (e == -ENOMEM)
                return e;
        return r->n_errors > 0 ? -EINVAL : 0;
}

/* "daemon.KEY=value", "tenant.NAME.KEY=value": a name may have dots, a key has none. */
static int apply_override(struct reader *r, const char *text)
{
        char copy[1024], why[SENTENCE_MAX - 200] = "", *equals, *first, *last;
        bool ok = false;

        snprintf(copy, sizeof(copy), "%s", text);
        equals = strlen(text) < sizeof(copy) ? strchr(copy, '=') : NULL;
        if (equals)
                *equals = '\0';
        first = strchr(copy, '.');
        last = strrchr(copy, '.');
        if (!equals || !first) {
                report(r, true,
                        "--option %.64s: expected SECTION.KEY=VALUE or SECTION.NAME.KEY=VALUE",
                        text);
                return -EINVAL;
        }
        *first = *last = '\0';
        if (open_section(r, copy, first < last ? first + 1 : "", true, why, sizeof(why)))
                ok = apply(r, last + 1, equals + 1, true, why, sizeof(why)) == 0;
        if (!ok)
                report(r, true, "--option %.64s: %s", text, why);
        return ok ? 0 : -EINVAL;
}

/* Without the NUL at its end, which Linux could do without and others couldn't. */
#define SOCKET_PATH_MAX (sizeof(((struct sockaddr_un *)0)->sun_path) - 1)
static_assert(CONFIG_RUNTIME_DIR_MAX + sizeof("/monitor.sock") == SOCKET_PATH_MAX + 1, "sun_path");

int config_check_socket_path(const char *runtime_dir, const char *tenant, char *err, size_t err_len)
{
        size_t len = strlen(runtime_dir) + strlen("/t/") + strlen(tenant) + strlen("/sock");

        if (len <= SOCKET_PATH_MAX)
                return 0;
        snprintf(err, err_len,
                "tenant %s: its socket's path below runtime_dir = %s would have %zu bytes, the "
                "kernel allows %zu: choose a name that is at least %zu shorter, or a shorter "
                "directory",
                tenant, runtime_dir, len, SOCKET_PATH_MAX, len - SOCKET_PATH_MAX);
        return -EINVAL;
}

/* The device before this one that has the same file; NULL. */
static const struct device_config *find_same_disk(
        const struct config *c, const struct device_config *d)
{
        for (const struct device_config *other = c->devices; other < d; other++)
                if (strcmp(other->disk, d->disk) == 0)
                        return other;
        return NULL;
}

static void check_disk(struct reader *r, const struct device_config *d)
{
        const struct device_config *same = d->disk[0] ? find_same_disk(r->config, d) : NULL;
        char size[FORMAT_BYTES_MAX], extent[FORMAT_BYTES_MAX];

        if (d->disk[0] && d->disk_bytes == 0)
                report(r, true,
                        "%s: [device %s] disk = %s has no size: say how large the file is by "
                        "disk_size",
                        r->file, d->name, d->disk);
        if (!d->disk[0] && d->disk_bytes > 0)
                report(r, true,
                        "%s: [device %s] disk_size is given, but no file: name it by disk, or "
                        "leave disk_size out",
                        r->file, d->name);
        if (d->disk_bytes > 0 && config_disk_budget(d->disk_bytes) < d->extent_bytes)
                report(r, true,
                        "%s: [device %s] disk_size = %s holds no extent set of %s beside its "
                        "index: raise it to twice 'extent', or make 'extent' smaller",
                        r->file, d->name, format_bytes(d->disk_bytes, size),
                        format_bytes(d->extent_bytes, extent));
        if (same)
                report(r, true,
                        "%s: [device %s] disk = %s is the file of [device %s] already: give each "
                        "device its own",
                        r->file, d->name, d->disk, same->name);
}

/* A tier that holds nothing is a mistake. */
static void check_host_memory(struct reader *r, const struct device_config *d)
{
        char memory[FORMAT_BYTES_MAX], extent[FORMAT_BYTES_MAX];

        if (d->host_memory_bytes == 0 || d->host_memory_bytes >= d->extent_bytes)
                return;
        report(r, true,
                "%s: [device %s] host_memory = %s holds no extent set of %s: raise it, set it to "
                "0, or make 'extent' smaller",
                r->file, d->name, format_bytes(d->host_memory_bytes, memory),
                format_bytes(d->extent_bytes, extent));
}

/* What no single option can tell. */
static void check_whole(struct reader *r)
{
        const struct config *c = r->config;
        char err[SENTENCE_MAX - 300];

        for (size_t i = 0; i < c->n_devices; i++) {
                check_host_memory(r, &c->devices[i]);
                check_disk(r, &c->devices[i]);
        }
        for (size_t i = 0; i < c->tenants.n; i++) {
                const struct tenant_config *t = &c->tenants.rows[i];
                struct detail d = {""};

                if (config_check_socket_path(c->daemon.runtime_dir, t->name, err, sizeof(err)) < 0)
                        report(r, true, "%s: %s", r->file, err);
                if (tenant_config_check(t, &d) < 0)
                        report(r, true, "%s: [tenant %s] %.700s", r->file, t->name, d.text);
        }
}

static const char *read_remedy(int error)
{
        switch (error) {
        case -ENOENT:
        case -ENOTDIR:
                return "make it, or name another by --config";
        case -EACCES:
        case -EPERM:
                return "make it readable for the user kvleased runs as";
        default:
                return "correct that, or name another by --config";
        }
}

static int read_file(struct reader *r, bool may_be_missing)
{
        _cleanup_free_ char *text = NULL;
        size_t len = 0;
        int e = file_read(r->file, CONFIG_FILE_MAX, &text, &len);

        if (e == -ENOENT && may_be_missing) {
                report(r, false, "%s does not exist: using the built-in defaults", r->file);
                return 0;
        }
        if (e < 0) {
                report(r, true, "cannot read the configuration %s: %s: %s", r->file,
                        e == -EFBIG ? "it is larger than 1 MiB" : strerror(-e), read_remedy(e));
                return e;
        }
        r->config->has_file = true;
        return read_text(r, text, len);
}

int config_load(const struct config_source *source, struct config *ret_config,
        config_report_fn report_fn, void *data)
{
        struct config config;
        struct reader r = {
                .config = &config,
                .file = source->file ? source->file : CONFIG_DEFAULT_FILE,
                .report = report_fn,
                .data = data,
        };
        int e;

        config_init(&config);
        e = read_file(&r, !source->file);
        for (size_t i = 0; i < source->n_overrides; i++)
                if (apply_override(&r, source->overrides[i]) < 0 && e == 0)
                        e = -EINVAL;
        if (e == 0)
                check_whole(&r);
        if (e == 0 && r.n_errors > 0)
                e = -EINVAL;
        if (e < 0)
                config_deinit(&config);
        else
                *ret_config = config;
        return e;
}

int config_parse(const char *file, const char *text, size_t len, struct config *ret_config,
        config_report_fn report_fn, void *data)
{
        struct config config;
        struct reader r = {.config = &config, .file = file, .report = report_fn, .data = data};
        int e;

        config_init(&config);
        e = read_text(&r, text, len);
        if (e < 0)
                config_deinit(&config);
        else
                *ret_config = config;
        return e;
}

int config_parse_tenants(const char *file, const char *text, size_t len,
        struct tenant_table *ret_table, config_report_fn report_fn, void *data)
{
        struct config config;
        struct reader r = {
                .config = &config,
                .file = file,
                .tenants_only = true,
                .report = report_fn,
                .data = data,
        };
        int e;

        config_init(&config);
        e = read_text(&r, text, len);
        if (e < 0)
                config_deinit(&config);
        else
                *ret_table = config.tenants;
        return e;
}

int tenant_config_apply(struct tenant_config *t, const char *assignment, char *err, size_t err_len)
{
        struct reader r = {.section = SECTION_TENANT, .base = t, .set = &t->set};
        const char *equals = strchr(assignment, '=');
        char key[64];

        if (!equals || equals == assignment || (size_t)(equals - assignment) >= sizeof(key)) {
                char shown[FORMAT_EXCERPT_MAX];

                snprintf(err, err_len, "'%s' is no option: expected KEY=VALUE such as limit=4GiB",
                        format_excerpt(assignment, strlen(assignment), shown));
                return -EINVAL;
        }
        snprintf(key, sizeof(key), "%.*s", (int)(equals - assignment), assignment);
        return apply(&r, key, equals + 1, true, err, err_len);
}
