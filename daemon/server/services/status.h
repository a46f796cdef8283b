/* What the service manager shows of the daemon. Loop thread only. */
#ifndef KVL_SERVER_STATUS_H
#define KVL_SERVER_STATUS_H

struct server;

#define STATUS_BYTES 64 /* of the line, with room */

/* Writes "STATUS=..." into line, which it returns. */
const char *status_format(const struct server *s, char line[STATUS_BYTES]);

/* Tells the service manager, which isn't waited for. */
void status_notify(struct server *s);

#endif
