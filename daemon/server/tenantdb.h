/*
 * What administrators changed about tenants, kept in STATE_DIR/tenants.conf in the syntax of the
 * configuration. A row holds only the options that were set (its `set` mask): laid over the tenant
 * of the same name in the configuration, or over the defaults where there is none. Memory and file
 * always agree: a change that can't be written doesn't happen.
 */
#ifndef KVL_SERVER_TENANTDB_H
#define KVL_SERVER_TENANTDB_H

#include "daemon/core/detail.h"
#include "daemon/server/config.h"

#define TENANTDB_PATH_MAX (CONFIG_PATH_MAX + 16)

struct tenantdb {
        char path[TENANTDB_PATH_MAX], lock_path[TENANTDB_PATH_MAX];
        int lock_fd; /* -1: not open */
        struct tenant_table table;
};

/*
 * A second daemon with this directory would write over what the first one's administrators changed:
 * the directory is locked. -EBUSY: another daemon has it. *db is closed after a failure.
 *
 * Makes the directory where it is missing (0750, its parent must exist), checks that it can be
 * written to, reads the file where there is one. 0; -errno with everything reported.
 */
int tenantdb_open(struct tenantdb *db, const char *state_dir, config_report_fn report, void *data);
void tenantdb_close(struct tenantdb *db);

/* Borrowed until the next change; NULL where nothing was changed about it. */
const struct tenant_config *tenantdb_find(const struct tenantdb *db, const char *name);

/* Adds or replaces the row of row->name. 0; -errno with the sentence, nothing changed. */
int tenantdb_put(struct tenantdb *db, const struct tenant_config *row, struct detail *d);

/* 0 also where there is none; -errno with the sentence, nothing changed. */
int tenantdb_remove(struct tenantdb *db, const char *name, struct detail *d);

#endif
