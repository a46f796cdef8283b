/* Messages that the daemon sends to clients unasked. Sending never frees a peer. */
#ifndef KVL_SERVER_EVENTS_H
#define KVL_SERVER_EVENTS_H

#include "daemon/core/state/group.h"
#include "proto/kvlease.pb-c.h"

struct server;
struct peer;

/* Least interval of notices of pressure to a namespace's clients. Not tuned. */
#define EVENTS_PRESSURE_NSEC NSEC_PER_SEC

/* Sends an event to a peer that has introduced itself; others get none. */
#define EVENTS_MISSED_MAX 256 /* not tuned */

void events_send(struct peer *p, uint16_t type, const ProtobufCMessage *event);

/* RING: completions are there. */
void events_ring(struct peer *p);

/* A NOTICE to every client. */
void events_to_all(struct server *s, Kvlease__V1__NoticeEvent__Kind kind, const char *detail);

/* Sends MEMBER_LEFT to the others of the member's group, before it leaves the group. A client that
 * is away gets the first EVENTS_MISSED_MAX of them when it resumes. */
void events_member_left(struct member *m);

/* Repeats to a resumed client what still holds: draining, namespaces with a newer version than it
 * opened, and members that left. */
void events_tell_again(struct peer *p);

/* Makes the store's callbacks send PRESSURE and NS_STALE. */
void events_attach(struct server *s);

#endif
