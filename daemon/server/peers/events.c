#include "daemon/server/peers/events.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/core/state/feed.h"
#include "daemon/core/state/tenant.h"
#include "daemon/server/base/log.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/peer.h"
#include "proto/msg.h"

void events_send(struct peer *p, uint16_t type, const ProtobufCMessage *event)
{
        uint8_t buf[1024]; /* not server.scratch.out: it may hold a reply */
        int n;

        assert(protobuf_c_message_get_packed_size(event) <= sizeof(buf) - FRAME_HEADER_SIZE);
        n = msg_pack(buf, p->conn.version, type, FRAME_EVENT, 0, 0, event);
        assert(n > 0);
        peer_send(p, buf, (size_t)n, NULL, 0);
}

void events_ring(struct peer *p)
{
        static const Kvlease__V1__RingEvent event = KVLEASE__V1__RING_EVENT__INIT;

        events_send(p, MSG_RING, &event.base);
}

static void send_notice(struct peer *p, Kvlease__V1__NoticeEvent__Kind kind, uint32_t ns_id,
        uint64_t client_id, const char *detail)
{
        Kvlease__V1__NoticeEvent event = KVLEASE__V1__NOTICE_EVENT__INIT;

        if (p->state != PEER_ACTIVE || peer_is_watcher(p))
                return;
        /* A client that makes hits only in memory doesn't read, and breaks no rule by that. */
        if (p->out.bytes > OUTQUEUE_HOLD_BYTES / 2)
                return;
        event.kind = kind;
        event.ns_id = ns_id;
        event.client_id = client_id;
        event.detail = (char *)detail;
        events_send(p, MSG_NOTICE, &event.base);
}

void events_to_all(struct server *s, Kvlease__V1__NoticeEvent__Kind kind, const char *detail)
{
        list_for_each (p, &s->peers.list, struct peer, links.all)
                send_notice(p, kind, 0, 0, detail);
}

static void tell_left(struct peer *p, uint64_t id)
{
        send_notice(p, KVLEASE__V1__NOTICE_EVENT__KIND__MEMBER_LEFT, 0, id,
                "another member of the group left");
}

/* Without memory the notice is lost. */
static void note_left(struct peer *p, uint64_t id)
{
        if (!p->resumption.missed)
                p->resumption.missed = calloc(EVENTS_MISSED_MAX, sizeof(*p->resumption.missed));
        if (p->resumption.missed && p->resumption.n_missed < EVENTS_MISSED_MAX)
                p->resumption.missed[p->resumption.n_missed++] = id;
}

void events_member_left(struct member *m)
{
        list_for_each (other, &m->group->members, struct member, link) {
                struct peer *p = peer_of_member(other);

                if (other == m)
                        continue;
                if (p->state == PEER_WAITING)
                        note_left(p, m->id);
                else
                        tell_left(p, m->id);
        }
}

void events_tell_again(struct peer *p)
{
        if (p->server->store.draining)
                send_notice(
                        p, KVLEASE__V1__NOTICE_EVENT__KIND__DRAIN, 0, 0, "the daemon is draining");
        list_for_each (a, &p->member->attachments, struct attach, member_link)
                if (a->version_epoch != a->ns->version_epoch)
                        send_notice(p, KVLEASE__V1__NOTICE_EVENT__KIND__NS_STALE, a->id, 0,
                                "the namespace has another version");
        for (uint32_t i = 0; i < p->resumption.n_missed; i++)
                tell_left(p, p->resumption.missed[i]);
        free(TAKE(p->resumption.missed));
        p->resumption.n_missed = 0;
}

static void on_pressure(struct ns *ns, void *data)
{
        uint64_t now = clock_now_nsec();

        list_for_each (a, &ns->clients.attachments, struct attach, ns_link) {
                struct peer *p = peer_of_member(a->member);

                if (p->times.pressure_nsec > 0 &&
                        now - p->times.pressure_nsec < EVENTS_PRESSURE_NSEC)
                        continue;
                p->times.pressure_nsec = now;
                send_notice(p, KVLEASE__V1__NOTICE_EVENT__KIND__PRESSURE, a->id, 0,
                        "memory is short: free pages that are not needed");
        }
}

static void on_no_events(struct ns *ns, void *data)
{
        struct detail d;

        (void)data;
        if (feed_is_missing(ns, &d))
                log_warning("%s; raise 'events' of the tenant, and restart kvleased", d.text);
}

static void on_stale(struct ns *ns, void *data)
{
        list_for_each (a, &ns->clients.attachments, struct attach, ns_link)
                send_notice(peer_of_member(a->member), KVLEASE__V1__NOTICE_EVENT__KIND__NS_STALE,
                        a->id, 0, "the namespace was invalidated");
        loop_kick(&((struct server *)data)->loop);
}

static void on_work(void *data)
{
        loop_kick(&((struct server *)data)->loop);
}

void events_attach(struct server *s)
{
        s->store.owner.on_work = on_work;
        s->store.owner.on_pressure = on_pressure;
        s->store.owner.on_stale = on_stale;
        s->store.owner.on_no_events = on_no_events;
        s->store.owner.data = s;
}
