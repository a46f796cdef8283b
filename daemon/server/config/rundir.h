/*
 * The runtime directory: made if it is missing, locked against a second daemon, left as it was
 * found.
 *
 *   rundir_open() -> open -> rundir_close(): removed if it was made here
 *                         -> rundir_leave(): left as a crash would leave it
 *
 * This directory and the state directory (tenantdb.h) hold all files that one daemon owns. server.c
 * opens and closes both. Loop thread only.
 */
#ifndef KVL_SERVER_RUNDIR_H
#define KVL_SERVER_RUNDIR_H

#include <stdbool.h>

#include "daemon/core/state/detail.h"
#include "daemon/server/config/lives.h"
#include "daemon/server/config/config.h"

struct rundir {
        char path[CONFIG_PATH_MAX + 1];
        int lock_fd; /* -1: not open */
        bool made, made_tenants_dir;
        bool after_crash; /* a daemon left its lock file, so t/ was that daemon's */
        struct lives lives;
};

/* Returns 0, or -errno with the sentence. -EBUSY: another daemon has it. -EPERM: the directory or
 * t/ in it has another owner, or everyone may write to it. -ELOOP: t/ is a symbolic link. */
int rundir_open(struct rundir *d, const char *path, struct detail *detail);

/* Leaves everything for the next process, as a crash would. */
void rundir_leave(struct rundir *d);

/* Removes files that it made, and directories that are empty. Allowed if it was never opened
 * (lock_fd -1). */
void rundir_close(struct rundir *d);

#endif
