/*
 * A lock file that excludes a second daemon: flock(), with the pid as text for people. A killed
 * daemon leaves the file, never the lock.
 */
#ifndef KVL_SERVER_LOCKFILE_H
#define KVL_SERVER_LOCKFILE_H

#include <stdint.h>

/*
 * Returns the descriptor (owned) that holds the lock; -EBUSY: another process has it; -errno. A
 * symbolic link is -ELOOP, another non-regular file -EINVAL. The lock is only reliable in a
 * directory where no other user may write.
 *
 * The file has mode 0600: every process that may open it could lock it. An existing file that
 * others could open, that another user owns, or that has several names is replaced, locked or not:
 * any process may hold its lock. Exception: -EBUSY if it is locked and names a living process of
 * its owner (an older kvleased). If several processes try at once, one gets it.
 */
int lockfile_take(const char *path);

/* The pid in the file; 0: unknown. */
uint64_t lockfile_owner(const char *path);

/* Removes the file and releases the lock. Returns -1, for the caller's variable. Nothing for fd
 * -1. */
int lockfile_drop(const char *path, int fd);

#endif
