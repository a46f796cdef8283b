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

/* ---- status line for the service manager ----------------------------------------------------- */

#define STATUS_BYTES 64 /* of the line, with some reserve */

/* Writes "STATUS=..." into line, which it returns. */
const char *status_format(const struct server *s, char line[STATUS_BYTES]);

/* Sends it to the service manager, without waiting. */
void status_notify(struct server *s);

#endif
