#include "daemon/server/parked.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/core/group.h"
#include "daemon/core/lease.h"
#include "daemon/server/dispatch.h"
#include "daemon/server/peer.h"
#include "daemon/server/server.h"

struct parked {
        bool is_due;        /* is to be run again */
        struct frame frame; /* without descriptors: requests have none */
        uint8_t payload[];
};

static void call_off(struct peer *p)
{
        if (!p->member)
                return;
        list_for_each (a, &p->member->attachments, struct attach, member_link)
                lease_call_off(a);
}

int parked_add(struct peer *p, const struct frame *f)
{
        struct parked *k;

        if (p->broken) {
                call_off(p);
                return 0;
        }
        k = malloc(sizeof(*k) + f->header.length);
        if (!k) {
                call_off(p);
                return -ENOMEM;
        }
        memcpy(k->payload, f->payload, f->header.length);
        k->is_due = false;
        k->frame.header = f->header;
        k->frame.payload = k->payload;
        p->parked = k;
        p->parked_nsec = clock_now_nsec();
        list_append(&p->server->parked, &p->parked_link);
        return 0;
}

static void unpark(struct peer *p)
{
        free(TAKE(p->parked));
        list_remove(&p->parked_link);
}

void parked_drop(struct peer *p)
{
        if (!p->parked)
                return;
        unpark(p);
        call_off(p);
}

static bool waits_for(const struct peer *p, const struct pool *pool)
{
        list_for_each (a, &p->member->attachments, struct attach, member_link)
                if (a->n_wanted > 0 && (!pool || a->ns->pool == pool))
                        return true;
        return false;
}

/* NULL: for any pool. Who is muted, doomed or broken is dropped when it is settled. */
static bool may_retry(const struct peer *p, const struct pool *pool)
{
        return !p->muted && !p->doomed && !p->broken && waits_for(p, pool);
}

static void retry(struct peer *p)
{
        p->parked->is_due = false;
        if (!dispatch_again(p, &p->parked->frame))
                return;
        unpark(p);
        peer_schedule(p);
}

void parked_make_due(struct server *s, const struct pool *pool)
{
        list_for_each (p, &s->parked, struct peer, parked_link)
                if (waits_for(p, pool))
                        p->parked->is_due = true;
}

bool parked_retry(struct server *s, const struct pool *pool)
{
        unsigned n = 0;

        list_for_each_safe (p, &s->parked, struct peer, parked_link) {
                if (!p->parked->is_due || !may_retry(p, pool))
                        continue;
                if (n++ == PARKED_RETRIES_PER_TURN)
                        return true;
                retry(p);
        }
        return false;
}

void parked_refuse(struct server *s)
{
        bool was_draining = s->store.draining;

        s->store.draining = true;
        list_for_each_safe (p, &s->parked, struct peer, parked_link)
                if (may_retry(p, NULL))
                        retry(p);
        s->store.draining = was_draining;
}
