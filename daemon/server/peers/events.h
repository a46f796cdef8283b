/* What the daemon tells clients unasked. Sending never frees a peer. */
#ifndef KVL_SERVER_EVENTS_H
#define KVL_SERVER_EVENTS_H

#include "daemon/core/objects/group.h"
#include "proto/kvlease.pb-c.h"

struct server;
struct peer;

/* A namespace's clients are told of pressure at most this often each. Not tuned. */
#define EVENTS_PRESSURE_NSEC NSEC_PER_SEC

/* Sends an event to a peer that has been introduced; others get none. */
#define EVENTS_MISSED_MAX 256 /* not tuned */

void events_send(struct peer *p, uint16_t type, const ProtobufCMessage *event);

/* RING: completions are there. */
void events_ring(struct peer *p);

/* A NOTICE to every client. */
void events_to_all(struct server *s, Kvlease__V1__NoticeEvent__Kind kind, const char *detail);

/* MEMBER_LEFT to the others of its group; it is still in it. Who is away is told when it is back,
 * of the first EVENTS_MISSED_MAX. */
void events_member_left(struct member *m);

/* What a client may have missed that goes on: that the daemon drains, namespaces that have another
 * version than it opened, and members that left. */
void events_tell_again(struct peer *p);

/* Makes the store's callbacks send PRESSURE and NS_STALE. */
void events_attach(struct server *s);

#endif
