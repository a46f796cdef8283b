/*
 * The two ZeroMQ sockets of kvlease-events, with limits for peers that read slowly or send
 * garbage. Not thread-safe.
 *
 * ZeroMQ bounds neither connections, nor the subscriptions of a peer, nor the parts of its message.
 * So the process watches its memory and descriptors, and sockets_reopen() drops all peers at once.
 * Routers connect again by themselves.
 */
#ifndef KVL_EVENTS_SOCKETS_H
#define KVL_EVENTS_SOCKETS_H

#include <stdbool.h>
#include <stdint.h>

struct sockets_options {
        const char *endpoint; /* of ZeroMQ; borrowed */
        bool connects;        /* connect to the endpoint, instead of binding it */
        const char *replay;   /* bound; NULL: none */
};

struct sockets {
        const struct sockets_options *options; /* borrowed */
        void *context;                         /* owned */
        void *live;                            /* owned; XPUB */
        void *replay;                          /* owned; ROUTER; NULL: none */
        const char *failed;                    /* what sockets_open() couldn't bind */
};

/* Returns 0 or -errno: s->failed is the endpoint, or NULL. */
int sockets_open(struct sockets *s, const struct sockets_options *options);

/* Closes the sockets and opens them again. Peers lose what wasn't sent. Returns as above. */
int sockets_reopen(struct sockets *s);

/* Closes both sockets. Waits up to a second for messages that peers have not received yet. */
void sockets_close(struct sockets *s);

/* Waits until a socket has a message, `fd` (-1: none) has data, a signal arrives, or timeout_msec
 * have passed. */
void sockets_wait(const struct sockets *s, int fd, int timeout_msec);

#endif
