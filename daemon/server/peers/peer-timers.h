/*
 * What is waited for at peers by time alone: that they introduce themselves, that they take
 * descriptors, which no event tells, and, while the daemon stops, that they take their output. Loop
 * thread only.
 */
#ifndef KVL_SERVER_PEER_TIMERS_H
#define KVL_SERVER_PEER_TIMERS_H

struct peer;
struct server;

/* Needs the loop. */
void peer_timers_init(struct server *s);

/* The peer has the option hello_timeout's time from now on to introduce itself. */
void peer_await_hello(struct peer *p);

/* Watches the time of who must introduce itself: there is somebody, and the option has changed. */
void peers_watch_hellos(struct server *s);

/* The peer waits for what no event tells: peer_look() will be called. Cheap to repeat. */
void peer_look_later(struct peer *p);

/* What all peers are told may go out, as far as keeping.h lets it. */
void peers_flush(struct server *s);

/* A peer has no more output: while the daemon stops, that may have been the last. */
void peers_note_drained(struct server *s);

#endif
