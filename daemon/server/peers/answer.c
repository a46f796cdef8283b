#include "daemon/server/peers/answer.h"

#include <assert.h>

#include "daemon/server/peers/server.h"
#include "daemon/server/peers/peer.h"
#include "proto/kvlease.pb-c.h"
#include "proto/status.h"

static_assert(sizeof(Kvlease__V1__NsOpenReply) <= REPLY_STRUCT_MAX, "the largest reply");

void answer_set_outcome(
        const ProtobufCMessageDescriptor *d, void *reply, int code, const char *detail)
{
        char *base = reply;

        assert(d->fields[0].id == 1 && d->fields[1].id == 2);
        *(uint32_t *)(void *)(base + d->fields[0].offset) = status_to_wire(code);
        *(const char **)(void *)(base + d->fields[1].offset) = detail;
}

void answer_send(struct request *rq, uint16_t type, uint64_t seq)
{
        struct peer *p = rq->peer;
        uint8_t *out = rq->server->scratch.out;
        int n = msg_pack(out, p->conn.version, type, FRAME_REPLY, seq, rq->n_fds, rq->reply);

        assert(n > 0); /* every list in a reply is bounded by its handler */
        peer_send(p, out, (size_t)n, rq->fds, rq->n_fds);
}

void answer_unknown(struct peer *p, const struct frame_header *request,
        const ProtobufCMessageDescriptor *d, int code, const char *detail)
{
        _Alignas(max_align_t) uint8_t storage[REPLY_STRUCT_MAX];
        struct request rq = {.server = p->server, .peer = p, .reply = storage};

        if (request->flags & FRAME_NO_REPLY)
                return;
        assert(d->sizeof_message <= sizeof(storage));
        protobuf_c_message_init(d, storage);
        answer_set_outcome(d, storage, code, detail);
        answer_send(&rq, request->type, request->seq);
}

void answer_refuse(struct peer *p, const struct frame_header *request, int code, const char *detail)
{
        answer_unknown(p, request, msg_find(request->type)->reply, code, detail);
}

void answer_end(struct peer *p, const struct frame_header *request, ProtobufCMessage *reply,
        int code, const char *detail)
{
        struct request rq = {.server = p->server, .peer = p, .reply = reply};

        answer_set_outcome(reply->descriptor, reply, code, detail);
        if (!(request->flags & FRAME_NO_REPLY))
                answer_send(&rq, request->type, request->seq);
}

void answer_reply(struct peer *p, const struct frame_header *request, ProtobufCMessage *reply)
{
        answer_end(p, request, reply, 0, "");
}
