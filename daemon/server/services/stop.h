/* How the daemon stops. Loop thread only. */
#ifndef KVL_SERVER_STOP_H
#define KVL_SERVER_STOP_H

struct server;

/* Tells clients and ends the loop as soon as they have taken it, or at the stop timeout. */
void server_stop(struct server *s);

/* Stops like server_stop(), with the exit status that asks whoever started this process to start it
 * again. */
void server_restart(struct server *s);

/* Nobody is accepted any more; sockets that are kept for the next process stay as they are. Safe to
 * repeat. */
void stop_close_listeners(struct server *s);

#endif
