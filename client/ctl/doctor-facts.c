/* Facts for kvleasectl doctor from files: the configuration, the unit; and helpers for checks. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/conf-files.h"
#include "base/fd.h"
#include "base/ini.h"
#include "base/parse.h"
#include "client/ctl/ctl.h"
#include "client/ctl/doctor.h"

#define FILE_MAX       (1 << 20)
#define DEFAULT_CONFIG "/etc/kvlease/kvleased.conf"
#define DEFAULT_UNIT   "kvleased.service"

/* ---- lines ----------------------------------------------------------------------------------- */

static void add_line(struct doctor_lines *l, const char *section, const char *name, const char *key,
        const char *value)
{
        l->lines = need(realloc(l->lines, (l->n + 1) * sizeof(*l->lines)));
        l->lines[l->n++] = (struct doctor_line){
                need(strdup(section)), need(strdup(name)), need(strdup(key)), need(strdup(value))};
}

const char *lines_find(
        const struct doctor_lines *l, const char *section, const char *name, const char *key)
{
        for (size_t i = l->n; i-- > 0;) {
                const struct doctor_line *line = &l->lines[i];

                if (strcmp(line->section, section) == 0 && strcmp(line->name, name) == 0 &&
                        strcmp(line->key, key) == 0)
                        return line->value;
        }
        return NULL;
}

static void free_line(struct doctor_line *line)
{
        free(line->section);
        free(line->name);
        free(line->key);
        free(line->value);
}

void lines_free(struct doctor_lines *l)
{
        for (size_t i = 0; i < l->n; i++)
                free_line(&l->lines[i]);
        free(l->lines);
        *l = (struct doctor_lines){0};
}

static int take_entry(const struct ini_entry *e, void *data, char *err, size_t err_len)
{
        /* A section's header counts, too: it makes the device exist. */
        add_line(data, e->section, e->name, e->key ? e->key : "", e->key ? e->value : "");
        return 0;
}

void lines_read_config(struct doctor_lines *l, const char *text, size_t len)
{
        char err[256];

        (void)ini_parse("", text, len, take_entry, l, err, sizeof(err));
}

void lines_read_option(struct doctor_lines *l, const char *option)
{
        _cleanup_free_ char *copy = need(strdup(option));
        char *value = strchr(copy, '='), *name = strchr(copy, '.'), *key;

        if (!value || !name || name > value)
                return;
        *value++ = '\0';
        *name++ = '\0';
        key = strrchr(name, '.'); /* names may have dots, keys have none */
        if (key)
                *key++ = '\0';
        add_line(l, copy, key ? name : "", key ? key : name, value);
}

/* ---- lines of units
 * ----------------------------------------------------------------------------------- */

static char *trim_end(char *text)
{
        char *end = text + strlen(text);

        while (end > text && isspace((unsigned char)end[-1]))
                *--end = '\0';
        while (isspace((unsigned char)*text))
                text++;
        return text;
}

/* systemd: "an empty assignment resets the list". */
static void forget_assignments(struct doctor_lines *l, const char *section, const char *key)
{
        size_t kept = 0;

        for (size_t i = 0; i < l->n; i++) {
                struct doctor_line *line = &l->lines[i];

                if (strcmp(line->section, section) == 0 && strcmp(line->key, key) == 0)
                        free_line(line);
                else
                        l->lines[kept++] = *line;
        }
        l->n = kept;
}

static void take_unit_line(struct doctor_lines *l, char *line, char section[64])
{
        char *text = trim_end(line), *value, *end = strchr(text, ']');

        if (*text == '[' && end) {
                *end = '\0';
                snprintf(section, 64, "%s", text + 1);
                return;
        }
        value = strchr(text, '=');
        if (*text == '#' || *text == ';' || !value)
                return;
        *value++ = '\0';
        text = trim_end(text);
        value = trim_end(value);
        if (*value)
                add_line(l, section, "", text, value);
        else
                forget_assignments(l, section, text);
}

