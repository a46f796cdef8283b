/*
 * A thread resolves names, as getaddrinfo() may block for long: half a minute without a name
 * server. No other thread waits for it. State that it shares with its starter lives until both have
 * ended.
 */
#ifndef KVL_REMOTE_REMOTE_RESOLVE_H
#define KVL_REMOTE_REMOTE_RESOLVE_H

#include <sys/socket.h>

#include "daemon/remote/endpoint/remote-options.h"

struct remote_resolver;

/* Called in that thread: a name has this address, borrowed. Repeated in each round. */
typedef void (*remote_resolved_fn)(const struct sockaddr *address, void *data);

/* Starts the thread for the names among the addresses. Returns 0, with *ret_resolver NULL if there
 * are none; or -errno. */
int remote_resolver_start(const struct remote_options *options, remote_resolved_fn found,
        void *data, struct remote_resolver **ret_resolver);

/* Stops: `found` isn't running any more, and isn't called again. Nothing for NULL. */
void remote_resolver_stop(struct remote_resolver *r);

#endif
