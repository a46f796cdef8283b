/*
 * HTTP for routers without a state: POST /v1/prefix takes a query (query.h), GET /healthz says
 * whether queries are answered. Answers come from the feed's model; kvleased isn't asked. All is
 * done in the caller's thread. Not thread-safe.
 *
 * Slow clients lose their connection once places run out (client/http/slots.h), or after 30 idle
 * seconds.
 */
#ifndef KVL_EVENTS_QUERIES_H
#define KVL_EVENTS_QUERIES_H

#include "client/events/feed.h"

/* A prompt of 128k tokens takes up to 1.5 MB. */
#define QUERIES_BODY_MAX (UINT64_C(4) << 20)

struct queries;

/* Listens at `fd` (taken, also on failure). `token`: of each query, borrowed; NULL: none is needed.
 * Borrows the feed. Returns 0: *ret is owned; -errno. */
int queries_start(int fd, const char *token, const struct feed *feed, struct queries **ret);
void queries_stop(struct queries *q);

/* Reads the requests that have arrived, and answers them. Never waits. */
void queries_turn(struct queries *q);

/* Returns a descriptor that has data when a turn is due, and lowers *timeout_msec, after which a
 * turn is due as well. */
int queries_wait_fd(const struct queries *q, int *timeout_msec);

#endif