void lines_read_unit(struct doctor_lines *l, const char *text)
{
        _cleanup_free_ char *copy = need(strdup(text));
        char section[64] = "", *next = copy;

        /* A backslash at the end joins the next line. */
        for (char *at = copy; (at = strstr(at, "\\\n"));)
                at[0] = at[1] = ' ';
        while (next) {
                char *line = strsep(&next, "\n");

                take_unit_line(l, line, section);
        }
}

/* ---- files ----------------------------------------------------------------------------------- */

char *doctor_path(const struct doctor *d, const char *format, ...)
{
        _cleanup_free_ char *rest = NULL;
        char *path = NULL;
        va_list ap;

        va_start(ap, format);
        rest = text_format(format, ap);
        va_end(ap);
        if (asprintf(&path, "%s%s", d->root, rest) < 0)
                path = NULL;
        return need(path);
}

char *doctor_read(const struct doctor *d, const char *format, ...)
{
        _cleanup_free_ char *rest = NULL, *path = NULL;
        char *text = NULL;
        va_list ap;
        size_t len;
        int n;

        va_start(ap, format);
        rest = text_format(format, ap);
        va_end(ap);
        path = doctor_path(d, "%s", rest);
        n = file_read(path, FILE_MAX, &text, &len);
        if (n < 0) {
                errno = -n;
                return NULL;
        }
        if (len > 0 && text[len - 1] == '\n')
                text[len - 1] = '\0';
        return text;
}

bool doctor_number(const char *text, const char *name, uint64_t *ret_value)
{
        size_t len = strlen(name);

        for (const char *line = text; line; line = strchr(line, '\n')) {
                line += *line == '\n';
                if (strncmp(line, name, len) == 0 &&
                        sscanf(line + len, " %" SCNu64, ret_value) == 1)
                        return true;
        }
        return false;
}

bool doctor_group(const struct doctor *d, const char *name, unsigned *ret_gid)
{
        _cleanup_free_ char *text = doctor_read(d, "/etc/group");
        struct group *found;
        size_t len = strlen(name);
        uint64_t number;

        if (parse_u64(name, &number) == 0 && number <= UINT32_MAX) {
                *ret_gid = (unsigned)number;
                return true;
        }
        for (const char *line = text; line; line = strchr(line, '\n')) {
                line += *line == '\n';
                if (strncmp(line, name, len) == 0 && line[len] == ':' &&
                        sscanf(line + len, ":%*[^:]:%u", ret_gid) == 1)
                        return true;
        }
        /* LDAP and others, for this host only. */
        found = *d->root ? NULL : getgrnam(name);
        if (found)
                *ret_gid = found->gr_gid;
        return found;
}

const char *doctor_setting(
        const struct doctor *d, const char *section, const char *name, const char *key)
{
        return lines_find(&d->config, section, name, key);
}

uint64_t doctor_setting_bytes(const struct doctor *d, const char *section, const char *name,
        const char *key, uint64_t otherwise)
{
        const char *value = doctor_setting(d, section, name, key);
        uint64_t bytes;

        return value && parse_bytes(value, &bytes) == 0 ? bytes : otherwise;
}

const char *doctor_unit_setting(const struct doctor *d, const char *key)
{
        return lines_find(&d->unit, "Service", "", key);
}

bool doctor_has_process(const struct doctor *d)
{
        return d->daemon.state == DAEMON_UP && d->daemon.is_here;
}

bool doctor_has_gpu(const struct doctor *d)
{
        return d->driver.asked && d->driver.result == 0 && d->driver.n_gpus > 0;
}

static bool has_gpu_name(const char *names)
{
        return strcasestr(names, "GPU-") || strcasestr(names, "MIG-");
}

/* Whether 'devices' names GPUs, or devices that span them. */
bool doctor_names_gpu(const struct doctor *d)
{
        const char *devices = doctor_setting(d, "daemon", "", "devices");
        bool names_gpu = devices && has_gpu_name(devices);

        for (size_t i = 0; devices && i < d->config.n; i++) {
                const struct doctor_line *line = &d->config.lines[i];

                if (strcmp(line->section, "device") == 0 && strcmp(line->key, "members") == 0 &&
                        strstr(devices, line->name))
                        names_gpu |= strcmp(line->value, "all") == 0 || has_gpu_name(line->value);
        }
        return names_gpu;
}

