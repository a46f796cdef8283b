#include "daemon/server/waits/durable.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/macros.h"
#include "daemon/core/moves/space.h"
#include "daemon/server/handlers/dispatch.h"
#include "daemon/server/peers/pending.h"
#include "daemon/server/objects/server.h"

/* One that waits. */
struct durable {
        struct list_link link; /* peer.durables */
        struct peer *peer;     /* borrowed; NULL: it has gone */
        struct frame_header request;
        uint64_t reply[]; /* of the request's reply type */
};

static size_t bytes_of(const struct request *rq)
{
        const ProtobufCMessage *reply = rq->reply;

        return sizeof(struct durable) + reply->descriptor->sizeof_message;
}

int durable_check(struct request *rq)
{
        if (rq->peer->n_durables < DURABLE_MAX)
                return 0;
        return detail_set(&rq->detail, -EAGAIN,
                "%d requests of this connection wait for a disk to forget what they took out, the "
                "most there may be: ask again when some are answered",
                DURABLE_MAX);
}

static void forget(struct durable *d)
{
        list_remove(&d->link);
        list_init(&d->link);
        d->peer->n_durables--;
        d->peer = NULL;
}

static const char *sentence(int result)
{
        if (result == 0)
                return "";
        if (result == -ECANCELED)
                return "it was taken out, but kvleased ended before all of it was gone from the "
                       "disk: repeat it once kvleased is back";
        return "it was taken out, but the disk fails and its file could not be emptied: pages may "
               "be found again after kvleased's next start; delete the file before that";
}

static void on_kept(int result, void *data)
{
        struct durable *d = data;
        struct peer *p = d->peer;

        if (p) {
                forget(d);
                dispatch_end(
                        p, &d->request, (ProtobufCMessage *)d->reply, result, sentence(result));
        }
        free(d);
}

int durable_answer(struct request *rq)
{
        struct peer *p = rq->peer;
        size_t size = bytes_of(rq);
        struct durable *d = size > pending_left(p) ? NULL : malloc(size);
        int r;

        if (!d)
                return detail_set(&rq->detail, -ENOMEM, PENDING_FULL_TEXT);
        *d = (struct durable){.peer = p, .request = *rq->header};
        memcpy(d->reply, rq->reply, size - sizeof(*d));
        list_init(&d->link);
        r = space_promise(&rq->server->store, on_kept, d);
        if (r != 0) {
                free(d);
                return r == SPACE_KEPT ? 0
                                       : detail_set(&rq->detail, r,
                                                 "no memory to wait for the disk to forget it");
        }
        list_append(&p->durables, &d->link);
        p->n_durables++;
        rq->is_deferred = true;
        return 0;
}

size_t durable_bytes(const struct peer *p)
{
        size_t n = 0;

        list_for_each (d, &p->durables, struct durable, link)
                n += sizeof(*d) + ((const ProtobufCMessage *)d->reply)->descriptor->sizeof_message;
        return n;
}

void durable_drop(struct peer *p)
{
        list_for_each_safe (d, &p->durables, struct durable, link)
                forget(d);
}
