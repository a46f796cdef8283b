/*
 * From a frame to the handler of its type and back to a reply. Every request ends in exactly one
 * reply, or none where the frame said so and may. Nothing is allocated from the heap here.
 */
#ifndef KVL_SERVER_DISPATCH_H
#define KVL_SERVER_DISPATCH_H

#include "daemon/server/peers/answer.h"
#include "daemon/server/peers/peer.h"
#include "proto/frame.h"
#include "proto/msg.h"

struct attach;

/*
 * Fills rq->reply but for status and detail. Returns the status: 0, or a code of proto/status.h
 * with the sentence in rq->detail (empty: the table's). -EINPROGRESS (LEASE): nothing was done
 * yet, it waits and is called again (parked.h).
 */
typedef int (*handler_fn)(struct request *rq);

/* Checks, unpacks, handles, answers. The peer isn't freed: its flags say what is to be done. */
void dispatch_frame(struct peer *p, const struct frame *f);

/* Runs a request again that waited (parked.h). True: it was answered; false: it still waits. */
bool dispatch_again(struct peer *p, const struct frame *f);

/* One per row of the message table. */
#define X(name, ...) int handle_##name(struct request *rq);
MSG_TABLE(X)
#undef X

/* The attachment `ns_id` of the peer's member; NULL with the sentence. Returns borrowed. */
struct attach *request_attach(struct request *rq, uint32_t ns_id);

#endif