/* ---- memory that is wanted ------------------------------------------------------------------- */

static bool is_host(const char *name)
{
        return strncmp(name, "host", 4) == 0 && (name[4] == '\0' || name[4] == '-');
}

/* Returns "auto" of a host device: a quarter of memory, at most 64 GiB. */
static uint64_t auto_bytes(const struct doctor *d)
{
        _cleanup_free_ char *text = doctor_read(d, "/proc/meminfo");
        uint64_t kib;

        return text && doctor_number(text, "MemTotal:", &kib)
                       ? MIN(kib * 1024 / 4, UINT64_C(64) << 30)
                       : 0;
}

/* Returns the bytes of the devices of [daemon], by the file. */
static uint64_t configured_bytes(const struct doctor *d)
{
        const char *names = doctor_setting(d, "daemon", "", "devices");
        bool is_auto = !names || strcmp(names, "auto") == 0;
        _cleanup_free_ char *copy = need(strdup(is_auto ? "host" : names));
        uint64_t bytes = 0;
        char *save = NULL;

        if (!is_auto || !doctor_has_gpu(d))
                for (char *name = strtok_r(copy, ", \t", &save); name;
                        name = strtok_r(NULL, ", \t", &save))
                        if (is_host(name))
                                bytes += doctor_setting_bytes(
                                        d, "device", name, "memory", auto_bytes(d));
        for (size_t i = 0; i < d->config.n; i++) {
                const struct doctor_line *line = &d->config.lines[i];

                /* The last of several counts. */
                if (strcmp(line->section, "device") == 0 && strcmp(line->key, "host_memory") == 0 &&
                        doctor_setting(d, "device", line->name, line->key) == line->value)
                        bytes += doctor_setting_bytes(d, "device", line->name, line->key, 0);
        }
        return bytes;
}

uint64_t doctor_host_bytes(const struct doctor *d)
{
        uint64_t bytes = 0;

        if (d->daemon.state != DAEMON_UP)
                return configured_bytes(d);
        for (size_t i = 0; i < d->daemon.n_devices; i++) {
                const struct figures_device *row = &d->daemon.devices[i];

                if (strcmp(row->tier, "host") == 0 ||
                        (strcmp(row->tier, "device") == 0 && strcmp(row->backend, "host") == 0))
                        bytes += row->budget_bytes;
        }
        return bytes;
}

/* ---- which configuration --------------------------------------------------------------------- */

/* Returns NAME of a socket /run/kvlease-NAME/admin.sock: an instance of kvleased@. Owned; NULL:
 * none. */
static char *instance(const struct doctor *d)
{
        const char *at = strstr(d->socket_path, "/kvlease-");
        size_t len;

        if (!at)
                return NULL;
        at += strlen("/kvlease-");
        len = strcspn(at, "/");
        return len > 0 && at[len] == '/' ? need(strndup(at, len)) : NULL;
}

static void add_override(struct doctor *d, const char *option)
{
        d->overrides = need(realloc(d->overrides, (d->n_overrides + 1) * sizeof(*d->overrides)));
        d->overrides[d->n_overrides++] = need(strdup(option));
}

/* Returns an argument's value: after "=", or the next argument (*at then advances). NULL: none. */
static const char *argument_value(
        const char *word, const char *name, const char **at, const char *end)
{
        size_t len = strlen(name);

        if (strncmp(word, name, len) != 0)
                return NULL;
        if (word[len] == '=')
                return word + len + 1;
        if (word[len] != '\0')
                return name[1] == '-' ? NULL : word + len; /* -oX */
        if (*at >= end)
                return NULL;
        word = *at;
        *at += strlen(*at) + 1;
        return word;
}

static void take_argument(struct doctor *d, const char *word, const char **at, const char *end)
{
        const char *value;

        if ((value = argument_value(word, "--config", at, end)) ||
                (value = argument_value(word, "-c", at, end))) {
                free(d->config_path);
                if (value[0] == '/')
                        d->config_path = need(strdup(value));
                else if (asprintf(&d->config_path, "/proc/%" PRIu64 "/cwd/%s", d->daemon.pid,
                                 value) < 0)
                        d->config_path = need(NULL);
        } else if ((value = argument_value(word, "--option", at, end)) ||
                   (value = argument_value(word, "-o", at, end))) {
                add_override(d, value);
        }
}

