/*
 * The server's part of recalls (daemon/core/reclaim/recall.h): tells clients, finds the time for
 * the work, names those that are late and kills them where the configuration says so. Loop thread
 * only.
 */
#ifndef KVL_SERVER_RECALLS_H
#define KVL_SERVER_RECALLS_H

#include <stdbool.h>

struct server;

/* Makes the store's callbacks send RECALL; needs the loop. */
void recalls_init(struct server *s);

/* A bounded part of what is to be done for recalls now. True where more is left for the next turn.
 */
bool recalls_turn(struct server *s);

#endif
