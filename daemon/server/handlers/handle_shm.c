/* SHM_OPEN, NS_SHARE, DOORBELL: requests for shared memory beside the socket. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/client-record.h"
#include "daemon/server/handlers/handlers.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/fetches.h"
#include "daemon/server/peers/peer.h"
#include "proto/kvlease.pb-c.h"

/* Stores the ring for the next daemon, if there is a descriptor store. Recording comes last, as it
 * can't be undone. */
static int keep_ring(struct request *rq, int fd)
{
        struct peer *p = rq->peer;
        int r;

        if (!client_is_recorded(p->member))
                return 0;
        r = ring_keep(&p->ring, fd);
        if (r < 0)
                return detail_set(&rq->detail, r,
                        "no descriptor for the client segment (%s): raise LimitNOFILE of kvleased",
                        strerror(-r));
        return client_record_ring(p->member, fd, &p->ring.kept, &rq->detail);
}

/* Opens a ring made for this connection, or for the client's former one. */
static int open_ring(struct request *rq, int *ret_fd)
{
        struct peer *p = rq->peer;
        int r = ring_open(&p->ring, p->member->id, rq->server->store.boot_epoch, ret_fd);

        p->ring.fetch = fetches_submit;
        if (r < 0)
                return detail_set(&rq->detail, r, "no client segment: %s", strerror(-r));
        r = keep_ring(rq, *ret_fd);
        if (r == 0)
                return 0;
        ring_close(&p->ring);
        *ret_fd = fd_close(*ret_fd);
        return r;
}

/* The client has a segment already: a recorded one may have lost the reply, and gets it again. */
static int open_again(struct request *rq, int *ret_fd)
{
        const struct ring *ring = &rq->peer->ring;

        if (!ring->kept)
                return detail_set(
                        &rq->detail, -EEXIST, "this connection has its client segment already");
        *ret_fd = fcntl(ring->fd, F_DUPFD_CLOEXEC, 0);
        return *ret_fd < 0 ? -errno : 0;
}

int handle_SHM_OPEN(struct request *rq)
{
        const Kvlease__V1__ShmOpenRequest *m = rq->message;
        Kvlease__V1__ShmOpenReply *reply = rq->reply;
        int fd, r;

        if (m->layout_version != SHM_LAYOUT_VERSION)
                return detail_set(&rq->detail, -EOPNOTSUPP,
                        "shared memory has layout %d here, the client knows layout %u: the socket serves it as well; upgrade %s",
                        SHM_LAYOUT_VERSION, m->layout_version,
                        m->layout_version > SHM_LAYOUT_VERSION ? "kvleased" : "libkvlease");
        r = ring_is_open(&rq->peer->ring) ? open_again(rq, &fd) : open_ring(rq, &fd);
        if (r < 0)
                return r;
        rq->fds[rq->n_fds++] = fd;
        reply->bytes = SHM_CLIENT_BYTES;
        return 0;
}

/*
 * Reserves two descriptors for the reply (first both of the index), so that nothing fails after the
 * pin segment was made.
 */
static int reserve_fds(struct request *rq, int fd)
{
        while (rq->n_fds < 2) {
                int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

                if (copy < 0)
                        return -errno;
                rq->fds[rq->n_fds++] = copy;
        }
        return 0;
}

/* A refusal carries no descriptors. */
static int refuse_share(struct request *rq, int code)
{
        while (rq->n_fds > 0)
                fd_close(rq->fds[--rq->n_fds]);
        return code;
}

int handle_NS_SHARE(struct request *rq)
{
        Kvlease__V1__NsShareReply *reply = rq->reply;
        struct attach *a = rq->attach;
        bool is_there;
        int r;

        if (!ring_is_open(&rq->peer->ring))
                return detail_set(&rq->detail, -EINVAL,
                        "this connection has no client segment: SHM_OPEN comes first");
        is_there = pins_is_open(&a->share) && client_is_recorded(a->member);
        r = reserve_fds(rq, a->ns->shared.segment.reader_fd);
        if (r == 0 && !is_there)
                r = attach_share(a, &rq->detail);
        if (r != 0)
                return refuse_share(rq, r);
        dup3(a->share.segment.fd, rq->fds[1], O_CLOEXEC); /* can't fail: both are open */
        reply->index_bytes = a->ns->shared.segment.bytes;
        reply->pins_bytes = a->share.segment.bytes;
        reply->version_epoch = a->version_epoch;
        return 0;
}

int handle_DOORBELL(struct request *rq)
{
        peer_take_submissions(rq->peer, PEER_SUBMISSIONS_PER_TURN);
        return 0;
}