/* Reads the arguments of the running daemon. */
static void read_arguments(struct doctor *d)
{
        _cleanup_free_ char *path = doctor_path(d, "/proc/%" PRIu64 "/cmdline", d->daemon.pid);
        _cleanup_free_ char *text = NULL;
        const char *at, *end;
        size_t len;

        if (file_read(path, FILE_MAX, &text, &len) < 0)
                return;
        end = text + len;
        at = text + strlen(text) + 1;
        while (at < end) {
                const char *word = at;

                at += strlen(at) + 1;
                take_argument(d, word, &at, end);
        }
}

/* Reads the file and its drop-ins in FILE.d. kvleased finds their errors (--check-config), except
 * for files that this user may not read. */
static void read_config(struct doctor *d)
{
        _cleanup_free_ char *path = doctor_path(d, "%s", d->config_path);
        struct conf_files files;
        char err[512];
        int r = conf_files_find(path, &files, err, sizeof(err));

        if (r < 0)
                files = (struct conf_files){.paths = &path, .n = 1};
        for (size_t i = 0; i < files.n; i++) {
                _cleanup_free_ char *text = NULL;
                size_t len;
                int e = file_read_regular(files.paths[i], FILE_MAX, &text, &len);

                if (e == 0)
                        lines_read_config(&d->config, text, len);
                if (i == 0 || e == -EACCES)
                        d->config_error = e;
        }
        if (r < 0) {
                d->config_error = r == -EACCES ? r : d->config_error;
                return;
        }
        conf_files_deinit(&files);
}

void doctor_gather_config(struct doctor *d)
{
        _cleanup_free_ char *name = instance(d);

        if (doctor_has_process(d))
                read_arguments(d);
        if (!d->config_path && d->daemon.config_file && d->daemon.config_file[0] == '/')
                d->config_path = need(strdup(d->daemon.config_file));
        if (!d->config_path && asprintf(&d->config_path, name ? "/etc/kvlease/%s.conf" : "%s",
                                       name ? name : DEFAULT_CONFIG) < 0)
                d->config_path = need(NULL);
        read_config(d);
        for (size_t i = 0; i < d->n_overrides; i++)
                lines_read_option(&d->config, d->overrides[i]);
}

/* ---- the unit -------------------------------------------------------------------------------- */

/* Returns the ".service" of a control group, "/system.slice/kvleased.service". Owned; NULL. */
static char *service_of(const char *cgroup)
{
        const char *at = strstr(cgroup, "kvleased"), *end = at ? strstr(at, ".service") : NULL;

        if (!end || memchr(at, '/', (size_t)(end - at)))
                return NULL;
        return need(strndup(at, (size_t)(end - at) + strlen(".service")));
}

static void find_unit_name(struct doctor *d)
{
        _cleanup_free_ char *name = instance(d), *cgroup = NULL;

        if (doctor_has_process(d))
                cgroup = doctor_read(d, "/proc/%" PRIu64 "/cgroup", d->daemon.pid);
        d->unit_name = cgroup ? service_of(cgroup) : NULL;
        d->is_unit_run = d->unit_name;
        if (!d->unit_name && asprintf(&d->unit_name, name ? "kvleased@%s.service" : "%s",
                                     name ? name : DEFAULT_UNIT) < 0)
                d->unit_name = need(NULL);
}

/* systemd's directories, the strongest first. */
static const char *const unit_dirs[] = {"/etc/systemd/system", "/run/systemd/system",
        "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"};

/* Returns "kvleased@.service" for "kvleased@x.service", else the name itself. Owned. */
static char *template_name(const char *name)
{
        const char *at = strchr(name, '@');
        char *template = NULL;

        if (!at)
                return need(strdup(name));
        if (asprintf(&template, "%.*s@.service", (int)(at - name), name) < 0)
                template = NULL;
        return need(template);
}

