/* Status line for the service manager. Loop thread only. */
#ifndef KVL_SERVER_STATUS_H
#define KVL_SERVER_STATUS_H

struct server;

#define STATUS_BYTES 64 /* of the line, with some reserve */

/* Writes "STATUS=..." into line, which it returns. */
const char *status_format(const struct server *s, char line[STATUS_BYTES]);

/* Sends it to the service manager, without waiting. */
void status_notify(struct server *s);

#endif
