/*
 * A file that keeps a second daemon away while this one lives: flock(), with the pid as text for
 * people. A daemon that is killed leaves the file, never the lock.
 */
#ifndef KVL_SERVER_LOCKFILE_H
#define KVL_SERVER_LOCKFILE_H

#include <stdint.h>

/*
 * Returns the descriptor (owned) that holds the lock; -EBUSY: another process has it; -errno. What
 * is no regular file, a symbolic link for one, is -ELOOP or -EINVAL.
 */
int lockfile_take(const char *path);

/* The pid in it; 0 where it can't be told. */
uint64_t lockfile_owner(const char *path);

/* Removes it and lets go. Returns -1, for the caller's variable. fd -1: nothing. */
int lockfile_drop(const char *path, int fd);

#endif
