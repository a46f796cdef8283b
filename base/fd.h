/*
 * File descriptors: closing, taking, counting, memory files, whole-file replacement.
 * An fd variable that owns nothing holds -1. All functions are thread-safe.
 */
#ifndef KVL_BASE_FD_H
#define KVL_BASE_FD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/macros.h"

/*
 * Returns another, owned descriptor of the same memory file, for reading and read-only mappings.
 * Never waits. A process of the same uid that sees /proc can undo that, and one with
 * CAP_DAC_OVERRIDE over the file. Others can't, as memfd_create_sized() leaves them no right.
 * -EAGAIN: another process has a lease of the file (F_SETLEASE); another -errno.
 */
int fd_reopen_read_only(int fd);

/* Closes fd unless it is negative, keeps errno, returns -1: `fd = fd_close(fd);`. */
int fd_close(int fd);

static inline void cleanup_fd_p(int *fd)
{
        fd_close(*fd);
}
#define _cleanup_fd_ __attribute__((cleanup(cleanup_fd_p)))

static inline int fd_take(int *fd)
{
        int taken = *fd;

        *fd = -1;
        return taken;
}

/* Opens /dev/null for those of the descriptors 0, 1 and 2 that are closed. Otherwise files of the
 * program would get their numbers: other code prints to these, and libuv refuses to close them.
 * Call it before other threads start. Returns 0 or -errno (some may still be closed). */
int fd_open_standard(void);

/*
 * Makes an unnamed memory file of `bytes` bytes, close-on-exec, sealed against resizing, never
 * executable. `name` shows in /proc/PID/maps (at most 200 bytes). Returns an owned fd or -errno.
 * PUNCH_HOLE keeps working on it (seen on Linux 6.1 and 6.18).
 */
int memfd_create_sized(const char *name, uint64_t bytes);

/*
 * Maps the first `bytes` bytes of a memory file for reading and writing, shared with its other
 * mappings. fd -1: memory of this process alone, which takes nothing until it is touched. Core
 * dumps leave it out: it has tenants' keys, and may be as large as a device. Unmap it by munmap().
 * Returns NULL with errno.
 */
void *memory_map(int fd, uint64_t bytes);

/* Gives `len` bytes at `offset` back to the system; they read as zeros afterwards. 0 or -errno. */
int fd_punch_hole(int fd, uint64_t offset, uint64_t len);

/*
 * Replaces the file at `path` by `len` bytes: written beside it, fsynced, renamed, directory
 * fsynced. Returns 0 or -errno. After a failure the old file is untouched and nothing is left
 * beside it. Exception: if the directory's fsync failed, the new file is there, but may not survive
 * a power loss.
 */
int file_replace(const char *path, const void *data, size_t len, unsigned mode);

/* Reads up to `size` bytes, less if the file ends before. Returns their number, or -errno. */
ssize_t fd_read(int fd, void *to, size_t size);

/* Reads `size` bytes at `offset`. Returns 0; -ENODATA: the file ends before; another -errno. */
int fd_read_at(int fd, void *to, size_t size, uint64_t offset);

/* Reads a whole file of at most `max` bytes into a NUL-terminated owned buffer. Returns 0; -EFBIG:
 * it is longer; other -errno. ret_* are untouched on failure. */
int file_read(const char *path, size_t max, char **ret_data, size_t *ret_len);

/* Does file_read() for a regular file, or a symbolic link to one. Refuses others without waiting:
 * -EISDIR for a directory, -EBADFD for a FIFO, a socket or a device. For files that a thread reads
 * which also serves others. */
int file_read_regular(const char *path, size_t max, char **ret_data, size_t *ret_len);

/* Returns the meaning of a negative result of these two, to follow a colon. Never NULL; static. */
const char *file_read_error(int error);

#endif
