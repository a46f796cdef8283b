/* SHM_OPEN, NS_SHARE, DOORBELL: what goes on beside the socket. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/server/descriptors.h"
#include "daemon/server/dispatch.h"
#include "daemon/server/server.h"
#include "proto/kvlease.pb-c.h"

int handle_SHM_OPEN(struct request *rq)
{
        const Kvlease__V1__ShmOpenRequest *m = rq->message;
        Kvlease__V1__ShmOpenReply *reply = rq->reply;
        struct peer *p = rq->peer;
        int fd, r;

        if (m->layout_version != SHM_LAYOUT_VERSION)
                return detail_set(&rq->detail, -EOPNOTSUPP,
                        "shared memory has layout %d here, the client knows layout %u: the socket "
                        "serves it as well; upgrade %s",
                        SHM_LAYOUT_VERSION, m->layout_version,
                        m->layout_version > SHM_LAYOUT_VERSION ? "kvleased" : "libkvlease");
        if (ring_is_open(&p->ring))
                return detail_set(
                        &rq->detail, -EEXIST, "this connection has its client segment already");
        r = ring_open(&p->ring, p->member->id, rq->server->store.boot_epoch, &fd);
        if (r < 0)
                return detail_set(&rq->detail, r, "no client segment: %s", strerror(-r));
        rq->fds[rq->n_fds++] = fd;
        reply->bytes = SHM_CLIENT_BYTES;
        return 0;
}

/*
 * Two descriptors for the reply, so that nothing can fail once the pin segment is there: both of
 * the index at first.
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

/* A reply that says why not brings no descriptors. */
static int refuse_share(struct request *rq, int code)
{
        while (rq->n_fds > 0)
                fd_close(rq->fds[--rq->n_fds]);
        return code;
}

int handle_NS_SHARE(struct request *rq)
{
        const Kvlease__V1__NsShareRequest *m = rq->message;
        Kvlease__V1__NsShareReply *reply = rq->reply;
        struct attach *a = request_attach(rq, m->ns_id);
        int r;

        if (!a)
                return -ENOENT;
        if (!ring_is_open(&rq->peer->ring))
                return detail_set(&rq->detail, -EINVAL,
                        "this connection has no client segment: SHM_OPEN comes first");
        r = descriptors_admit(rq->server, DESCRIPTORS_PER_SHARE, &rq->detail);
        if (r == 0)
                r = reserve_fds(rq, a->ns->shared.segment.reader_fd);
        if (r == 0)
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
