/*
 * The server's part of recalls (daemon/core/reclaim/recall.h): it notifies clients, does the work
 * in turns, and logs late clients, or kills them if so configured. Loop thread only.
 */
#ifndef KVL_SERVER_RECALLS_H
#define KVL_SERVER_RECALLS_H

#include <stdbool.h>

struct server;

/* Makes the store's callbacks send RECALL; needs the loop. */
void recalls_init(struct server *s);

/* Does a bounded part of the work for recalls. Returns true if more is left for the next turn. */
bool recalls_turn(struct server *s);

#endif
