/* Other programs of ours: which one a process runs, and what one prints. */
#ifndef KVL_CTL_PROGRAM_H
#define KVL_CTL_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROGRAM_PATH_BYTES 4096
#define PROGRAM_MSEC       20000 /* that program_read() waits. Not tuned: they print and exit */

/*
 * The file that a process was started from, or what has its name now: an upgrade replaces it.
 * `root` is what stands before /proc. 0; 1: it was replaced or removed; -errno.
 */
int program_of(const char *root, uint64_t pid, char ret_path[PROGRAM_PATH_BYTES]);

/*
 * Runs argv[0] (a path; argv ends with NULL) and reads what it prints, less than `size` bytes, on
 * stdout, and on stderr where that is wanted. Its exit code; -1: it wasn't started, didn't end
 * within PROGRAM_MSEC (it is killed then), or printed more.
 */
int program_read(const char *const *argv, bool with_stderr, char *ret, size_t size);

#endif
