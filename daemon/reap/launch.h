#ifndef KVL_REAP_LAUNCH_H
#define KVL_REAP_LAUNCH_H

#include <sys/types.h>

/*
 * Starts the process. 0 with an owned end of its socket, and its pid, which the caller waits for;
 * -errno: there is none. Takes about a millisecond: until it has called execve(2). socket_bytes: as
 * in reaper.h.
 */
int reap_launch(const char *exe, int socket_bytes, int *ret_fd, pid_t *ret_pid);

#endif
