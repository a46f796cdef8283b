#include "daemon/server/config/tenantdb.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/fd.h"
#include "base/macros.h"
#include "daemon/server/base/lockfile.h"

#define HEAD_REST "what kvleasectl changed. Laid over the configuration at start.\n"
#define HEAD      "# Written by kvleased up to '# end': " HEAD_REST
/* Head of files of older versions, which marked no end. */
#define OLD_HEAD    "# Written by kvleased: " HEAD_REST
#define END         "\n# end\n"
#define SECTION_MAX (TENANT_NAME_MAX + sizeof("[tenant ]"))

KVL_PRINTF(3, 4)
static void report_error(config_report_fn report, void *data, const char *format, ...)
{
        char sentence[1024];
        va_list args;

        va_start(args, format);
        vsnprintf(sentence, sizeof(sentence), format, args);
        va_end(args);
        report(data, true, sentence);
}

/* Checks that no other user can write there, and add tenants. */
static int check_writers(const char *state_dir, config_report_fn report, void *data)
{
        char why[DIR_WHY_BYTES];
        int r = dir_check(state_dir, 0, 0, why);

        if (r < 0)
                report_error(report, data,
                        "cannot use the state directory %s: %s, or give another by --state-dir",
                        state_dir, why);
        return r;
}

static bool is_full(int error)
{
        return error == -ENOSPC || error == -EDQUOT;
}

static void report_full(
        const char *path, const char *state_dir, int error, config_report_fn report, void *data)
{
        report_error(report, data,
                "cannot write %s: %s: make room on the file system of %s, or give another directory by --state-dir",
                path, strerror(-error), state_dir);
}

static int open_dir(const char *state_dir, config_report_fn report, void *data)
{
        int r = 0;

        if (mkdir(state_dir, 0750) < 0 && errno != EEXIST)
                r = -errno;
        if (r == 0 && access(state_dir, W_OK | X_OK) < 0)
                r = -errno;
        if (is_full(r))
                report_full(state_dir, state_dir, r, report, data);
        else if (r < 0)
                report_error(report, data,
                        "cannot write to the state directory %s: %s: make it writable for uid %u or give another by --state-dir",
                        state_dir, strerror(-r), (unsigned)geteuid());
        return r < 0 ? r : check_writers(state_dir, report, data);
}

static int take_lock(
        struct tenantdb *db, const char *state_dir, config_report_fn report, void *data)
{
        unsigned long long pid;
        char owner[32] = "";

        db->lock_fd = lockfile_take(db->lock_path);
        if (db->lock_fd >= 0)
                return 0;
        if (is_full(db->lock_fd)) {
                report_full(db->lock_path, state_dir, db->lock_fd, report, data);
                return db->lock_fd;
        }
        if (db->lock_fd != -EBUSY) {
                report_error(report, data,
                        "cannot lock %s: %s: remove it, once no kvleased of another user uses it, or make it writable for uid %u",
                        db->lock_path, strerror(-db->lock_fd), (unsigned)geteuid());
                return db->lock_fd;
        }
        pid = lockfile_owner(db->lock_path);
        if (pid > 0)
                snprintf(owner, sizeof(owner), " (pid %llu)", pid);
        report_error(report, data,
                "another kvleased%s keeps its tenants in %s: stop it or give another --state-dir",
                owner, state_dir);
        return -EBUSY;
}

static bool begins(const char *text, size_t len, const char *with)
{
        return memcmp(text, with, MIN(len, strlen(with))) == 0;
}

/* A file that people wrote has no head, and may end anywhere. */
static bool is_cut_off(const char *text, size_t len)
{
        const size_t end_len = strlen(END);

        if (begins(text, len, OLD_HEAD))
                return len < strlen(OLD_HEAD);
        return begins(text, len, HEAD) &&
               (len < strlen(HEAD) + end_len || memcmp(text + len - end_len, END, end_len) != 0);
}

static int read_table(struct tenantdb *db, config_report_fn report, void *data)
{
        _cleanup_free_ char *text = NULL;
        char why[DIR_WHY_BYTES];
        size_t len = 0;
        int r = dir_check_file(db->path, why);

        if (r == -ENOENT)
                return 0;
        if (r < 0) {
                report_error(report, data, "cannot use %s: %s", db->path, why);
                return r;
        }
        r = file_read_regular(db->path, CONFIG_FILE_MAX, &text, &len);
        if (r < 0) {
                report_error(report, data,
                        "cannot read %s: %s: make it readable for uid %u, or move it away to start with the tenants of the configuration alone",
                        db->path, config_read_error(r), (unsigned)geteuid());
                return r;
        }
        if (is_cut_off(text, len)) {
                report_error(report, data,
                        "%s was cut off: its last line isn't there; take a copy of before, or move "
                        "it away to start with the tenants of the configuration alone",
                        db->path);
                return -EINVAL;
        }
        r = config_parse_tenants(db->path, text, len, &db->table, &db->unknown, report, data);
        if (r < 0)
                report_error(report, data,
                        "%s cannot be used: correct it, or move it away to start with the tenants of the configuration alone",
                        db->path);
        return r;
}

