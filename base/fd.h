/*
 * File descriptors: closing, taking, counting, memory files, whole-file replacement.
 * An fd variable that owns nothing holds -1. All functions are thread-safe.
 */
#ifndef KVL_BASE_FD_H
#define KVL_BASE_FD_H

#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

/*
 * Another descriptor of the same memory file, that can only be read from and mapped for reading.
 * Where /proc can be seen, a process of the same uid can undo that, and one with CAP_DAC_OVERRIDE
 * over the file; others can't, as memfd_create_sized() leaves them no right. Never waits. Returns
 * an owned fd; -EAGAIN: another process has a lease of the file (F_SETLEASE); another -errno.
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

/*
 * Opens /dev/null as those of the descriptors 0, 1 and 2 that are closed: a program that is started
 * so would give their numbers to files of its own, to which others then print, and which libuv
 * refuses to close. Before other threads are started. 0 or -errno, with some of them closed still.
 */
int fd_open_standard(void);

/*
 * Makes an unnamed memory file of `bytes` bytes, close-on-exec, sealed against resizing, never
 * executable. `name` shows in /proc/PID/maps (at most 200 bytes). Returns an owned fd or -errno.
 * PUNCH_HOLE keeps working on it (seen on Linux 6.1 and 6.18).
 */
int memfd_create_sized(const char *name, uint64_t bytes);

/*
 * Maps the first `bytes` bytes of a memory file to read and write, shared with whoever else has
 * them mapped. fd -1: memory of this process alone, which costs nothing until it is touched. No
 * core dump has them (they are tenants' keys, and as large as a device is). To be unmapped by
 * munmap(). NULL with errno.
 */
void *memory_map(int fd, uint64_t bytes);

/* Gives `len` bytes at `offset` back to the system; they read as zeros afterwards. 0 or -errno. */
int fd_punch_hole(int fd, uint64_t offset, uint64_t len);

/*
 * Replaces the file at `path` by `len` bytes: written beside it, fsynced, renamed, directory
 * fsynced. After a failure the old file is untouched and nothing is left beside it; only where the
 * directory's fsync is what failed, the new file stands but may not survive a power loss.
 * 0 or -errno.
 */
int file_replace(const char *path, const void *data, size_t len, unsigned mode);

/*
 * Reads a whole file of at most `max` bytes into a NUL-terminated owned buffer.
 * 0; -EFBIG where it is longer; other -errno. ret_* untouched on failure.
 */
int file_read(const char *path, size_t max, char **ret_data, size_t *ret_len);

/*
 * The same of a regular file, or a symbolic link to one. Anything else is refused without waiting
 * for it: -EISDIR for a directory, -EBADFD for a FIFO, a socket or a device. For files that one
 * thread, which has others to serve, reads.
 */
int file_read_regular(const char *path, size_t max, char **ret_data, size_t *ret_len);

/* What a negative result of these two means, for a sentence behind a colon. Never NULL; static. */
const char *file_read_error(int error);

#endif
