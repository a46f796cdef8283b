/*
 * Who follows what happens: requests (ADMIN_EVENTS) that wait for the next event. One a connection,
 * a few hundred bytes each; an answer is made when there is something to tell, or when the time is
 * up. Who doesn't ask again isn't sent anything: a slow reader misses what the ring has no room for
 * (core/chronicle.h), and holds nobody up.
 */
#ifndef KVL_SERVER_FOLLOWERS_H
#define KVL_SERVER_FOLLOWERS_H

#include "base/list.h"
#include "daemon/core/ground/chronicle.h"
#include "daemon/core/objects/tenant.h"
#include "daemon/server/objects/pending.h"
#include "daemon/server/peers/answer.h"
#include "proto/kvlease.pb-c.h"

struct server;
struct peer;

/* What is asked for; a copy of the request's. */
struct event_query {
        struct chronicle_filter filter; /* its texts are the next two, once copied */
        char tenant[TENANT_NAME_MAX + 1], ns[NS_NAME_MAX + 1];
        uint64_t after;
};

struct follower {
        struct pending pending;
        struct list_link link; /* server.followers.list */
        uint64_t until_nsec;   /* CLOCK_MONOTONIC */
        struct event_query query;
};

/* Opens the chronicle: without memory nothing is noted, and that is logged. */
void followers_init(struct server *s);

/* Defers the request until something is there for it, at most for wait_nsec. 0, -EBUSY (one of this
 * connection waits already) or -ENOMEM with the sentence. */
int follower_add(struct request *rq, const struct event_query *q, uint64_t wait_nsec);

/* The daemon stops: all are answered with what there is. */
void followers_end(struct server *s);

#endif
