#include "daemon/server/base/creds.h"

#include <errno.h>
#include <grp.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/parse.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* kernel, since 6.5 */
#endif

/* Supplementary groups; owned; NULL: none, or too many. */
static int get_groups(int fd, struct creds *c)
{
        socklen_t len = 0;
        gid_t *groups;

        /* Without a buffer the kernel tells the needed size. */
        if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, NULL, &len) == 0 || errno == ENODATA)
                return 0;
        if (errno != ERANGE)
                return -errno;
        c->has_too_many = len > CREDS_GROUPS_MAX * sizeof(*groups);
        if (c->has_too_many)
                return 0;
        groups = malloc(len);
        if (!groups)
                return -ENOMEM;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &len) < 0) {
                free(groups);
                return -errno;
        }
        c->groups = groups;
        c->n_groups = len / sizeof(*groups);
        return 0;
}

int creds_get(int fd, struct creds *ret_creds)
{
        struct creds c = {0};
        struct ucred cred;
        socklen_t len = sizeof(cred);
        int r;

        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
                return -errno;
        c.pid = cred.pid;
        c.uid = cred.uid;
        c.gid = cred.gid;
        r = get_groups(fd, &c);
        if (r < 0)
                return r;
        *ret_creds = c;
        return 0;
}

void creds_deinit(struct creds *c)
{
        free(c->groups);
        *c = (struct creds){0};
}

int creds_peer_pidfd(int fd)
{
        int pidfd = -1;
        socklen_t len = sizeof(pidfd);

        return getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &len) < 0 ? -errno : pidfd;
}

int creds_open_pidfd(pid_t pid)
{
        long fd = syscall(SYS_pidfd_open, pid, 0);

        return fd < 0 ? -errno : (int)fd;
}

bool creds_pidfd_exited(int pidfd)
{
        struct pollfd p = {.fd = pidfd, .events = POLLIN};

        return poll(&p, 1, 0) != 0;
}

int group_number(const char *name, gid_t *ret_gid)
{
        const struct group *g = getgrnam(name);
        uint64_t number;

        if (!g && (parse_u64(name, &number) < 0 || number >= (gid_t)-1))
                return -ENOENT;
        *ret_gid = g ? g->gr_gid : (gid_t)number;
        return 0;
}
