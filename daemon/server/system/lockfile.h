/*
 * A file that keeps a second daemon away while this one lives: flock(), with the pid as text for
 * people. A daemon that is killed leaves the file, never the lock.
 */
#ifndef KVL_SERVER_LOCKFILE_H
#define KVL_SERVER_LOCKFILE_H

#include <stdint.h>

/*
 * Returns the descriptor (owned) that holds the lock; -EBUSY: another process has it; -errno. What
 * is no regular file, a symbolic link for one, is -ELOOP or -EINVAL. In a directory where others
 * may write it promises nothing.
 *
 * The file has mode 0600: whoever may open it could lock it. One that is there already and that
 * others could open, another's, or one with several names, is replaced, locked or not: by then its
 * lock may be anybody's. It is left, as -EBUSY, where it is locked and names a process of its
 * owner's that lives: an older kvleased. Of several processes that try at once one gets it.
 */
int lockfile_take(const char *path);

/* The pid in it; 0 where it can't be told. */
uint64_t lockfile_owner(const char *path);

/* Removes it and lets go. Returns -1, for the caller's variable. fd -1: nothing. */
int lockfile_drop(const char *path, int fd);

#endif
