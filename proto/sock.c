#include "proto/sock.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"

#define FDS_SPACE CMSG_SPACE(FRAME_MAX_FDS * sizeof(int))

struct received {
        int fds[FDS_SPACE / sizeof(int)];
        unsigned n_fds;
};

static ssize_t send_with_fds(int fd, struct iovec *iov, const int *fds, unsigned n_fds)
{
        union {
                char bytes[FDS_SPACE];
                struct cmsghdr align;
        } control = {0};
        struct msghdr msg = {
                .msg_iov = iov,
                .msg_iovlen = 1,
                .msg_control = &control,
                .msg_controllen = CMSG_SPACE(n_fds * sizeof(int)),
        };
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
        return sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t sock_send(int fd, const void *data, size_t len, const int *fds, unsigned n_fds)
{
        struct iovec iov = {(void *)data, len};
        ssize_t n;

        if (len == 0 || n_fds > FRAME_MAX_FDS)
                return -EINVAL;
        do
                n = n_fds > 0 ? send_with_fds(fd, &iov, fds, n_fds)
                              : send(fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        while (n < 0 && errno == EINTR);
        return n < 0 ? -errno : n;
}

static void read_control(struct msghdr *msg, struct received *ret)
{
        for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
                size_t bytes = c->cmsg_len - CMSG_LEN(0);

                if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
                        continue;
                memcpy(ret->fds + ret->n_fds, CMSG_DATA(c), bytes);
                ret->n_fds += (unsigned)(bytes / sizeof(int));
        }
}

ssize_t sock_receive(int fd, struct frame_parser *p)
{
        union {
                char bytes[FDS_SPACE];
                struct cmsghdr align;
        } buf;
        struct iovec iov;
        struct msghdr msg = {
                .msg_iov = &iov,
                .msg_iovlen = 1,
                .msg_control = &buf,
                .msg_controllen = sizeof(buf),
        };
        struct received got;
        ssize_t n;
        int r;

        iov.iov_base = frame_parser_space(p, &iov.iov_len);
        if (iov.iov_len == 0)
                return -ENOBUFS; /* reading nothing would look like the end of the stream */
        do
                n = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        while (n < 0 && errno == EINTR);
        if (n < 0)
                return -errno;
        got.n_fds = 0;
        read_control(&msg, &got);
        if (msg.msg_flags & MSG_CTRUNC) {
                /* There was room for more, so this process can't take another fd. */
                r = got.n_fds < FRAME_MAX_FDS ? -EMFILE : -EPROTO;
                while (got.n_fds > 0)
                        fd_close(got.fds[--got.n_fds]);
                return r;
        }
        r = frame_parser_fed(p, (size_t)n, got.fds, got.n_fds);
        return r < 0 ? r : n;
}

static int make_address(const char *path, struct sockaddr_un *ret_address)
{
        size_t len = strlen(path);

        if (len == 0)
                return -EINVAL;
        if (len >= sizeof(ret_address->sun_path))
                return -ENAMETOOLONG;
        *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
        memcpy(ret_address->sun_path, path, len);
        return 0;
}

static int open_stream(void)
{
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        return fd < 0 ? -errno : fd;
}

int sock_connect(const char *path)
{
        struct sockaddr_un address;
        _cleanup_fd_ int fd = -1;
        int r = make_address(path, &address);

        if (r < 0)
                return r;
        fd = open_stream();
        if (fd < 0)
                return fd;
        if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
                return -errno;
        return fd_take(&fd);
}

/* Unlinks a socket file without a server. Returns 0 if the path is free now, else why it isn't. */
static int remove_stale(const char *path)
{
        struct stat st;
        int fd;

        if (lstat(path, &st) < 0)
                return errno == ENOENT ? 0 : -errno;
        if (!S_ISSOCK(st.st_mode))
                return -EEXIST;
        fd = sock_connect(path);
        if (fd == -ENOENT)
                return 0;
        /* Only a refusal proves that there is none: a full backlog (-EAGAIN) or another type means
         * an owner. */
        if (fd == -ECONNREFUSED)
                return unlink(path) < 0 && errno != ENOENT ? -errno : 0;
        fd_close(fd);
        return -EADDRINUSE;
}

static int bind_path(int fd, const char *path)
{
        struct sockaddr_un address;
        int r = make_address(path, &address);

        if (r < 0)
                return r;
        if (bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
                return 0;
        return -errno;
}

int sock_listen(const char *path, unsigned mode)
{
        _cleanup_fd_ int fd = open_stream();
        int r;

        if (fd < 0)
                return fd;
        /* bind() creates the file with this mode less the umask, so it is never wider than asked
         * for. chmod() then adds what the umask took. No client gets in before listen() anyway. */
        if (fchmod(fd, mode) < 0)
                return -errno;
        r = bind_path(fd, path);
        if (r == -EADDRINUSE) {
                r = remove_stale(path);
                if (r == 0)
                        r = bind_path(fd, path);
        }
        if (r < 0)
                return r;
        if (chmod(path, mode) < 0 || listen(fd, SOMAXCONN) < 0) {
                r = -errno;
                unlink(path);
                return r;
        }
        return fd_take(&fd);
}
