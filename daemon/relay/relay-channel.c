#include "daemon/relay/relay-channel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/macros.h"

/* Space for one receive. Not tuned. */
#define RECEIVE_BYTES (64u << 10)

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Makes room for `n` more bytes behind the end. */
static int reserve(struct relay_bytes *b, size_t n)
{
        size_t used = b->end - b->begin, size = MAX(b->size, (size_t)RECEIVE_BYTES);
        uint8_t *larger;

        if (b->size - b->end >= n)
                return 0;
        if (b->begin > 0)
                memmove(b->at, b->at + b->begin, used);
        b->begin = 0;
        b->end = used;
        while (size - used < n)
                size *= 2;
        if (size == b->size)
                return 0;
        larger = realloc(b->at, size);
        if (!larger)
                return -ENOMEM;
        b->at = larger;
        b->size = size;
        return 0;
}

static void append(struct relay_bytes *b, const void *bytes, size_t n)
{
        if (n > 0)
                memcpy(b->at + b->end, bytes, n);
        b->end += n;
}

/* ---- the channel ----------------------------------------------------------------------------- */

void relay_channel_init(struct relay_channel *c, int fd)
{
        *c = (struct relay_channel){.fd = fd, .passes_fd = -1, .received_fd = -1};
}

void relay_channel_deinit(struct relay_channel *c)
{
        fd_close(c->fd);
        fd_close(c->received_fd);
        free(c->in.at);
        free(c->out.at);
        relay_channel_init(c, -1);
}

int relay_channel_put(struct relay_channel *c, enum relay_kind kind, uint64_t id,
        const struct iovec *pieces, unsigned n_pieces)
{
        struct relay_head head = {.kind = kind, .id = id};
        size_t bytes = 0;

        for (unsigned i = 0; i < n_pieces; i++)
                bytes += pieces[i].iov_len;
        if (bytes > RELAY_MESSAGE_MAX)
                return -ENOBUFS;
        if (c->out.end - c->out.begin + bytes > RELAY_OUT_MAX)
                return -ENOBUFS;
        if (reserve(&c->out, sizeof(head) + bytes) < 0)
                return -ENOMEM;
        head.bytes = (uint32_t)bytes;
        append(&c->out, &head, sizeof(head));
        for (unsigned i = 0; i < n_pieces; i++)
                append(&c->out, pieces[i].iov_base, pieces[i].iov_len);
        return 0;
}

/* Returns bytes or -errno. */
static ssize_t send_some(struct relay_channel *c, const void *bytes, size_t n)
{
        union {
                char bytes[CMSG_SPACE(sizeof(int))];
                struct cmsghdr align;
        } control = {0};
        struct iovec iov = {(void *)bytes, n};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
        ssize_t sent;

        if (c->passes_fd >= 0) {
                msg.msg_control = &control;
                msg.msg_controllen = sizeof(control);
                *CMSG_FIRSTHDR(&msg) = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)),
                        .cmsg_level = SOL_SOCKET,
                        .cmsg_type = SCM_RIGHTS};
                memcpy(CMSG_DATA(CMSG_FIRSTHDR(&msg)), &c->passes_fd, sizeof(int));
        }
        do
                sent = sendmsg(c->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
        while (sent < 0 && errno == EINTR);
        if (sent < 0)
                return -errno;
        c->passes_fd = -1;
        return sent;
}

int relay_channel_flush(struct relay_channel *c)
{
        while (relay_channel_has_out(c)) {
                ssize_t n = send_some(c, c->out.at + c->out.begin, c->out.end - c->out.begin);

                if (n == -EAGAIN)
                        return 0;
                if (n < 0)
                        return (int)n;
                c->out.begin += (size_t)n;
        }
        c->out.begin = c->out.end = 0;
        return 0;
}

/* Takes the first descriptor that came, if one is wanted. The kernel closes the others. */
static void take_fd(struct relay_channel *c, struct msghdr *msg)
{
        struct cmsghdr *control = CMSG_FIRSTHDR(msg);
        int fd;

        if (!control || control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS ||
                control->cmsg_len != CMSG_LEN(sizeof(int)))
                return;
        memcpy(&fd, CMSG_DATA(control), sizeof(int));
        if (c->received_fd >= 0)
                fd_close(fd);
        else
                c->received_fd = fd;
}

int relay_channel_fill(struct relay_channel *c)
{
        union {
                char bytes[CMSG_SPACE(sizeof(int))];
                struct cmsghdr align;
        } control;
        struct iovec iov;
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
        ssize_t n;

        if (reserve(&c->in, RECEIVE_BYTES) < 0)
                return -ENOMEM;
        iov = (struct iovec){c->in.at + c->in.end, c->in.size - c->in.end};
        if (c->takes_fd) {
                msg.msg_control = &control;
                msg.msg_controllen = CMSG_LEN(sizeof(int)); /* with its padding: for two */
        }
        do
                n = recvmsg(c->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        while (n < 0 && errno == EINTR);
        if (n < 0)
                return errno == EAGAIN ? 0 : -errno;
        if (n == 0)
                return -ECONNRESET;
        take_fd(c, &msg);
        c->in.end += (size_t)n;
        return 0;
}

int relay_channel_next(struct relay_channel *c, struct relay_message *ret)
{
        size_t bytes = c->in.end - c->in.begin;

        if (bytes < sizeof(ret->head))
                return 0;
        memcpy(&ret->head, c->in.at + c->in.begin, sizeof(ret->head));
        if (ret->head.bytes > RELAY_MESSAGE_MAX)
                return -EPROTO;
        if (bytes - sizeof(ret->head) < ret->head.bytes)
                return 0;
        ret->bytes = c->in.at + c->in.begin + sizeof(ret->head);
        c->in.begin += sizeof(ret->head) + ret->head.bytes;
        return 1;
}