/* Writes the unknown options of this section. */
static void write_unknown(FILE *f, const struct unknown_options *u, const char *section)
{
        for (size_t i = 0; i < u->n; i++)
                if (strcmp(u->rows[i].section, section) == 0)
                        fprintf(f, "%s\n", u->rows[i].line);
}

static void format_section(char section[SECTION_MAX], const char *name)
{
        snprintf(section, SECTION_MAX, "[tenant %s]", name);
}

static void write_row(FILE *f, const struct tenant_config *row, const struct unknown_options *u)
{
        char value[OPTION_VALUE_MAX], section[SECTION_MAX];

        format_section(section, row->name);
        fprintf(f, "\n%s\n", section);
        for (size_t i = 0; i < n_options; i++) {
                const struct option *o = &options[i];

                if (o->section == SECTION_TENANT && (row->set & option_bit(o)))
                        fprintf(f, "%s = %s\n", o->key, option_format(o, row, value));
        }
        write_unknown(f, u, section);
}

static bool is_of_tenant(const struct unknown_option *o)
{
        return strncmp(o->section, "[tenant ", strlen("[tenant ")) == 0;
}

/* Writes unknown sections as they stood in the file. */
static void write_others(FILE *f, const struct unknown_options *u)
{
        const char *before = "";

        for (size_t i = 0; i < u->n; i++) {
                const struct unknown_option *o = &u->rows[i];

                if (is_of_tenant(o))
                        continue;
                if (strcmp(o->section, before) != 0)
                        fprintf(f, "\n%s\n", o->section);
                fprintf(f, "%s\n", o->line);
                before = o->section;
        }
}

/* The file's text for a table: owned, or NULL without memory. */
static char *format_table(
        const struct tenant_table *t, const struct unknown_options *u, size_t *ret_len)
{
        char *text = NULL;
        FILE *f = open_memstream(&text, ret_len);
        bool failed;

        if (!f)
                return NULL;
        fputs(HEAD, f);
        for (size_t i = 0; i < t->n; i++)
                write_row(f, &t->rows[i], u);
        write_others(f, u);
        fputs(END, f);
        failed = ferror(f);
        if (fclose(f) != 0 || failed) {
                free(text);
                return NULL;
        }
        return text;
}

/* Drops the unknown options of removed tenants. */
static void forget_gone(struct tenantdb *db)
{
        for (size_t i = db->unknown.n; i-- > 0;) {
                char section[SECTION_MAX];
                bool is_there = !is_of_tenant(&db->unknown.rows[i]);

                for (size_t k = 0; k < db->table.n && !is_there; k++) {
                        format_section(section, db->table.rows[k].name);
                        is_there = strcmp(db->unknown.rows[i].section, section) == 0;
                }
                if (!is_there)
                        unknown_options_remove(&db->unknown, i);
        }
}

int tenantdb_open(struct tenantdb *db, const char *state_dir, struct disk *disk,
        config_report_fn report, void *data)
{
        int r;

        *db = (struct tenantdb){.lock_fd = -1, .disk = disk};
        snprintf(db->path, sizeof(db->path), "%s/tenants.conf", state_dir);
        snprintf(db->lock_path, sizeof(db->lock_path), "%s/lock", state_dir);
        r = open_dir(state_dir, report, data);
        if (r == 0)
                r = take_lock(db, state_dir, report, data);
        if (r == 0)
                r = read_table(db, report, data);
        if (r < 0)
                tenantdb_close(db);
        return r;
}

/* Tries again to write the table; the failure was logged already. */
static void write_again(struct tenantdb *db)
{
        size_t len = 0;
        _cleanup_free_ char *text = format_table(&db->table, &db->unknown, &len);

        if (text && file_replace(db->path, text, len, 0640) == 0)
                db->is_torn = false;
}

void tenantdb_close(struct tenantdb *db)
{
        assert(!db->change.text);
        if (db->is_torn)
                write_again(db);
        db->lock_fd = lockfile_drop(db->lock_path, db->lock_fd);
        tenant_table_deinit(&db->table);
        unknown_options_deinit(&db->unknown);
}

const struct tenant_config *tenantdb_find(const struct tenantdb *db, const char *name)
{
        return tenant_table_find(&db->table, name);
}

/* ---- in the disk's thread -------------------------------------------------------------------- */

static void run_write(struct disk_job *job)
{
        struct tenantdb_change *c = container_of(job, struct tenantdb_change, job);

        c->result = file_replace(c->path, c->text, c->len, 0640);
}

/* Writes the former text back, if the file has the change; else it was never replaced. An
 * unreadable file (no memory) may have it. */
