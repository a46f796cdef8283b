/*
 * Answers that wait for disks: removed data must not reappear if the machine loses power just after
 * the answer (core/space.h, space_promise()).
 */
#ifndef KVL_SERVER_DURABLE_H
#define KVL_SERVER_DURABLE_H

struct request;

/* Bound of waiting answers of one peer. Not tuned. */
#define DURABLE_MAX 64

/* Called before anything is done: returns 0, or -EAGAIN with the sentence. */
int durable_check(struct request *rq);

/*
 * Answers a request that was carried out; its reply, of numbers alone, is complete. Returns the
 * handler's result: 0; the request is deferred if a disk has to be written first. -ENOMEM with the
 * sentence: it was carried out, and its durability won't be reported.
 */
int durable_answer(struct request *rq);

#endif
