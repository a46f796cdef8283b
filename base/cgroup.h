/* Memory limits and kills of a process' control groups: version 2, and the memory controller of
 * version 1. Reads small files. Thread-safe. */
#ifndef KVL_BASE_CGROUP_H
#define KVL_BASE_CGROUP_H

#include <stddef.h>
#include <stdint.h>

#define CGROUP_PATH_MAX 1024

/*
 * Finds the lowest memory limit from the process' own group up, and the group that has it. `root`:
 * "" or the directory with the host's /proc and /sys. pid 0: the calling process. Returns 0;
 * -ENODATA: no group has a limit; -EXDEV: the group is outside of the caller's cgroup namespace;
 * else -errno: the groups can't be read.
 */
int cgroup_memory_limit(
        const char *root, uint64_t pid, char ret_group[CGROUP_PATH_MAX], uint64_t *ret_bytes);

/* Number of processes that the kernel has killed for lack of memory: in the calling process' group
 * since it was made, and on the host since its start. 0 if unreadable. */
struct cgroup_oom_kills {
        uint64_t of_group, of_host;
};
struct cgroup_oom_kills cgroup_oom_kills(void);

#endif