static void run_undo(struct disk_job *job)
{
        struct tenantdb_change *c = container_of(job, struct tenantdb_change, job);
        _cleanup_free_ char *text = NULL;
        size_t len = 0;
        int r = file_read_regular(c->path, CONFIG_FILE_MAX, &text, &len);
        bool has_change =
                r == -ENOMEM || (r == 0 && len == c->len && memcmp(text, c->text, len) == 0);

        c->result = has_change ? file_replace(c->path, c->before, c->before_len, 0640) : 0;
}

/* ---- in the loop's --------------------------------------------------------------------------- */

static void free_change(struct tenantdb_change *c)
{
        tenant_table_deinit(&c->next);
        free(c->text);
        free(c->before);
        *c = (struct tenantdb_change){0};
}

static void end_undo(struct disk_job *job)
{
        struct tenantdb_change *c = container_of(job, struct tenantdb_change, job);
        struct tenantdb *db = container_of(c, struct tenantdb, change);
        tenantdb_done_fn done = c->done;
        void *data = c->data;
        int r = c->failure;

        db->is_torn = c->result < 0;
        free_change(c);
        done(data, r);
}

static void undo_change(struct tenantdb *db)
{
        db->change.job.run = run_undo;
        db->change.job.done = end_undo;
        disk_do(db->disk, &db->change.job);
}

static void end_write(struct disk_job *job)
{
        struct tenantdb_change *c = container_of(job, struct tenantdb_change, job);
        struct tenantdb *db = container_of(c, struct tenantdb, change);

        if (c->result == 0) {
                c->is_written = true;
                c->done(c->data, 0);
                return;
        }
        /* The new file may be in place already, without being durable. */
        c->failure = c->result;
        undo_change(db);
}

/* Begins to write `next`; takes it in any case. */
static int begin_change(struct tenantdb *db, struct tenant_table *next, tenantdb_done_fn done,
        void *data, struct detail *d)
{
        struct tenantdb_change *c = &db->change;
        int r = 0;

        assert(!c->text);
        *c = (struct tenantdb_change){
                .job = {.run = run_write, .done = end_write},
                .path = db->path,
                .next = *next,
                .done = done,
                .data = data,
        };
        list_init(&c->job.link);
        c->text = format_table(next, &db->unknown, &c->len);
        c->before = format_table(&db->table, &db->unknown, &c->before_len);
        if (!c->text || !c->before)
                r = detail_set(d, -ENOMEM, "out of memory: nothing was changed");
        else if (c->len > CONFIG_FILE_MAX)
                r = detail_set(d, -ENOSPC, /* larger than the limit of reading */
                        "%s would be larger than %d bytes: nothing was changed", db->path,
                        CONFIG_FILE_MAX);
        if (r < 0)
                free_change(c);
        else
                disk_do(db->disk, &c->job);
        return r;
}

int tenantdb_put(struct tenantdb *db, const struct tenant_config *row, tenantdb_done_fn done,
        void *data, struct detail *d)
{
        struct tenant_table next;
        struct tenant_config *slot;
        int r = tenant_table_copy(&db->table, &next);

        if (r < 0)
                return detail_set(d, r, "out of memory: nothing was changed");
        slot = tenant_table_find(&next, row->name);
        if (!slot)
                r = tenant_table_add(&next, row->name, &slot);
        if (r < 0) {
                tenant_table_deinit(&next);
                return detail_set(
                        d, r, "tenant %s: %s: nothing was changed", row->name, strerror(-r));
        }
        *slot = *row;
        return begin_change(db, &next, done, data, d);
}

int tenantdb_remove(
        struct tenantdb *db, const char *name, tenantdb_done_fn done, void *data, struct detail *d)
{
        struct tenant_table next;
        int r = tenant_table_copy(&db->table, &next);

        if (r < 0)
                return detail_set(d, r, "out of memory: nothing was changed");
        if (tenant_table_find(&next, name))
                tenant_table_remove(&next, name);
        return begin_change(db, &next, done, data, d);
}

void tenantdb_keep(struct tenantdb *db)
{
        struct tenantdb_change *c = &db->change;

        assert(c->is_written);
        tenant_table_deinit(&db->table);
        db->table = c->next;
        c->next = (struct tenant_table){0};
        forget_gone(db);
        db->is_torn = false;
        free_change(c);
}

void tenantdb_undo(struct tenantdb *db, int failure)
{
        assert(db->change.is_written && failure < 0);
        db->change.is_written = false;
        db->change.failure = failure;
        undo_change(db);
}

int tenantdb_explain(const struct tenantdb *db, int failure, struct detail *d)
{
        if (db->is_torn)
                return detail_set(d, failure,
                        "cannot write %s: %s: nothing was changed, but the file has the change and "
                        "can't be written back: the next start of kvleased would find it; make room or make the state directory writable, then repeat",
                        db->path, strerror(-failure));
        return detail_set(d, failure,
                "cannot write %s: %s: nothing was changed; make room or make the state directory writable, then repeat",
                db->path, strerror(-failure));
}
