/* Our other programs: finds the file of a process, and reads a program's output. */
#ifndef KVL_CTL_PROGRAM_H
#define KVL_CTL_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROGRAM_PATH_BYTES 4096
#define PROGRAM_MSEC       20000 /* time limit of program_read(). Not tuned: they print and exit */

/* Finds the file that a process was started from, or that has its name now: an upgrade replaces it.
 * `root` is the prefix of /proc. Returns 0; 1: it was replaced or removed; -errno. */
int program_of(const char *root, uint64_t pid, char ret_path[PROGRAM_PATH_BYTES]);

/* Runs argv[0] (a path; argv ends with NULL) and reads its output, less than `size` bytes, from
 * stdout and optionally stderr. Returns its exit code; -1: it wasn't started, didn't end within
 * PROGRAM_MSEC (and was killed), or printed more. */
int program_read(const char *const *argv, bool with_stderr, char *ret, size_t size);

#endif
