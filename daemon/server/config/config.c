#include "daemon/server/config/config.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

#include "base/fd.h"
#include "base/ini.h"
#include "base/macros.h"

#define SENTENCE_MAX 1024

struct reader {
        struct config *config;
        const char *file; /* being read, its number and the line; or the command line */
        struct origin at;
        bool tenants_only;
        config_report_fn report;
        void *data;
        size_t n_errors;
        int fatal;       /* -ENOMEM: reading on makes no sense */
        bool is_cut_off; /* a file was cut at a line with invalid syntax, or is unreadable */
        /* The section being read; base is NULL if it was refused and is skipped. */
        enum option_section section;
        char name[TENANT_NAME_MAX + 1];
        void *base;
        struct origins *from;
        uint64_t *set;                   /* NULL: not recorded */
        struct unknown_options *unknown; /* NULL: unknown options are refused */
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

/* Reports an error, found after reading, at the origin of its value. */
KVL_PRINTF(3, 4) static void report_at(struct reader *r, struct origin o, const char *format, ...)
{
        char sentence[SENTENCE_MAX - CONFIG_ORIGIN_MAX], where[CONFIG_ORIGIN_MAX];
        va_list args;

        va_start(args, format);
        vsnprintf(sentence, sizeof(sentence), format, args);
        va_end(args);
        report(r, true, "%s: %s", config_origin(r->config, o, where), sentence);
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

bool config_lists_device(const char *names, const char *name)
{
        size_t len = strlen(name);

        for (const char *at = names; *at; at += strcspn(at, ", ")) {
                at += strspn(at, ", ");
                if (strcspn(at, ", ") == len && strncasecmp(at, name, len) == 0)
                        return true;
        }
        return false;
}

const struct device_config *config_find_device(const struct config *c, const char *name)
{
        for (size_t i = 0; i < c->n_devices; i++)
                if (strcmp(c->devices[i].name, name) == 0)
                        return &c->devices[i];
        return NULL;
}

const struct remote_config *config_find_remote(const struct config *c, const char *name)
{
        for (size_t i = 0; i < c->n_remotes; i++)
                if (strcmp(c->remotes[i].name, name) == 0)
                        return &c->remotes[i];
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
        conf_files_deinit(&c->files);
}

char *config_origin(const struct config *c, struct origin o, char buf[CONFIG_ORIGIN_MAX])
{
        if (o.file == ORIGIN_DEFAULT)
                strcpy(buf, "default");
        else if (o.file == ORIGIN_COMMAND_LINE)
                strcpy(buf, "command line");
        else if (o.file > c->files.n) /* of a text that is no file */
                snprintf(buf, CONFIG_ORIGIN_MAX, "line %u", (unsigned)o.line);
        else
                snprintf(buf, CONFIG_ORIGIN_MAX, "%s:%u", c->files.paths[o.file - 1],
                        (unsigned)o.line);
        return buf;
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

/* True if the option was given before in the same file: then its meaning is unclear. Values of
 * other files are replaced, and the command line may repeat itself. */
static bool is_twice(const struct reader *r, struct origin before)
{
        return before.file == r->at.file && before.file != ORIGIN_DEFAULT &&
               before.file != ORIGIN_COMMAND_LINE;
}

/* Points the reader at the tenant, making it if it is missing. Returns false if it is refused, with
 * the sentence in err. */
static bool open_tenant(struct reader *r, const char *name, char *err, size_t err_len)
{
        struct tenant_config *t = tenant_table_find(&r->config->tenants, name);
        int e;

        if (!name_is_valid(name, TENANT_NAME_MAX)) {
                snprintf(err, err_len,
                        "[tenant NAME] needs a name of 1 to %d characters of A-Z a-z 0-9 . _ -, not starting with '.' or '-'",
                        TENANT_NAME_MAX);
                return false;
        }
        if (t && is_twice(r, t->from.section)) {
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
        r->from = &t->from;
        r->set = &t->set;
        return true;
}

static bool open_device(struct reader *r, const char *name, char *err, size_t err_len)
{
        struct config *c = r->config;
        struct device_config *d = (struct device_config *)config_find_device(c, name);

        if (!name_is_valid(name, TENANT_NAME_MAX)) {
                snprintf(err, err_len,
                        "[device NAME] needs the name of a device: 'host' or a GPU's UUID");
                return false;
        }
        if (d && is_twice(r, d->from.section)) {
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
        r->from = &d->from;
        return true;
}

static bool open_remote(struct reader *r, const char *name, char *err, size_t err_len)
{
        struct config *c = r->config;
        struct remote_config *m = (struct remote_config *)config_find_remote(c, name);

        if (!name_is_valid(name, TENANT_NAME_MAX)) {
                snprintf(err, err_len, "[remote NAME] needs a name, as tenants have");
                return false;
        }
        if (m && is_twice(r, m->from.section)) {
                snprintf(
                        err, err_len, "[remote %s] is there twice: put its options together", name);
                return false;
        }
        if (!m && c->n_remotes == CONFIG_REMOTES_MAX) {
                snprintf(err, err_len, "[remote %s]: at most %d remotes", name, CONFIG_REMOTES_MAX);
                return false;
        }
        if (!m) {
                m = &c->remotes[c->n_remotes++];
                strcpy(m->name, name);
                options_set_defaults(SECTION_REMOTE, m);
        }
        r->base = m;
        r->from = &m->from;
        return true;
}

static bool open_daemon(struct reader *r, const char *name, char *err, size_t err_len)
{
        struct daemon_config *d = &r->config->daemon;

        if (*name || is_twice(r, d->from.section)) {
                snprintf(err, err_len,
                        *name ? "[daemon] has no name"
                              : "[daemon] is there twice: put its options together");
                return false;
        }
        r->base = d;
        r->from = &d->from;
        return true;
}

/* Makes `word name` the section being read. If it is refused, returns false with the sentence in
 * err, and the section is skipped. */
static bool open_section(
        struct reader *r, const char *word, const char *name, char *err, size_t err_len)
{
        bool is_open;

        r->base = NULL;
        r->set = NULL;
        if (section_of(word, &r->section) < 0 ||
                (r->tenants_only && r->section != SECTION_TENANT)) {
                char shown[FORMAT_EXCERPT_MAX];

                snprintf(err, err_len, "[%s]: no such section, allowed are %s",
                        format_excerpt(word, strlen(word), shown),
                        r->tenants_only
                                ? "[tenant NAME]"
                                : "[daemon], [device NAME], [remote NAME] and [tenant NAME]");
                return false;
        }
        snprintf(r->name, sizeof(r->name), "%s", name);
        if (r->section == SECTION_DAEMON)
                is_open = open_daemon(r, name, err, err_len);
        else if (r->section == SECTION_DEVICE)
                is_open = open_device(r, name, err, err_len);
        else if (r->section == SECTION_REMOTE)
                is_open = open_remote(r, name, err, err_len);
        else
                is_open = open_tenant(r, name, err, err_len);
        /* The command line only adds to a section that files have. */
        if (is_open &&
                (r->from->section.file == ORIGIN_DEFAULT || r->at.file != ORIGIN_COMMAND_LINE))
                r->from->section = r->at;
        return is_open;
}

/* The section being read, as written in the file. */
static const char *section_text(const struct reader *r, char *buf, size_t size)
{
        snprintf(
                buf, size, *r->name ? "[%s %s]" : "[%s]", option_section_name(r->section), r->name);
        return buf;
}

/* Explains that a section has no such option, and names the nearest. */
static void explain_unknown(enum option_section s, const char *key, char *err, size_t err_len)
{
        const char *near = option_nearest(s, key);
        char shown[FORMAT_EXCERPT_MAX];

        format_excerpt(key, strlen(key), shown);
        if (near)
                snprintf(err, err_len, "no option '%s', did you mean '%s'?", shown, near);
        else
                snprintf(err, err_len, "no option '%s': kvleased --help-config lists them", shown);
}

/* Sets one option of the section being read. If it returns -EINVAL, err has the sentence. */
static int apply_option(
        struct reader *r, const char *key, const char *value, char *err, size_t err_len)
{
        const struct option *o = option_find(r->section, key);
        const bool was_spoilt = r->from->is_spoilt;
        struct origin *from;
        int e;

        r->from->is_spoilt = true;
        if (!o) {
                explain_unknown(r->section, key, err, err_len);
                return -EINVAL;
        }
        from = &r->from->of[option_index(o)];
        if (is_twice(r, *from)) {
                snprintf(err, err_len, "%s is given twice: keep one of them", key);
                return -EINVAL;
        }
        e = option_set(o, r->base, value, err, err_len);
        if (e < 0)
                return e;
        r->from->is_spoilt = was_spoilt;
        *from = r->at;
        if (r->set)
                *r->set |= option_bit(o);
        return 0;
}

/* ---- options of other versions --------------------------------------------------------------- */

void unknown_options_remove(struct unknown_options *u, size_t i)
{
        free(u->rows[i].section);
        free(u->rows[i].line);
        u->n--;
        memmove(&u->rows[i], &u->rows[i + 1], (u->n - i) * sizeof(*u->rows));
}

void unknown_options_deinit(struct unknown_options *u)
{
        while (u->n > 0)
                unknown_options_remove(u, u->n - 1);
        free(TAKE(u->rows));
}

static bool is_of_another_version(const struct reader *r, const struct ini_entry *e)
{
        enum option_section section;

        if (!r->unknown || !*e->section)
                return false;
        if (section_of(e->section, &section) < 0)
                return true;
        return e->key && r->base && !option_find(r->section, e->key);
}

static int keep_unknown(struct reader *r, const struct ini_entry *e)
{
        struct unknown_options *u = r->unknown;
        struct unknown_option *rows = realloc(u->rows, (u->n + 1) * sizeof(*rows));
        struct unknown_option row = {0};

        if (rows)
                u->rows = rows;
        if (!rows || asprintf(&row.section, *e->name ? "[%s %s]" : "[%s]", e->section, e->name) < 0)
                return -ENOMEM;
        if (asprintf(&row.line, "%s = %s", e->key, e->value) < 0) {
                free(row.section);
                return -ENOMEM;
        }
        u->rows[u->n++] = row;
        report(r, false,
                "%s:%u: %s: this kvleased doesn't know the option '%.100s', which is skipped, and stays in the file for a newer one",
                r->file, e->line, row.section, e->key);
        return 0;
}

static int read_entry(const struct ini_entry *e, void *data, char *err, size_t err_len)
{
        struct reader *r = data;
        char why[SENTENCE_MAX - 200] = "", section[TENANT_NAME_MAX + 16];

        r->at.line = e->line & 0xffffff; /* cut to the most lines of a file */
        if (is_of_another_version(r, e)) {
                if (!e->key)
                        r->base = NULL;
                return e->key ? keep_unknown(r, e) : 0;
        }
        if (!e->key) {
                if (!open_section(r, e->section, e->name, why, sizeof(why)))
                        report(r, true, "%s:%u: %s", r->file, e->line, why);
                return r->fatal;
        }
        if (!*e->section)
                report(r, true, "%s:%u: '%s' stands before the first [section]", r->file, e->line,
                        e->key);
        else if (r->base && apply_option(r, e->key, e->value, why, sizeof(why)) < 0)
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
        r->is_cut_off |= e < 0;
        if (e == -ENOMEM)
                return e;
        return r->n_errors > 0 ? -EINVAL : 0;
}

/* Applies "daemon.KEY=value" or "tenant.NAME.KEY=value": a name may have dots, a key has none. */
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
        if (open_section(r, copy, first < last ? first + 1 : "", why, sizeof(why)))
                ok = apply_option(r, last + 1, equals + 1, why, sizeof(why)) == 0;
        if (!ok)
                report(r, true, "--option %.64s: %s", text, why);
        return ok ? 0 : -EINVAL;
}

/* Less the NUL at its end, which Linux doesn't require, but other systems do. */
#define SOCKET_PATH_MAX (sizeof(((struct sockaddr_un *)0)->sun_path) - 1)
static_assert(CONFIG_RUNTIME_DIR_MAX + sizeof("/monitor.sock") == SOCKET_PATH_MAX + 1, "sun_path");

int config_check_socket_path(const char *runtime_dir, const char *tenant, char *err, size_t err_len)
{
        size_t len = strlen(runtime_dir) + strlen("/t/") + strlen(tenant) + strlen("/sock");

        if (len <= SOCKET_PATH_MAX)
                return 0;
        snprintf(err, err_len,
                "tenant %s: its socket's path below runtime_dir = %s would have %zu bytes, the "
                "kernel allows %zu: choose a name that is at least %zu shorter, or a shorter directory",
                tenant, runtime_dir, len, SOCKET_PATH_MAX, len - SOCKET_PATH_MAX);
        return -EINVAL;
}

static void report_check(void *data, struct origin o, const char *sentence)
{
        report_at(data, o, "%s", sentence);
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
        case -EBADFD:
        case -EISDIR:
                return "name a regular file by --config, as it is read again at every reload";
        default:
                return "correct that, or name another by --config";
        }
}

const char *config_read_error(int error)
{
        return error == -EFBIG ? "it is larger than 1 MiB" : file_read_error(error);
}

/* file_read_regular() that takes /dev/null as an empty file. */
static int read_config_file(const char *path, char **ret_text, size_t *ret_len)
{
        int e = file_read_regular(path, CONFIG_FILE_MAX, ret_text, ret_len);
        struct stat st;

        if (e != -EBADFD || stat(path, &st) < 0 || !S_ISCHR(st.st_mode) ||
                st.st_rdev != makedev(1, 3))
                return e;
        *ret_len = 0;
        *ret_text = calloc(1, 1);
        return *ret_text ? 0 : -ENOMEM;
}

/* Reads the main file; only the default one may be missing. */
static int read_main_file(struct reader *r, bool may_be_missing)
{
        const bool has_drop_ins = r->config->files.n > 1;
        _cleanup_free_ char *text = NULL;
        size_t len = 0;
        int e = read_config_file(r->file, &text, &len);

        if (e == -ENOENT && may_be_missing) {
                report(r, false, "%s does not exist: using the built-in defaults%s", r->file,
                        has_drop_ins ? ", and what the files beside it say" : "");
                return 0;
        }
        if (e < 0) {
                r->is_cut_off = true;
                report(r, true, "cannot read the configuration %s: %s: %s", r->file,
                        config_read_error(e), read_remedy(e));
                return e;
        }
        r->config->has_file = true;
        return read_text(r, text, len);
}

static int read_drop_in(struct reader *r)
{
        _cleanup_free_ char *text = NULL;
        size_t len = 0;
        int e = read_config_file(r->file, &text, &len);

        if (e == 0)
                return read_text(r, text, len);
        r->is_cut_off = true;
        report(r, true, "cannot read the configuration %s: %s: correct that, or remove it", r->file,
                config_read_error(e));
        return e;
}

/* Reads all files, so that all errors are reported. Returns 0, or the first failure. */
static int read_files(struct reader *r, bool may_be_missing)
{
        struct config *c = r->config;
        char err[SENTENCE_MAX - 64];
        int result = conf_files_find(r->file, &c->files, err, sizeof(err)), e;

        if (result < 0) {
                r->is_cut_off = true;
                report(r, true, "%s", err);
                return result;
        }
        for (size_t i = 0; i < c->files.n; i++) {
                r->file = c->files.paths[i];
                r->at = (struct origin){.file = (uint8_t)(i + 1)};
                e = i == 0 ? read_main_file(r, may_be_missing) : read_drop_in(r);
                if (result == 0)
                        result = e;
        }
        r->at = (struct origin){.file = ORIGIN_COMMAND_LINE};
        return result;
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
        e = read_files(&r, !source->file);
        for (size_t i = 0; i < source->n_overrides; i++)
                if (apply_override(&r, source->overrides[i]) < 0 && e == 0)
                        e = -EINVAL;
        if (r.fatal == 0 && !r.is_cut_off)
                config_check_whole(r.config, report_check, &r);
        if (e == 0 && r.n_errors > 0)
                e = -EINVAL;
        if (e < 0)
                config_deinit(&config);
        else
                *ret_config = config;
        return e;
}

static int parse_text(struct reader r, const char *text, size_t len, struct config *ret_config)
{
        struct config config;
        int e;

        config_init(&config);
        r.config = &config;
        e = read_text(&r, text, len);
        if (e < 0)
                config_deinit(&config);
        else
                *ret_config = config;
        return e;
}

int config_parse(const char *file, const char *text, size_t len, struct config *ret_config,
        config_report_fn report_fn, void *data)
{
        const struct reader r = {
                .file = file, .at = {.file = 1}, .report = report_fn, .data = data};

        return parse_text(r, text, len, ret_config);
}

int config_parse_tenants(const char *file, const char *text, size_t len,
        struct tenant_table *ret_table, struct unknown_options *ret_unknown,
        config_report_fn report_fn, void *data)
{
        struct unknown_options unknown = {0};
        const struct reader r = {.file = file,
                .at = {.file = 1},
                .tenants_only = true,
                .unknown = ret_unknown ? &unknown : NULL,
                .report = report_fn,
                .data = data};
        struct config config;
        int e = parse_text(r, text, len, &config);

        if (e == 0)
                *ret_table = config.tenants;
        if (e == 0 && ret_unknown)
                *ret_unknown = unknown;
        else
                unknown_options_deinit(&unknown);
        return e;
}

/* Lists that are all empty admit everyone. So adding the first word would revoke the others'
 * access, and removing the last would grant it: both are refused. */
static int amend_list(const struct tenant_config *t, const struct option *o, char sign,
        const char *value, char ret_text[ID_LIST_TEXT_MAX + 1], char *err, size_t err_len)
{
        bool publish = strncmp(o->key, "publish_", strlen("publish_")) == 0;
        const struct access_config *a = &t->access;
        const struct id_list *list = (const void *)((const char *)t + o->offset);
        uint32_t n = publish ? a->publish_uids.n + a->publish_gids.n : a->uids.n + a->gids.n;
        const char *all =
                publish ? "all its clients may publish" : "whoever reaches its socket may connect";
        char shown[FORMAT_EXCERPT_MAX];
        int r = option_amend(o, t, sign, value, ret_text, err, err_len);

        if (r < 0)
                return r;
        format_excerpt(value, strlen(value), shown);
        if (sign == '+' && n == 0)
                snprintf(err, err_len,
                        "%s+=%s: tenant %s lists no users or groups, so %s: %s=%s would allow that to those alone",
                        o->key, shown, t->name, all, o->key, shown);
        else if (sign == '-' && !*ret_text && n == list->n)
                snprintf(err, err_len,
                        "%s-=%s: tenant %s would list no users or groups, and %s: %s= does that",
                        o->key, shown, t->name, all, o->key);
        else
                return 0;
        return -EINVAL;
}

int tenant_config_apply(struct tenant_config *t, const char *assignment, char *err, size_t err_len)
{
        struct reader r = {.section = SECTION_TENANT, .base = t, .from = &t->from, .set = &t->set};
        const char *equals = strchr(assignment, '=');
        char key[64], text[ID_LIST_TEXT_MAX + 1] = "", sign;
        const struct option *o;

        if (!equals || equals == assignment || (size_t)(equals - assignment) >= sizeof(key)) {
                char shown[FORMAT_EXCERPT_MAX];

                snprintf(err, err_len, "'%s' is no option: expected KEY=VALUE such as limit=4GiB",
                        format_excerpt(assignment, strlen(assignment), shown));
                return -EINVAL;
        }
        snprintf(key, sizeof(key), "%.*s", (int)(equals - assignment), assignment);
        sign = key[strlen(key) - 1];
        if (sign != '+' && sign != '-')
                return apply_option(&r, key, equals + 1, err, err_len);
        key[strlen(key) - 1] = '\0';
        o = option_find(SECTION_TENANT, key);
        if (o) {
                int e = amend_list(t, o, sign, equals + 1, text, err, err_len);

                if (e < 0)
                        return e;
        }
        return apply_option(&r, key, text, err, err_len); /* has the sentence without an option */
}
