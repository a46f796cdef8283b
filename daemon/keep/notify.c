#include "daemon/keep/notify.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/fd.h"

/* Makes a directory in the first writable of these: static paths, and variables. */
static int make_dir(char *ret, size_t size)
{
        const char *const tops[] = {
                getenv("RUNTIME_DIRECTORY"), getenv("XDG_RUNTIME_DIR"), "/run", "/tmp"};

        for (size_t i = 0; i < ARRAY_SIZE(tops); i++) {
                int len = tops[i] ? snprintf(ret, size, "%s/kvleased-keep-XXXXXX", tops[i]) : -1;

                if (len > 0 && (size_t)len + sizeof("/notify") <= size && mkdtemp(ret))
                        return 0;
        }
        ret[0] = '\0';
        return -EACCES;
}

int notify_open(struct notify *n)
{
        int on = 1, r;

        *n = (struct notify){.fd = -1, .address.sun_family = AF_UNIX};
        r = make_dir(n->dir, sizeof(n->dir));
        if (r < 0)
                return r;
        snprintf(n->address.sun_path, sizeof(n->address.sun_path), "%.100s/notify", n->dir);
        n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (n->fd < 0 || bind(n->fd, (struct sockaddr *)&n->address, sizeof(n->address)) < 0 ||
                setsockopt(n->fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0) {
                r = -errno;
                notify_close(n);
        }
        return r;
}

void notify_close(struct notify *n)
{
        n->fd = fd_close(n->fd);
        if (n->dir[0]) {
                unlink(n->address.sun_path);
                rmdir(n->dir);
        }
        n->dir[0] = '\0';
}

static void take_control(struct msghdr *h, struct notify_message *m)
{
        for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
                size_t len = c->cmsg_len - CMSG_LEN(0);
                struct ucred creds;

                if (c->cmsg_level != SOL_SOCKET)
                        continue;
                if (c->cmsg_type == SCM_RIGHTS) {
                        m->n_fds = (unsigned)(len / sizeof(int));
                        memcpy(m->fds, CMSG_DATA(c), m->n_fds * sizeof(int));
                } else if (c->cmsg_type == SCM_CREDENTIALS && len == sizeof(creds)) {
                        memcpy(&creds, CMSG_DATA(c), sizeof(creds));
                        m->pid = creds.pid;
                }
        }
}

int notify_receive(const struct notify *n, struct notify_message *ret)
{
        union {
                struct cmsghdr align;
                char bytes[CMSG_SPACE(sizeof(struct ucred)) +
                           CMSG_SPACE(NOTIFY_MAX_FDS * sizeof(int))];
        } control;
        struct iovec iov = {ret->text, NOTIFY_MAX_BYTES};
        struct msghdr h = {
                .msg_iov = &iov,
                .msg_iovlen = 1,
                .msg_control = &control,
                .msg_controllen = sizeof(control),
        };
        ssize_t len = recvmsg(n->fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

        if (len < 0)
                return 0;
        ret->n_fds = 0;
        ret->pid = 0;
        take_control(&h, ret);
        if (h.msg_flags & MSG_TRUNC)
                len = 0;
        ret->text[len] = '\0';
        return 1;
}

/* Behind NAME=, NULL. */
static const char *find_value(const char *text, const char *name)
{
        size_t len = strlen(name);

        for (const char *line = text; line; line = strchr(line, '\n')) {
                line += *line == '\n';
                if (strncmp(line, name, len) == 0 && line[len] == '=')
                        return line + len + 1;
        }
        return NULL;
}

bool notify_has(const char *text, const char *line)
{
        size_t len = strlen(line);

        for (const char *l = text; l; l = strchr(l, '\n')) {
                l += *l == '\n';
                if (strncmp(l, line, len) == 0 && (l[len] == '\n' || l[len] == '\0'))
                        return true;
        }
        return false;
}

bool notify_get(const char *text, const char *name, char *ret, size_t size)
{
        const char *value = find_value(text, name);
        size_t len = value ? strcspn(value, "\n") : size;

        if (len >= size)
                return false;
        memcpy(ret, value, len);
        ret[len] = '\0';
        return true;
}

void notify_say(const char *address, const char *text)
{
        static const struct timeval patience = {.tv_sec = 1}; /* not tuned */
        struct sockaddr_un to = {.sun_family = AF_UNIX};
        size_t len = address ? strlen(address) : 0;
        int fd;

        if (len < 2 || len >= sizeof(to.sun_path) || (address[0] != '/' && address[0] != '@'))
                return;
        memcpy(to.sun_path, address, len);
        if (address[0] == '@')
                to.sun_path[0] = '\0';
        fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
                return;
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
        (void)sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&to,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
        fd_close(fd);
}
