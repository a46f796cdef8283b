#include "daemon/server/base/outqueue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include <linux/sockios.h>

#include "base/fd.h"
#include "proto/sock.h"

struct chunk {
        struct list_link link;
        int fds[FRAME_MAX_FDS]; /* owned until the first byte was sent */
        unsigned n_fds;
        uint64_t ticket; /* 0: waits for the socket alone */
        size_t begin, end;
        uint8_t data[];
};

static void close_fds(int *fds, unsigned n)
{
        for (unsigned i = 0; i < n; i++)
                fds[i] = fd_close(fds[i]);
}

static size_t chunk_cost(const struct chunk *c)
{
        return sizeof(*c) + c->end;
}

static void chunk_free(struct outqueue *q, struct chunk *c)
{
        q->bytes -= chunk_cost(c);
        list_remove(&c->link);
        close_fds(c->fds, c->n_fds);
        free(c);
}

void outqueue_init(struct outqueue *q)
{
        list_init(&q->chunks);
        q->bytes = 0;
        q->starved = false;
        q->n_fds_unread = 0;
}

void outqueue_clear(struct outqueue *q)
{
        struct chunk *c;

        while ((c = list_first(&q->chunks, struct chunk, link)))
                chunk_free(q, c);
        q->starved = false;
}

unsigned outqueue_unread_fds(struct outqueue *q, int fd)
{
        int unread = 0;

        if (q->n_fds_unread == 0)
                return 0;
        /* The kernel only reports that all was read, not how much. */
        if (outqueue_is_empty(q) && (ioctl(fd, SIOCOUTQ, &unread) < 0 || unread == 0))
                q->n_fds_unread = 0;
        return q->n_fds_unread;
}

/* Sends; 0 where the socket takes nothing now. */
static ssize_t send_some(
        struct outqueue *q, int fd, const void *data, size_t len, const int *fds, unsigned n_fds)
{
        ssize_t n = sock_send(fd, data, len, fds, n_fds);

        q->starved = n == -ETOOMANYREFS;
        return n == -EAGAIN || q->starved ? 0 : n;
}

/* Queues data[0..len-1]; takes the fds. */
static int push(struct outqueue *q, uint64_t ticket, const uint8_t *data, size_t len, int *fds,
        unsigned n_fds)
{
        struct chunk *c = NULL;
        int r = -ENOBUFS;

        if (q->bytes + sizeof(*c) + len <= OUTQUEUE_MAX_BYTES) {
                c = malloc(sizeof(*c) + len);
                r = c ? 0 : -ENOMEM;
        }
        if (!c) {
                close_fds(fds, n_fds);
                return r;
        }
        c->ticket = ticket;
        c->begin = 0;
        c->end = len;
        c->n_fds = n_fds;
        for (unsigned i = 0; i < n_fds; i++) /* fds may be NULL if n_fds is 0 */
                c->fds[i] = fds[i];
        memcpy(c->data, data, len);
        list_init(&c->link);
        list_append(&q->chunks, &c->link);
        q->bytes += chunk_cost(c);
        return 0;
}

int outqueue_send(
        struct outqueue *q, int fd, const void *frame, size_t len, int *fds, unsigned n_fds)
{
        ssize_t n = 0;

        q->n_fds_unread += n_fds;
        if (outqueue_is_empty(q)) {
                n = send_some(q, fd, frame, len, fds, n_fds);
                if (n < 0) {
                        close_fds(fds, n_fds);
                        return (int)n;
                }
                if (n > 0) {
                        close_fds(fds, n_fds);
                        n_fds = 0;
                }
                if ((size_t)n == len)
                        return 0;
        }
        return push(q, 0, (const uint8_t *)frame + n, len - (size_t)n, fds, n_fds);
}

int outqueue_hold(struct outqueue *q, uint64_t ticket, const void *frame, size_t len, int *fds,
        unsigned n_fds)
{
        q->n_fds_unread += n_fds;
        return push(q, ticket, frame, len, fds, n_fds);
}

bool outqueue_is_held(const struct outqueue *q, uint64_t passed)
{
        const struct chunk *c = list_first(&q->chunks, struct chunk, link);

        return !c || c->ticket > passed;
}

int outqueue_flush(struct outqueue *q, int fd, uint64_t passed)
{
        struct chunk *c;

        while ((c = list_first(&q->chunks, struct chunk, link)) && c->ticket <= passed) {
                ssize_t n =
                        send_some(q, fd, c->data + c->begin, c->end - c->begin, c->fds, c->n_fds);

                if (n <= 0)
                        return (int)n;
                close_fds(c->fds, c->n_fds);
                c->n_fds = 0;
                c->begin += (size_t)n;
                if (c->begin < c->end)
                        return 0;
                chunk_free(q, c);
        }
        return 0;
}
