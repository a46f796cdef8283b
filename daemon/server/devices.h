/* Which devices the daemon owns and how much of each, by its configuration. */
#ifndef KVL_SERVER_DEVICES_H
#define KVL_SERVER_DEVICES_H

struct server;

/* Opens them and adds their pools to the store. 0; -errno, logged: what was added stays in the
 * store. */
int devices_open(struct server *s);

#endif
