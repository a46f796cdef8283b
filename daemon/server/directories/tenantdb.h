/*
 * What administrators changed about tenants, kept in STATE_DIR/tenants.conf in the syntax of the
 * configuration. A row holds only the options that were set (its `set` mask): laid over the tenant
 * of the same name in the configuration, or over the defaults where there is none. What a newer
 * kvleased wrote and this one doesn't know is left out, and stays in the file until its tenant is
 * removed. A last line marks the end: a file that was cut off is refused.
 *
 * A change is written and synced by another thread (disk.h), the whole file under another name that
 * then takes the old one's place, so that a kill leaves one of the two. One at a time:
 *
 *   put, remove -> written -> done(0) -> keep   the table has it
 *                     |                \-> undo   its maker refuses it: the file is written back
 *                     \-> failed: written back            |
 *                                       \-------> done(-errno): the table is as it was
 *
 * So table and file agree, but between `written` and the end, which is for the daemon that comes
 * after a kill to find: nobody was answered then; and where a disk takes the change and not what
 * was there before it (`is_torn`): tenantdb_explain() says so, and the next change that is written,
 * or tenantdb_close(), mends it. Loop thread only.
 */
#ifndef KVL_SERVER_TENANTDB_H
#define KVL_SERVER_TENANTDB_H

#include "daemon/core/ground/detail.h"
#include "daemon/server/settings/config.h"
#include "daemon/server/system/disk.h"

#define TENANTDB_PATH_MAX (CONFIG_PATH_MAX + 16)

/* 0: the file has the change, durably; the maker says tenantdb_keep() or tenantdb_undo(), now.
 * -errno: the change is over, and not in the table. Another may be begun. */
typedef void (*tenantdb_done_fn)(void *data, int result);

/* The one under way. */
struct tenantdb_change {
        struct disk_job job;
        const char *path; /* the database's */
        struct tenant_table next;
        char *text, *before; /* of the file with it, and without; owned. NULL: there is none */
        size_t len, before_len;
        int result; /* of the job */
        bool is_written;
        int failure; /* for which it is undone */
        tenantdb_done_fn done;
        void *data; /* its; borrowed */
};

struct tenantdb {
        char path[TENANTDB_PATH_MAX], lock_path[TENANTDB_PATH_MAX];
        int lock_fd;       /* -1: not open */
        struct disk *disk; /* borrowed */
        struct tenant_table table;
        struct unknown_options unknown;
        struct tenantdb_change change;
        bool is_torn; /* the file has a change that the table hasn't */
};

/*
 * A second daemon with this directory would write over what the first one's administrators changed:
 * the directory is locked. -EBUSY: another daemon has it. *db is closed after a failure.
 *
 * Makes the directory where it is missing (0750, its parent must exist), checks that it can be
 * written to, reads the file where there is one. The disk is borrowed until tenantdb_close(). 0;
 * -errno with everything reported.
 */
int tenantdb_open(struct tenantdb *db, const char *state_dir, struct disk *disk,
        config_report_fn report, void *data);

/* No change is under way: the loop has run to its end. */
void tenantdb_close(struct tenantdb *db);

/* Borrowed until the next change is kept; NULL where nothing was changed about it. */
const struct tenant_config *tenantdb_find(const struct tenantdb *db, const char *name);

/* None is under way. Adds or replaces the row of row->name. 0: done() is called, in a later turn of
 * the loop; -errno with the sentence: nothing was begun. */
int tenantdb_put(struct tenantdb *db, const struct tenant_config *row, tenantdb_done_fn done,
        void *data, struct detail *d);

/* Removes the row of that name, with the same results as tenantdb_put(). Where there is no such row
 * it is a change all the same, which changes nothing. */
int tenantdb_remove(
        struct tenantdb *db, const char *name, tenantdb_done_fn done, void *data, struct detail *d);

/* In done(.., 0): the table has it. Another may be begun. */
void tenantdb_keep(struct tenantdb *db);

/* In done(.., 0): it can't be put in force, for `failure` (-errno), which done() is told once the
 * file is as it was, or can't be made so. */
void tenantdb_undo(struct tenantdb *db, int failure);

/* In done(), of a write that failed with this. Returns it, with the sentence. */
int tenantdb_explain(const struct tenantdb *db, int failure, struct detail *d);

#endif
