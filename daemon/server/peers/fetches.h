/*
 * FETCHes of clients, from rings and over the socket, while daemon/core brings the pages up
 * (core/fetch.h): maps each finished page to its waiting client. A ring's FETCH completes by
 * itself, in any order; those of a message are answered together, when the last one is done.
 *
 * They end with the attachment, the connection, or when the peer is muted. A ring's FETCH is then
 * completed as called off, if its client may still take completions, so that a resumed one asks
 * again.
 */
#ifndef KVL_SERVER_FETCHES_H
#define KVL_SERVER_FETCHES_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/reclaim/fetch.h"

struct peer;
struct request;
struct shm_submission;
struct submit_result;

#define FETCHES_MAX_PAGES 256 /* of one message; kvlease.proto */

/*
 * Begins a FETCH of the ring of the attachment's peer. Returns true: started, completes by
 * ring_complete(). False: *ret has its completion.
 */
bool fetches_submit(struct attach *a, const struct fetch_request *rq, uint64_t user_data,
        struct submit_result *ret);

/* Takes a valid FETCH of rq->attach over the socket. Returns 0, with the request deferred; -ENOMEM
 * with the sentence. */
int fetches_ask(struct request *rq);

#endif
