/*
 * How previous daemons ended. The lock file of the runtime directory records each death after the
 * pid, because the service manager that restarts the daemon doesn't keep it. A daemon that ends
 * normally says so there. Loop thread only.
 */
#ifndef KVL_SERVER_LIVES_H
#define KVL_SERVER_LIVES_H

#include <stdbool.h>
#include <stdint.h>

struct cgroup_oom_kills;

#define LIVES_MAX 64 /* deaths that are remembered; not tuned */

struct lives {
        struct {
                uint64_t sec;       /* of the boot clock */
                bool is_for_memory; /* the kernel's OOM killer acted meanwhile */
        } deaths[LIVES_MAX];        /* of the hour before the start, the newest last */
        uint32_t n;
        uint64_t pause_nsec; /* pause before serving, so that such deaths don't follow at once */
};

/* Reads the text of the lock file as it was before this daemon took it (NULL: none), and writes the
 * text for the next daemon into `lock_fd`. Returns 0 or -errno. */
int lives_begin(struct lives *l, const char *text, const struct cgroup_oom_kills *now, int lock_fd);

/* Records that this daemon ends normally, and leaves the file. */
void lives_end(int lock_fd);

/* Deaths in the last hour. for_memory: only those that were probably for want of memory. */
uint32_t lives_count(const struct lives *l, bool for_memory);

#endif