static bool read_unit(struct doctor *d, const char *name)
{
        for (size_t i = 0; i < ARRAY_SIZE(unit_dirs); i++) {
                _cleanup_free_ char *text = doctor_read(d, "%s/%s", unit_dirs[i], name);

                if (!text)
                        continue;
                lines_read_unit(&d->unit, text);
                if (asprintf(&d->unit_path, "%s/%s", unit_dirs[i], name) < 0)
                        d->unit_path = need(NULL);
                return true;
        }
        return false;
}

struct drop_ins {
        char **names; /* owned: file names; their paths are in `paths` */
        char **paths;
        size_t n;
};

/* Adds a drop-in in order of name, as systemd does, from any directory. Of two with one name the
 * stronger counts. */
static void add_drop_in(struct drop_ins *all, const char *path, const char *name)
{
        size_t at = 0;

        while (at < all->n && strcmp(all->names[at], name) < 0)
                at++;
        if (at < all->n && strcmp(all->names[at], name) == 0)
                return;
        all->names = need(realloc(all->names, (all->n + 1) * sizeof(*all->names)));
        all->paths = need(realloc(all->paths, (all->n + 1) * sizeof(*all->paths)));
        memmove(all->names + at + 1, all->names + at, (all->n - at) * sizeof(*all->names));
        memmove(all->paths + at + 1, all->paths + at, (all->n - at) * sizeof(*all->paths));
        all->names[at] = need(strdup(name));
        if (asprintf(&all->paths[at], "%s/%s", path, name) < 0)
                need(NULL);
        all->n++;
}

static void find_drop_ins(
        const struct doctor *d, const char *dir, const char *unit, struct drop_ins *all)
{
        _cleanup_free_ char *path = doctor_path(d, "%s/%s.d", dir, unit);
        DIR *entries = opendir(path);

        if (!entries)
                return;
        for (struct dirent *e; (e = readdir(entries));) {
                size_t len = strlen(e->d_name);

                if (len > 5 && strcmp(e->d_name + len - 5, ".conf") == 0)
                        add_drop_in(all, path, e->d_name);
        }
        closedir(entries);
}

static void read_drop_ins(struct doctor *d, const char *template)
{
        struct drop_ins all = {0};

        for (size_t i = 0; i < ARRAY_SIZE(unit_dirs); i++) {
                find_drop_ins(d, unit_dirs[i], d->unit_name, &all);
                if (strcmp(template, d->unit_name) != 0)
                        find_drop_ins(d, unit_dirs[i], template, &all);
        }
        for (size_t i = 0; i < all.n; i++) {
                _cleanup_free_ char *text = NULL;
                size_t len;

                if (file_read(all.paths[i], FILE_MAX, &text, &len) == 0)
                        lines_read_unit(&d->unit, text);
                free(all.paths[i]);
                free(all.names[i]);
        }
        free(all.paths);
        free(all.names);
}

void doctor_gather_unit(struct doctor *d)
{
        _cleanup_free_ char *template = NULL;

        find_unit_name(d);
        template = template_name(d->unit_name);
        if (read_unit(d, d->unit_name) || read_unit(d, template))
                read_drop_ins(d, template);
}

/* ---- all of it ------------------------------------------------------------------------------- */

void doctor_gather(struct doctor *d)
{
        doctor_ask_daemon(d);
        doctor_gather_config(d);
        doctor_gather_unit(d);
        if (*d->root)
                snprintf(d->driver.why, sizeof(d->driver.why),
                        "the driver of another root isn't loaded: ask there");
        else
                driver_ask(&d->driver, DRIVER_MSEC);
}

void doctor_deinit(struct doctor *d)
{
        doctor_free_daemon(&d->daemon);
        for (size_t i = 0; i < d->n_overrides; i++)
                free(d->overrides[i]);
        free(d->overrides);
        free(d->config_path);
        lines_free(&d->config);
        free(d->unit_name);
        free(d->unit_path);
        lines_free(&d->unit);
        for (size_t i = 0; i < d->n_findings; i++) {
                free(d->findings[i].found);
                free(d->findings[i].remedy);
        }
        free(d->findings);
}
