/*
 * Time-outs of peers: to introduce themselves, to take descriptors (for which there is no event),
 * and, while the daemon stops, to take their output. Loop thread only.
 */
#ifndef KVL_SERVER_PEER_TIMERS_H
#define KVL_SERVER_PEER_TIMERS_H

struct peer;
struct server;

/* Needs the loop. */
void peer_timers_init(struct server *s);

/* Starts the time (hello_timeout) in which the peer must introduce itself. */
void peer_await_hello(struct peer *p);

/* Watches the time of peers that must introduce themselves: there is one, or the option has
 * changed. */
void peers_watch_hellos(struct server *s);

/* Polls the peer by peer_look(): it waits for a state without an event. Idempotent and cheap. */
void peer_look_later(struct peer *p);

/* Sends the held output of all peers that may go out (keeping.h). */
void peers_flush(struct server *s);

/* The peer's output is sent: if the daemon stops, it may have been the last. */
void peers_note_drained(struct server *s);

#endif
