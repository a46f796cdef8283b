/*
 * How the daemons before this one ended, in the lock file of the runtime directory behind the pid:
 * nobody else remembers that, where somebody starts each anew. One that ends in order says so
 * there. Loop thread only.
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
                bool is_for_memory; /* the kernel killed somebody for want of it meanwhile */
        } deaths[LIVES_MAX];        /* of the hour before the start, the newest last */
        uint32_t n;
        uint64_t pause_nsec; /* before this one serves, so that such deaths don't follow at once */
};

/* Reads the text of the lock file, as it was before this daemon took it (NULL: there was none), and
 * writes down in `lock_fd` what the next one is to find. 0 or -errno. */
int lives_begin(struct lives *l, const char *text, const struct cgroup_oom_kills *now, int lock_fd);

/* This one ends in order, and leaves the file. */
void lives_end(int lock_fd);

/* Deaths in the last hour; for_memory: those alone that were probably for want of memory. */
uint32_t lives_count(const struct lives *l, bool for_memory);

#endif
