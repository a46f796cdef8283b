/*
 * A request and its answer: at once by the dispatcher, or later by the operation that it waits for.
 * Every request gets exactly one reply; or none, if the frame asks for none and may. Nothing is
 * allocated from the heap here. Loop thread only.
 */
#ifndef KVL_SERVER_ANSWER_H
#define KVL_SERVER_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/state/detail.h"
#include "proto/frame.h"
#include "proto/msg.h"

struct attach;
struct peer;
struct server;

/* The largest struct of a reply message (tests/unit/test_msg.c). */
#define REPLY_STRUCT_MAX 256

/* A request being handled. */
struct request {
        struct server *server;
        struct peer *peer;
        const void *message;   /* unpacked; borrowed from the server's arena */
        struct attach *attach; /* that its ns_id names, borrowed; NULL: it has none */
        void *reply; /* of the row's reply type, initialised; its data must live until it is sent */
        struct detail detail;   /* the sentence for a status that isn't 0 */
        int fds[FRAME_MAX_FDS]; /* go with the reply; owned */
        unsigned n_fds;
        void (*after)(struct peer *p);     /* called once the reply is out; or NULL */
        const struct frame_header *header; /* of the request */
        bool is_deferred; /* answer_refuse() or answer_end() answers it, with any return value now
                           */
};

/*
 * A handler fills rq->reply, except status and detail, and returns the status: 0, or a code of
 * proto/status.h with the sentence in rq->detail (empty: the table's). -EINPROGRESS (LEASE): the
 * request has done nothing yet; it waits and is handled again (parked.h).
 */
typedef int (*handler_fn)(struct request *rq);

/* Sets fields 1 and 2, which every reply has. */
void answer_set_outcome(
        const ProtobufCMessageDescriptor *d, void *reply, int code, const char *detail);

/* Sends rq->reply, which is complete, to the request of this type and number. */
void answer_send(struct request *rq, uint16_t type, uint64_t seq);

/* Answers a deferred request with OK; `reply` is of its row's reply type. */
void answer_reply(struct peer *p, const struct frame_header *request, ProtobufCMessage *reply);

/* Answers a deferred request with this outcome; `reply` is of its row's reply type. */
void answer_end(struct peer *p, const struct frame_header *request, ProtobufCMessage *reply,
        int code, const char *detail);

/* Answers a request that isn't handled, or isn't run again, with an empty reply of its row's
 * type. */
void answer_refuse(
        struct peer *p, const struct frame_header *request, int code, const char *detail);

/* Refuses a request that has no row in the message table; `d` is the type of the reply. */
void answer_unknown(struct peer *p, const struct frame_header *request,
        const ProtobufCMessageDescriptor *d, int code, const char *detail);

#endif
