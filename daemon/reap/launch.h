#ifndef KVL_REAP_LAUNCH_H
#define KVL_REAP_LAUNCH_H

#include <sys/types.h>

/*
 * Starts the process. Returns 0 with an owned end of its socket, and its pid, for which the caller
 * waits; or -errno. Takes about a millisecond, until the process has called execve(2).
 * socket_bytes: see reaper.h.
 */
int reap_launch(const char *exe, int socket_bytes, int *ret_fd, pid_t *ret_pid);

#endif
