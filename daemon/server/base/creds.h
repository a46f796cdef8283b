/*
 * The kernel's facts about a process: its credentials at the other end of a socket, whether it
 * still lives, and the numbers of groups. access.h decides whether it may connect. Any thread,
 * except group_number(): loop thread.
 */
#ifndef KVL_SERVER_CREDS_H
#define KVL_SERVER_CREDS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The uid that the kernel shows for users without a number here: it stands for many. */
#define UID_NOBODY 65534

/* Bound of supplementary groups: if a process has more, none are known. Linux allows 65,536, and
 * takes 2 ms to read them. Not tuned. */
#define CREDS_GROUPS_MAX 4096

struct creds {
        pid_t pid;
        uid_t uid;
        gid_t gid;
        gid_t *groups; /* owned; supplementary groups */
        size_t n_groups;
        bool has_too_many; /* its supplementary groups are too many, and unknown */
};

/* Gets the credentials of the process that connected `fd`. Returns 0 or -errno. */
int creds_get(int fd, struct creds *ret_creds);
void creds_deinit(struct creds *c);

/*
 * A descriptor of that process, made by the kernel at connect() (Linux 6.5): never of a later
 * process with the same number. Owned; -ENOPROTOOPT: an older kernel.
 */
int creds_peer_pidfd(int fd);

/* Opens a descriptor of the process that has the number now. Owned, or -errno. */
int creds_open_pidfd(pid_t pid);

/* True where the process has exited. */
bool creds_pidfd_exited(int pidfd);

/*
 * Number of a group by its name, or by that number, for which containers may have no name. Returns
 * 0; -ENOENT: this machine has no such group.
 */
int group_number(const char *name, gid_t *ret_gid);

#endif
