/*
 * Requests (ADMIN_EVENTS) that wait for the next event: one a connection, a few hundred bytes each.
 * Each is answered when there is an event, or when its time is up. A client that doesn't ask again
 * is sent nothing: a slow reader misses events that no longer fit the ring (core/event-log.h), and
 * delays no other.
 */
#ifndef KVL_SERVER_FOLLOWERS_H
#define KVL_SERVER_FOLLOWERS_H

#include "base/list.h"
#include "daemon/core/state/event-log.h"
#include "daemon/core/state/tenant.h"
#include "daemon/server/peers/pending.h"
#include "daemon/server/peers/answer.h"
#include "proto/kvlease.pb-c.h"

struct event_query;
struct server;
struct peer;

/* The query, copied from the request. */
struct event_query {
        struct event_log_filter filter; /* its texts are the next two, once copied */
        char tenant[TENANT_NAME_MAX + 1], ns[NS_NAME_MAX + 1];
        uint64_t after;
};

struct follower {
        struct pending pending;
        struct list_link link; /* server.followers.list */
        uint64_t until_nsec;   /* CLOCK_MONOTONIC */
        struct event_query query;
};

/* Opens the event log: without memory no event is noted, which is logged. */
void followers_init(struct server *s);

/* Defers the request until there is an event for it, at most for wait_nsec. Returns 0, -EBUSY
 * (another of this connection waits) or -ENOMEM with the sentence. */
int follower_add(struct request *rq, const struct event_query *q, uint64_t wait_nsec);

/* Answers all requests with the events so far: the daemon stops. */
void followers_end(struct server *s);

/* Fills in the events that q asks for, as many as fit a frame; messages belong to the arena.
 * Returns 0 or -ENOMEM. */
int events_fill(
        struct server *s, const struct event_query *q, Kvlease__V1__AdminEventsReply *reply);

#endif
