/*
 * Tenant settings that administrators changed, stored in STATE_DIR/tenants.conf in the syntax of
 * the configuration. A row holds only the options that were set (its `set` mask). These are laid
 * over the tenant of the same name in the configuration, or over the defaults. Options that this
 * version doesn't know are ignored, and stay in the file until their tenant is removed. A last line
 * marks the end: a truncated file is refused.
 *
 * Another thread writes and syncs a change (disk.h): the whole file under another name, which then
 * replaces the old file. A kill therefore leaves one of the two. There is one change at a time:
 *
 *   put, remove -> written -> done(0) -> keep   the table has it
 *                     |    \-> undo   its maker refuses it: the file is written back
 *                     \-> failed: written back      |
 *                           \-------> done(-errno): the table is as it was
 *
 * Table and file agree, with two exceptions:
 * - Between `written` and the end. A daemon that is killed there has answered no client; the next
 *   daemon reads the file.
 * - If the disk takes the change but not its undo (`is_torn`). tenantdb_explain() reports that; the
 *   next written change, or tenantdb_close(), repairs it.
 * Loop thread only.
 */
#ifndef KVL_SERVER_TENANTDB_H
#define KVL_SERVER_TENANTDB_H

#include "daemon/core/state/detail.h"
#include "daemon/server/config/config.h"
#include "daemon/server/base/disk.h"

#define TENANTDB_PATH_MAX (CONFIG_PATH_MAX + 16)

/* Result 0: the file has the change, durably; the callback calls tenantdb_keep() or
 * tenantdb_undo(). -errno: the change has ended, and is not in the table. Another may be begun. */
typedef void (*tenantdb_done_fn)(void *data, int result);

/* The change in progress. */
struct tenantdb_change {
        struct disk_job job;
        const char *path; /* the database's */
        struct tenant_table next;
        char *text, *before; /* texts of the file with the change, and without it; owned; NULL: no
                                change */
        size_t len, before_len;
        int result; /* of the job */
        bool is_written;
        int failure; /* error for which it is undone */
        tenantdb_done_fn done;
        void *data; /* of done(); borrowed */
};

struct tenantdb {
        char path[TENANTDB_PATH_MAX], lock_path[TENANTDB_PATH_MAX];
        int lock_fd;       /* -1: not open */
        struct disk *disk; /* borrowed */
        struct tenant_table table;
        struct unknown_options unknown;
        struct tenantdb_change change;
        bool is_torn; /* the file has a change that the table lacks */
};

/*
 * Opens the database and locks its directory: a second daemon would overwrite the first one's
 * changes. Makes a missing directory (0750, its parent must exist), checks that it is writable, and
 * reads the file if there is one. The disk is borrowed until tenantdb_close().
 *
 * Returns 0, or -errno with everything reported and *db closed. -EBUSY: another daemon has it.
 */
int tenantdb_open(struct tenantdb *db, const char *state_dir, struct disk *disk,
        config_report_fn report, void *data);

/* Called without a change in progress: the loop has run to its end. */
void tenantdb_close(struct tenantdb *db);

/* Returns the tenant's row, borrowed until the next change; NULL: no administrator changed the
 * tenant. */
const struct tenant_config *tenantdb_find(const struct tenantdb *db, const char *name);

/* Adds or replaces the row of row->name; called without a change in progress. 0: done() is called
 * in a later turn of the loop. -errno with the sentence: nothing was begun. */
int tenantdb_put(struct tenantdb *db, const struct tenant_config *row, tenantdb_done_fn done,
        void *data, struct detail *d);

/* Removes the row of that name, with the results of tenantdb_put(). Without such a row, a change
 * that changes nothing is made all the same. */
int tenantdb_remove(
        struct tenantdb *db, const char *name, tenantdb_done_fn done, void *data, struct detail *d);

/* Called in done(.., 0): puts the change into the table. Another may be begun. */
void tenantdb_keep(struct tenantdb *db);

/* Called in done(.., 0) if the change can't be put in force for `failure` (-errno). done() is
 * called with this once the file is restored, or can't be. */
void tenantdb_undo(struct tenantdb *db, int failure);

/* Called in done() for a failed write. Returns `failure`, with the sentence. */
int tenantdb_explain(const struct tenantdb *db, int failure, struct detail *d);

#endif
