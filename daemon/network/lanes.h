/*
 * kvlease-exchange: connections of kvleased (daemon/relay/relay-wire.h), and the clients of stores
 * that they ask for.
 *
 *   lane:  greets -> open -> gone (kvleased closed it) -> freed, once its operations are over
 *
 * Values are received into the arena of the lane, and sent from it. A lane that sends an invalid
 * message is closed. Lanes of one store share a client, which ends with the last of them. One
 * thread.
 */
#ifndef KVL_NETWORK_LANES_H
#define KVL_NETWORK_LANES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/relay/relay-wire.h"

/* 3 for each [remote NAME] of each kvleased. Not tuned. */
#define LANES_MAX 192

struct lanes {
        int listen_fd;                 /* borrowed */
        struct list_link list;         /* struct lane.link */
        unsigned n;                    /* of these */
        bool is_full;                  /* none could be accepted: not asked in the next turn */
        struct list_link stores;       /* struct store.link */
        char refused[RELAY_WHY_BYTES]; /* the last sentence of a refusal: the log has it once */
};

void lanes_init(struct lanes *s, int listen_fd);

/* Waits until something is to be done or `wake_fd` is readable, and does it. Returns 0 or -errno:
 * of poll(). */
int lanes_turn(struct lanes *s, int wake_fd);

/* Ends all operations, and closes everything. */
void lanes_deinit(struct lanes *s);

#endif
