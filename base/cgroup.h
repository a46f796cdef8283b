/* What the control groups of a process say of its memory: version 2, and the memory controller of
 * version 1. Reads small files; any thread. */
#ifndef KVL_BASE_CGROUP_H
#define KVL_BASE_CGROUP_H

#include <stddef.h>
#include <stdint.h>

#define CGROUP_PATH_MAX 1024

/*
 * The lowest limit of memory from the process' own group up, and the group that has it. `root`: ""
 * or the directory that has the host's /proc and /sys. pid 0: the calling process. 0; -ENODATA: no
 * group has a limit; -EXDEV: its group is outside of the caller's cgroup namespace; else -errno:
 * its groups can't be read.
 */
int cgroup_memory_limit(
        const char *root, uint64_t pid, char ret_group[CGROUP_PATH_MAX], uint64_t *ret_bytes);

/* How often the kernel has killed a process for want of memory: of the calling process' group since
 * that was made, and of the host since its start. 0 where it can't be read. */
struct cgroup_oom_kills {
        uint64_t of_group, of_host;
};
struct cgroup_oom_kills cgroup_oom_kills(void);

#endif
