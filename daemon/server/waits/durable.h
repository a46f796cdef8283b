/*
 * Answers that wait for disks: what was invalidated, purged or removed must not come back when the
 * machine loses its power a moment after the answer (core/space.h, space_promise()).
 */
#ifndef KVL_SERVER_DURABLE_H
#define KVL_SERVER_DURABLE_H

struct request;

/* That wait at a time for one peer. Not tuned. */
#define DURABLE_MAX 64

/* To be asked before anything is done: 0, or -EAGAIN with the sentence. */
int durable_check(struct request *rq);

/*
 * The request was carried out, and its reply, which has numbers alone, is complete. Returns what
 * the handler returns: 0; where a disk has to be written first the request is deferred. -ENOMEM
 * with the sentence: it was carried out, and nobody says when it is durable.
 */
int durable_answer(struct request *rq);

#endif
