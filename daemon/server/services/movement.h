/*
 * The server's part of tiers (daemon/core/moves/transfer.h, demote.h, fetch.h): copying threads,
 * and the timers of the loop for them. If no device has a lower tier, nothing is opened and no
 * timer runs. Loop thread only.
 */
#ifndef KVL_SERVER_MOVEMENT_H
#define KVL_SERVER_MOVEMENT_H

struct server;

/* Needs the loop. */
void movement_init(struct server *s);

/* Called once devices are open. Returns 0, or -errno, logged: no threads. */
int movement_start(struct server *s);

/* Called in each turn of the loop: continues moves between tiers. */
void movement_turn(struct server *s);

/* Called before the loop is closed. */
void movement_stop(struct server *s);

#endif
