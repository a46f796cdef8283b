/*
 * The runtime directory: made where missing, locked against a second daemon, left as it was found.
 *
 *   rundir_open() -> open -> rundir_close(): removed where it was made here
 *                         -> rundir_leave(): as a daemon that crashed leaves it
 *
 * With the state directory's tenants.conf (tenantdb.h) this is the room of what one daemon has for
 * itself in the file system. server.c opens and closes both. Loop thread only.
 */
#ifndef KVL_SERVER_RUNDIR_H
#define KVL_SERVER_RUNDIR_H

#include <stdbool.h>

#include "daemon/core/ground/detail.h"
#include "daemon/server/directories/lives.h"
#include "daemon/server/settings/config.h"

struct rundir {
        char path[CONFIG_PATH_MAX + 1];
        int lock_fd; /* -1: not open */
        bool made, made_tenants_dir;
        bool after_crash; /* a daemon left its lock file, so what is in t/ was its */
        struct lives lives;
};

/* 0, or -errno with the sentence; -EBUSY: another daemon has it; -EPERM: it, or
 * t/ in it, is somebody else's, or everybody may write there; -ELOOP: t/ is a symbolic link. */
int rundir_open(struct rundir *d, const char *path, struct detail *detail);

/* The process ends and leaves everything for the next one, as a crash would. */
void rundir_leave(struct rundir *d);

/* Removes what it made and is empty. Safe on one that was never opened (lock_fd -1). */
void rundir_close(struct rundir *d);

#endif
