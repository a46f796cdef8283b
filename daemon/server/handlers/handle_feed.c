/* FEED: followers of the cache get the segments of namespaces, one at a time. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "daemon/core/state/feed.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/server/handlers/handlers.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/peers/server.h"
#include "proto/kvlease.pb-c.h"
#include "proto/status.h"

/* Returns the tenant's namespace with the lowest id above `after` that has a feed, or `best` if
 * that is lower, or the message is for another tenant. */
static const struct ns *find_in(
        const struct tenant *t, const Kvlease__V1__FeedRequest *m, const struct ns *best)
{
        if (m->tenant[0] && strcmp(m->tenant, t->name) != 0)
                return best;
        list_for_each (ns, &t->namespaces, struct ns, link)
                if (feed_is_on(&ns->feed) && ns->id > m->after && (!best || ns->id < best->id))
                        best = ns;
        return best;
}

static const struct ns *find_next(const struct request *rq, const Kvlease__V1__FeedRequest *m)
{
        const struct ns *best = NULL;

        if (rq->peer->member)
                return find_in(rq->peer->member->group->tenant, m, NULL);
        list_for_each (t, &rq->server->store.tenants, struct tenant, link)
                best = find_in(t, m, best);
        return best;
}

int handle_FEED(struct request *rq)
{
        const Kvlease__V1__FeedRequest *m = rq->message;
        Kvlease__V1__FeedReply *reply = rq->reply;
        const struct ns *ns = find_next(rq, m);
        int fd;

        if (!ns)
                return detail_set(&rq->detail, KVL_STATUS_MISS, "no further namespace has events");
        fd = fcntl(ns->feed.segment.reader_fd, F_DUPFD_CLOEXEC, 0);
        if (fd < 0)
                return -errno;
        rq->fds[rq->n_fds++] = fd;
        reply->id = ns->id;
        reply->tenant = ns->tenant->name;
        reply->name = (char *)ns->name;
        reply->model = (char *)ns->layout.model;
        reply->version = (char *)ns->layout.version;
        reply->format.data = (uint8_t *)ns->layout.format;
        reply->format.len = ns->layout.format_len;
        reply->page_tokens = ns->layout.page_tokens;
        reply->layer_group = ns->layout.layer_group;
        reply->tp_rank = ns->layout.tp_rank;
        reply->tp_size = ns->layout.tp_size;
        reply->bytes = ns->feed.segment.bytes;
        return 0;
}
