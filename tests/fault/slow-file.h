/*
 * A file of a FUSE server, which is a process of its own. A victim that closes a descriptor of it
 * (FLUSH) waits in the kernel for slow_file_end() or the end of the test's process. Only SIGKILL
 * interrupts that. Other processes don't wait.
 */
#ifndef KVL_TEST_SLOW_FILE_H
#define KVL_TEST_SLOW_FILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#define SLOW_FILE_VICTIMS 2

struct slow_file {
        int fd; /* of the file; owned */
        pid_t victims[SLOW_FILE_VICTIMS];
        pid_t server;
        _Atomic unsigned *n_flushes; /* shared with the server */
};

/* Returns false after a message: there is no FUSE here, or no right to mount. */
bool slow_file_begin(struct slow_file *f, const pid_t victims[SLOW_FILE_VICTIMS]);

/* How often a victim has closed a descriptor of the file. */
unsigned slow_file_flushes(const struct slow_file *f);

/* Ends the server and closes fd: waiting victims continue. */
void slow_file_end(struct slow_file *f);

#endif
