/*
 * From a frame to the handler of its type and back to a reply. Every request ends in exactly one
 * reply, or none where the frame said so and may. Nothing is allocated from the heap here.
 */
#ifndef KVL_SERVER_DISPATCH_H
#define KVL_SERVER_DISPATCH_H

#include "daemon/core/ground/detail.h"
#include "daemon/server/peers/peer.h"
#include "proto/frame.h"
#include "proto/msg.h"

struct server;
struct attach;

/* A request being handled. */
struct request {
        struct server *server;
        struct peer *peer;
        const void *message; /* unpacked; borrowed from the server's arena */
        void *reply; /* of the row's reply type, initialised; what it points at must live until it
                        is sent */
        struct detail detail;   /* the sentence that goes with a status that isn't 0 */
        int fds[FRAME_MAX_FDS]; /* go with the reply; owned */
        unsigned n_fds;
        void (*after)(struct peer *p);     /* called once the reply is out; or NULL */
        const struct frame_header *header; /* of the request */
        bool is_deferred; /* it is answered by dispatch_refuse() or dispatch_end(), whatever is
                             returned now */
};

/*
 * Fills rq->reply but for status and detail. Returns the status: 0, or a code of proto/status.h
 * with the sentence in rq->detail (empty: the table's). -EINPROGRESS (LEASE): nothing was done
 * yet, it waits and is called again (parked.h).
 */
typedef int (*handler_fn)(struct request *rq);

/* Checks, unpacks, handles, answers. The peer isn't freed: its flags say what is to be done. */
void dispatch_frame(struct peer *p, const struct frame *f);

/* Runs a parked request again (parked.h). True: it was answered; false: it still waits. */
bool dispatch_again(struct peer *p, const struct frame *f);

/* Answers a request that was deferred with OK; `reply` is of its row's reply type. */
void dispatch_reply(struct peer *p, const struct frame_header *request, ProtobufCMessage *reply);

/* The same with this outcome. */
void dispatch_end(struct peer *p, const struct frame_header *request, ProtobufCMessage *reply,
        int code, const char *detail);

/* Answers a request that waits without running it (again); a lease was called off. */
void dispatch_refuse(struct peer *p, const struct frame *f, int code, const char *detail);

/* One per row of the message table. */
#define X(name, ...) int handle_##name(struct request *rq);
MSG_TABLE(X)
#undef X

/* The attachment `ns_id` of the peer's member; NULL with the sentence. Returns borrowed. */
struct attach *request_attach(struct request *rq, uint32_t ns_id);

#endif
