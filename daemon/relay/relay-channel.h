/*
 * One end of a lane's connection (relay-wire.h): messages in and out, for both processes. Never
 * blocks. As thread-safe as a struct.
 */
#ifndef KVL_RELAY_CHANNEL_H
#define KVL_RELAY_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "daemon/relay/relay-wire.h"

/* Bytes that wait to be sent; more than both ends have under way if the other end reads. Not
 * tuned. */
#define RELAY_OUT_MAX (4 * RELAY_MESSAGE_MAX)

struct relay_bytes {
        uint8_t *at; /* owned */
        size_t begin, end, size;
};

struct relay_channel {
        int fd; /* owned; -1: none */
        struct relay_bytes in, out;
        int passes_fd;   /* borrowed until it is sent, with the first byte of `out`; -1: none */
        bool takes_fd;   /* else descriptors that come are closed */
        int received_fd; /* owned; -1: none */
};

/* A message that was received; borrowed from the channel until its next call. */
struct relay_message {
        struct relay_head head;
        const uint8_t *bytes; /* head.bytes; not aligned */
};

/* Takes the descriptor. */
void relay_channel_init(struct relay_channel *c, int fd);
void relay_channel_deinit(struct relay_channel *c);

/* Queues a message whose payload are these pieces. Returns 0; -ENOBUFS: it is longer than
 * RELAY_MESSAGE_MAX, or RELAY_OUT_MAX bytes wait; -ENOMEM. After an error nothing was queued. */
int relay_channel_put(struct relay_channel *c, enum relay_kind kind, uint64_t id,
        const struct iovec *pieces, unsigned n_pieces);

/* Sends queued bytes, as many as the socket takes. Returns 0 or -errno: the connection is lost. */
int relay_channel_flush(struct relay_channel *c);

/* Are bytes still queued? */
static inline bool relay_channel_has_out(const struct relay_channel *c)
{
        return c->out.begin < c->out.end;
}

/* Receives once. Returns 0, also if there was nothing; -errno: the connection is lost
 * (-ECONNRESET: the other end closed it). */
int relay_channel_fill(struct relay_channel *c);

/* Takes the next message. Returns 1; 0: more bytes are needed; -EPROTO: it is too long; -ENOMEM. */
int relay_channel_next(struct relay_channel *c, struct relay_message *ret);

#endif
