/* The greeting of kvleased (struct relay_open), which names a store, and the client made of it. The
 * files of the password and of TLS are read here. One thread. */
#ifndef KVL_NETWORK_GREETING_H
#define KVL_NETWORK_GREETING_H

#include "daemon/relay/relay-channel.h"

struct remote_store;

struct greeting {
        struct relay_open open;
        const char *texts[N_RELAY_TEXTS]; /* borrowed from the message; "": none */
};

/* Returns 0; -EPROTO, with the sentence: it isn't a greeting, or one of another version. */
int greeting_read(const struct relay_message *m, struct greeting *ret, char why[RELAY_WHY_BYTES]);

/* Opens the client. Blocks to read files. Returns 0; -errno, with the sentence. */
int greeting_open_remote(
        const struct greeting *g, struct remote_store **ret, char why[RELAY_WHY_BYTES]);

#endif
