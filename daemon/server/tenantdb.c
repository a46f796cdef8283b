#include "daemon/server/tenantdb.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/fd.h"
#include "base/macros.h"
#include "daemon/server/lockfile.h"

#define HEAD \
        "# Written by kvleased: what kvleasectl changed. Laid over the configuration at start.\n"

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

/* Who can write there can write down tenants of their own. */
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

static int open_dir(const char *state_dir, config_report_fn report, void *data)
{
        int r = 0;

        if (mkdir(state_dir, 0750) < 0 && errno != EEXIST)
                r = -errno;
        if (r == 0 && access(state_dir, W_OK | X_OK) < 0)
                r = -errno;
        if (r < 0)
                report_error(report, data,
                        "cannot write to the state directory %s: %s: make it writable for uid %u "
                        "or "
                        "give another by --state-dir",
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
        if (db->lock_fd != -EBUSY) {
                report_error(report, data,
                        "cannot lock %s: %s: remove it, once no kvleased of another user uses it, "
                        "or "
                        "make it writable for uid %u",
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

static int read_table(struct tenantdb *db, config_report_fn report, void *data)
{
        _cleanup_free_ char *text = NULL;
        size_t len = 0;
        int r = file_read(db->path, CONFIG_FILE_MAX, &text, &len);

        if (r == -ENOENT)
                return 0;
        if (r < 0) {
                report_error(report, data,
                        "cannot read %s: %s: make it readable for uid %u, or move it away to start "
                        "with the tenants of the configuration alone",
                        db->path, strerror(-r), (unsigned)geteuid());
                return r;
        }
        r = config_parse_tenants(db->path, text, len, &db->table, report, data);
        if (r < 0)
                report_error(report, data,
                        "%s cannot be used: correct it, or move it away to start with the tenants "
                        "of "
                        "the configuration alone",
                        db->path);
        return r;
}

int tenantdb_open(struct tenantdb *db, const char *state_dir, config_report_fn report, void *data)
{
        int r;

        *db = (struct tenantdb){.lock_fd = -1};
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

void tenantdb_close(struct tenantdb *db)
{
        db->lock_fd = lockfile_drop(db->lock_path, db->lock_fd);
        tenant_table_deinit(&db->table);
}

const struct tenant_config *tenantdb_find(const struct tenantdb *db, const char *name)
{
        return tenant_table_find(&db->table, name);
}

static void write_row(FILE *f, const struct tenant_config *row)
{
        char value[OPTION_VALUE_MAX];

        fprintf(f, "\n[tenant %s]\n", row->name);
        for (size_t i = 0; i < n_options; i++) {
                const struct option *o = &options[i];

                if (o->section == SECTION_TENANT && (row->set & option_bit(o)))
                        fprintf(f, "%s = %s\n", o->key, option_format(o, row, value));
        }
}

/* The file's text for a table: owned, or NULL without memory. */
static char *format_table(const struct tenant_table *t, size_t *ret_len)
{
        char *text = NULL;
        FILE *f = open_memstream(&text, ret_len);
        bool failed;

        if (!f)
                return NULL;
        fputs(HEAD, f);
        for (size_t i = 0; i < t->n; i++)
                write_row(f, &t->rows[i]);
        failed = ferror(f);
        if (fclose(f) != 0 || failed) {
                free(text);
                return NULL;
        }
        return text;
}

static int write_table(const struct tenantdb *db, const struct tenant_table *t)
{
        size_t len = 0;
        _cleanup_free_ char *text = format_table(t, &len);

        if (!text)
                return -ENOMEM;
        if (len > CONFIG_FILE_MAX)
                return -ENOSPC; /* what it couldn't read again */
        return file_replace(db->path, text, len, 0640);
}

/* Writes `next` and makes it the table; takes it in any case. */
static int commit(struct tenantdb *db, struct tenant_table *next, struct detail *d)
{
        int r = write_table(db, next);

        if (r < 0) {
                /* The new file may be in place already, without being sure to last. */
                (void)write_table(db, &db->table);
                tenant_table_deinit(next);
                return detail_set(d, r,
                        "cannot write %s: %s: nothing was changed; make room or make the state "
                        "directory writable, then repeat",
                        db->path, strerror(-r));
        }
        tenant_table_deinit(&db->table);
        db->table = *next;
        return 0;
}

int tenantdb_put(struct tenantdb *db, const struct tenant_config *row, struct detail *d)
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
        return commit(db, &next, d);
}

int tenantdb_remove(struct tenantdb *db, const char *name, struct detail *d)
{
        struct tenant_table next;
        int r;

        if (!tenantdb_find(db, name))
                return 0;
        r = tenant_table_copy(&db->table, &next);
        if (r < 0)
                return detail_set(d, r, "out of memory: nothing was changed");
        tenant_table_remove(&next, name);
        return commit(db, &next, d);
}
