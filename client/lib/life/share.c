/* Asking for shared memory: SHM_OPEN, NS_SHARE. Without it all goes over the socket. */
#include <errno.h>

#include "base/fd.h"
#include "base/macros.h"
#include "client/lib/connection/error.h"
#include "client/lib/life/life-impl.h"
#include "client/lib/objects/ns.h"
#include "client/lib/calls/flight.h"

#define MAX_SEGMENTS 2

struct share_call {
        struct conn_call call;
        unsigned n_segments; /* of a good reply */
        uint64_t bytes[MAX_SEGMENTS];
        uint64_t version_epoch; /* NS_SHARE */
        int fds[MAX_SEGMENTS];  /* owned */
};

static void take_reply(struct share_call *s, const ProtobufCMessage *reply)
{
        const Kvlease__V1__NsShareReply *share = (const Kvlease__V1__NsShareReply *)reply;

        if (s->call.type == MSG_SHM_OPEN) {
                s->bytes[0] = ((const Kvlease__V1__ShmOpenReply *)reply)->bytes;
                return;
        }
        s->bytes[0] = share->index_bytes;
        s->bytes[1] = share->pins_bytes;
        s->version_epoch = share->version_epoch;
}

static void on_share(struct conn *c, struct conn_call *call, int code,
        const ProtobufCMessage *reply, struct frame *frame)
{
        struct share_call *s = container_of(call, struct share_call, call);

        if (reply && code == 0) {
                if (frame->header.fd_count != s->n_segments) {
                        conn_finish_violated(c, call, "kvleased sent a wrong number of segments");
                        return;
                }
                take_reply(s, reply);
                for (unsigned i = 0; i < s->n_segments; i++)
                        s->fds[i] = fd_take(&frame->fds[i]);
        }
        conn_finish(c, call, code);
}

/* [L] Returns as conn_wait(); there are segments only after 0. */
static int ask_segments(struct kvl_conn *conn, struct share_call *s, unsigned n_segments,
        uint16_t type, const ProtobufCMessage *m)
{
        int r;

        *s = (struct share_call){
                .call.on_reply = on_share, .n_segments = n_segments, .fds = {-1, -1}};
        r = conn_start(conn->conn, &s->call, type, m);
        if (r == 0)
                r = conn_wait(conn->conn, &s->call, client_deadline(conn));
        return r;
}

/* Returns the errors that end the call; after others the socket is used. */
static int judge_refusal(const struct kvl_conn *conn, const struct share_call *s, int r)
{
        return conn->conn->broken || r == -ETIMEDOUT ? error_note(r, s->call.detail) : 0;
}

int share_open(struct kvl_conn *conn)
{
        Kvlease__V1__ShmOpenRequest m = KVLEASE__V1__SHM_OPEN_REQUEST__INIT;
        struct share_call s;
        struct shm_map map;
        int r;

        m.layout_version = SHM_LAYOUT_VERSION;
        r = ask_segments(conn, &s, 1, MSG_SHM_OPEN, &m.base);
        if (r != 0)
                return judge_refusal(conn, &s, r);
        if (shm_map_client(s.fds[0], s.bytes[0], conn->welcome.client_id, &map) == 0)
                flights_init(conn, &map);
        fd_close(s.fds[0]);
        return 0;
}

int share_ns(struct kvl_ns *ns)
{
        Kvlease__V1__NsShareRequest m = KVLEASE__V1__NS_SHARE_REQUEST__INIT;
        struct shm_map index = {0}, pins = {0};
        struct kvl_conn *conn = ns->conn;
        struct share_call s;
        int r;

        if (!conn->flights.ring.header)
                return 0;
        m.ns_id = ns->id;
        r = ask_segments(conn, &s, 2, MSG_NS_SHARE, &m.base);
        if (r != 0)
                return judge_refusal(conn, &s, r);
        if (shm_map_index(s.fds[0], s.bytes[0], ns->info.capacity_pages, &index) == 0 &&
                shm_map_pins(s.fds[1], s.bytes[1], conn->welcome.client_id, ns->info.capacity_pages,
                        &pins) == 0)
                fast_init(&ns->fast, &index, &pins, s.version_epoch);
        shm_unmap(&index);
        shm_unmap(&pins);
        fd_close(s.fds[0]);
        fd_close(s.fds[1]);
        return 0;
}

int kvl_uses_shm(const struct kvl_ns *ns)
{
        return ns && client_check_process(ns->conn) == 0 && fast_is_open(&ns->fast);
}
