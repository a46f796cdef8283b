/*
 * Names are resolved by a thread of their own, as getaddrinfo() blocks, for as long as it likes:
 * with a name server that is away for half a minute. Nobody waits for that thread. What it shares
 * with who has started it outlives whichever of them ends last.
 */
#ifndef KVL_REMOTE_REMOTE_RESOLVE_H
#define KVL_REMOTE_REMOTE_RESOLVE_H

#include <sys/socket.h>

#include "daemon/remote/endpoint/remote-options.h"

struct remote_resolver;

/* In that thread: a name means this address, borrowed. Said again in each round. */
typedef void (*remote_resolved_fn)(const struct sockaddr *address, void *data);

/* For the names among the addresses. 0, with *ret_resolver NULL where there are none; -errno. */
int remote_resolver_start(const struct remote_options *options, remote_resolved_fn found,
        void *data, struct remote_resolver **ret_resolver);

/* `found` isn't running any more, and isn't called again. NULL: nothing. */
void remote_resolver_stop(struct remote_resolver *r);

#endif
