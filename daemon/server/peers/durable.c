#include "daemon/server/peers/durable.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/core/moves/space.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/answer.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/peers/pending.h"

/* One that waits. */
struct durable {
        struct pending pending; /* without a peer after it left */
        uint64_t reply[];       /* of the request's reply type */
};

static size_t bytes_of(const struct request *rq)
{
        const ProtobufCMessage *reply = rq->reply;

        return sizeof(struct durable) + reply->descriptor->sizeof_message;
}

int durable_check(struct request *rq)
{
        if (rq->peer->waits[PENDING_DISK].n < DURABLE_MAX)
                return 0;
        return detail_set(&rq->detail, -EAGAIN,
                "%d requests of this connection wait for a disk to forget what they took out, the most there may be: ask again when some are answered",
                DURABLE_MAX);
}

static const struct pending_ops pending_ops = {PENDING_DISK, pending_remove, NULL, NULL};

static const char *sentence(int result)
{
        if (result == 0)
                return "";
        if (result == -ECANCELED)
                return "it was taken out, but kvleased ended before all of it was gone from the disk: repeat it once kvleased is back";
        return "it was taken out, but the disk fails and its file could not be emptied: pages may "
               "be found again after kvleased's next start; delete the file before that";
}

static void on_kept(int result, void *data)
{
        struct durable *d = data;

        pending_answer(&d->pending, (ProtobufCMessage *)d->reply, result, sentence(result));
        free(d);
}

int durable_answer(struct request *rq)
{
        size_t size = bytes_of(rq);
        struct durable *d = size > pending_left(rq->peer) ? NULL : malloc(size);
        int r;

        if (!d)
                return detail_set(&rq->detail, -ENOMEM, PENDING_FULL_TEXT);
        *d = (struct durable){0};
        memcpy(d->reply, rq->reply, size - sizeof(*d));
        r = space_promise(&rq->server->store, on_kept, d);
        if (r != 0) {
                free(d);
                return r == SPACE_KEPT ? 0
                                       : detail_set(&rq->detail, r,
                                                 "no memory to wait for the disk to forget it");
        }
        pending_defer(&d->pending, rq, &pending_ops, size);
        return 0;
}
