/* Events of the event log as the messages of an answer. Loop thread only. */
#ifndef KVL_SERVER_EVENT_MESSAGES_H
#define KVL_SERVER_EVENT_MESSAGES_H

#include "proto/kvlease.pb-c.h"

struct event_query;
struct server;

/* Fills in the events that q asks for, as many as fit a frame; messages belong to the arena.
 * Returns 0 or -ENOMEM. */
int events_fill(
        struct server *s, const struct event_query *q, Kvlease__V1__AdminEventsReply *reply);

#endif
