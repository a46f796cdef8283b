/* Shared by peer.c (a peer's connection and turns) and peer-end.c (the end of its stream and of its
 * process, and what it still holds after that). */
#ifndef KVL_SERVER_PEER_IMPL_H
#define KVL_SERVER_PEER_IMPL_H

#include <stdbool.h>

#include "daemon/server/peers/peer.h"

/* Drops a reference; the last one frees the peer, which must be GONE. */
void peer_unref(struct peer *p);

/* Stops listening to the stream and drops its received bytes. */
void peer_close_socket(struct peer *p);

/* Drops all waiting requests and announcements of the peer: it can't be answered, nor publish, any
 * more. */
void peer_stop_waiting(struct peer *p);

/* Handles at most `max` received frames; if that is finite, also at most until the turn ends. */
void peer_process_frames(struct peer *p, unsigned max);

/* Receives once. Returns false if nothing more can be received now. */
bool peer_receive(struct peer *p);

/* Acts on the peer's flags. The peer may be freed. */
void peer_end_turn(struct peer *p);

/* ---- peer-end.c ------------------------------------------------------------------------------ */

/* True if the peer holds memory: mappings, or descriptors that it hasn't taken. */
bool peer_holds_memory(struct peer *p);

/* The stream has ended: handles the rest of the peer's input, in this turn or in later ones. Then
 * the peer is WAITING, or leaves. */
void peer_hang_up(struct peer *p);

/* Called by the loop when the process has exited. */
void peer_exit_seen(uv_poll_t *handle, int status, int events);

#endif
