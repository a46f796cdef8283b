#include "daemon/server/base/inbound.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/macros.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* kernel (asm-generic/socket.h), since 6.16 */
#endif

#define FINISH_BYTES (64 * 1024) /* received at once. Not tuned */

static int set_option(int fd, int option, int value)
{
        return setsockopt(fd, SOL_SOCKET, option, &value, sizeof(value)) < 0 ? -errno : 0;
}

int inbound_listen(int fd)
{
        int r = set_option(fd, SO_PASSRIGHTS, 0);

        /* Else MSG_CTRUNC would report missing room for these. */
        if (r == 0 || r == -ENOPROTOOPT)
                r = set_option(fd, SO_PASSCRED, 0);
        return r < 0 ? r : set_option(fd, SO_PASSSEC, 0);
}

int inbound_init(struct inbound *in, int fd)
{
        int passes = 1, r;
        socklen_t len = sizeof(passes);

        *in = (struct inbound){0};
        if (getsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &passes, &len) == 0 && !passes)
                return 0;
        in->careful = true;
        /* A recv() that passes an urgent byte (MSG_OOB) out of line drops it, with its
         * descriptors. */
        r = set_option(fd, SO_OOBINLINE, 1);
        in->tainted = r < 0;
        return r;
}

int inbound_pass_creds(struct inbound *in, int fd, bool on)
{
        int r = set_option(fd, SO_PASSCRED, on);

        if (r == 0)
                in->has_creds = on;
        return r;
}

static void read_creds(struct msghdr *msg, struct sock_creds *ret)
{
        *ret = (struct sock_creds){0};
        for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
                struct ucred cred;

                if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_CREDENTIALS ||
                        c->cmsg_len < CMSG_LEN(sizeof(cred)))
                        continue;
                memcpy(&cred, CMSG_DATA(c), sizeof(cred));
                *ret = (struct sock_creds){true, cred.pid, cred.uid, cred.gid};
        }
}

/* Returns bytes, 0 or -errno; *ret_truncated: attached data didn't fit. */
static ssize_t receive_message(const struct inbound *in, int fd, struct iovec iov, int flags,
        bool *ret_truncated, struct sock_creds *ret_creds)
{
        union {
                char bytes[CMSG_SPACE(sizeof(struct ucred))];
                struct cmsghdr align;
        } control;
        struct msghdr msg = {
                .msg_iov = &iov,
                .msg_iovlen = 1,
                /* The kernel would fill unused space of the buffer with descriptors. */
                .msg_control = in->has_creds ? &control : NULL,
                .msg_controllen = in->has_creds ? sizeof(control) : 0,
        };
        ssize_t n;

        do
                n = recvmsg(fd, &msg, flags | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        while (n < 0 && errno == EINTR);
        if (n < 0)
                return -errno;
        *ret_truncated = msg.msg_flags & MSG_CTRUNC;
        read_creds(&msg, ret_creds);
        return n;
}

/* Receives bytes. If descriptors may be attached, it peeks first. Returns as receive_message(), or
 * -EPROTO. */
static ssize_t receive_bytes(
        struct inbound *in, int fd, struct iovec iov, struct sock_creds *ret_creds)
{
        bool truncated;

        if (in->tainted)
                return -EPROTO;
        if (in->careful) {
                ssize_t n = receive_message(in, fd, iov, MSG_PEEK, &truncated, ret_creds);

                if (n <= 0)
                        return n;
                in->tainted = truncated;
                if (in->tainted)
                        return -EPROTO;
                /* Only these bytes: later ones weren't checked. */
                iov.iov_len = (size_t)n;
        }
        return receive_message(in, fd, iov, 0, &truncated, ret_creds);
}

ssize_t inbound_receive(
        struct inbound *in, int fd, struct frame_parser *p, struct sock_creds *ret_creds)
{
        struct sock_creds creds;
        struct iovec iov;
        ssize_t n;

        iov.iov_base = frame_parser_space(p, &iov.iov_len);
        if (iov.iov_len == 0)
                return -ENOBUFS; /* reading nothing would look like the end of the stream */
        n = receive_bytes(in, fd, iov, &creds);
        if (n <= 0)
                return n;
        frame_parser_fed(p, (size_t)n, NULL, 0);
        if (ret_creds)
                *ret_creds = creds;
        return n;
}

bool inbound_finish(struct inbound *in, int fd)
{
        static uint8_t junk[FINISH_BYTES];
        struct iovec iov = {junk, sizeof(junk)};
        struct sock_creds unused;

        if (!in->careful)
                return true;
        /* From here on the kernel lets no process put data there. */
        if (shutdown(fd, SHUT_RDWR) < 0)
                in->tainted = true;
        for (unsigned i = 0; i < INBOUND_RECEIVES && !in->tainted; i++) {
                ssize_t n = receive_bytes(in, fd, iov, &unused);

                if (n == 0)
                        return true;
                /* Reported once, with an empty queue: the peer closed without reading all. */
                if (n < 0 && n != -ECONNRESET)
                        break;
        }
        in->tainted = true;
        return false;
}
