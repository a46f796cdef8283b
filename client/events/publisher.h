/*
 * Publishes batches of events with sequence numbers, and the whole state to routers that join late
 * or lost something:
 *
 * - Dynamo asks on the replay socket. The answer is one batch with the sequence number of the last
 *   live one: AllBlocksCleared and the state.
 *
 * - llm-d never asks. The publisher sends the same batch to all routers as a live one, after each
 *   new subscription and each `refresh_nsec`.
 *
 * Sequence numbers begin with the nanoseconds since 1970, as routers ignore numbers that go back.
 * Not thread-safe.
 */
#ifndef KVL_EVENTS_PUBLISHER_H
#define KVL_EVENTS_PUBLISHER_H

#include <stdbool.h>
#include <stdint.h>

#include "client/events/model.h"

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

#define TOPICS_MAX 64

struct publisher_options {
        struct sockets_options sockets;
        const char *topics[TOPICS_MAX]; /* each batch goes to all; borrowed */
        unsigned n_topics;
        int group;               /* group_idx of the events; -1: none */
        uint64_t heartbeat_nsec; /* an empty batch after so long without one */
        uint64_t refresh_nsec;   /* time between two live states, which also follow subscriptions;
                                  * 0: neither */
};

struct publisher;

/* Opens the sockets. `options` is borrowed. Returns 0: *ret is owned; -errno: *ret_failed is the
 * endpoint that can't be opened, or NULL. */
int publisher_new(
        const struct publisher_options *options, struct publisher **ret, const char **ret_failed);

/* Publishes that nothing is cached, and frees. */
void publisher_free(struct publisher *p);

/* Publishes an event soon; a model_tell_fn, with the publisher as `data`. */
void publisher_tell(void *data, bool is_stored, const struct batch_blocks *blocks);

/* The state is about to be replaced: requests wait for publisher_replace(). */
void publisher_hold(struct publisher *p);

/* Publishes `model` (borrowed until the next call; NULL: nothing is cached) as the state. */
void publisher_replace(struct publisher *p, struct model *model);

/* Sends batches that are due, and reads messages of peers. Returns 0; -ENOMEM; -errno: the sockets
 * can't be opened again. */
int publisher_turn(struct publisher *p);

/* Waits until a peer asks for something, `fd` (-1: none) has data, a signal arrives, or
 * timeout_msec have passed. */
void publisher_wait(const struct publisher *p, int fd, int timeout_msec);

#endif
