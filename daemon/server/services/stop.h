/* Stopping the daemon. Loop thread only. */
#ifndef KVL_SERVER_STOP_H
#define KVL_SERVER_STOP_H

struct server;

/* Tells clients, and ends the loop as soon as they have received it, or at the stop timeout. */
void server_stop(struct server *s);

/* Stops like server_stop(), with the exit status that asks the service manager to start the daemon
 * again. */
void server_restart(struct server *s);

/* Closes listening sockets, except those stored for the next process. Idempotent. */
void stop_close_listeners(struct server *s);

#endif
