/*
 * kvlease-exchange: connections of kvleased (daemon/relay/relay-wire.h), and the clients of stores
 * that they ask for.
 *
 *   lane:  greets -> open -> gone (kvleased closed it) -> freed, once its operations are over
 *
 * Values are received into the arena of the lane, and sent from it. A lane that sends an invalid
 * message, or no greeting, is closed. Lanes of one store share a client, which ends with the last
 * of them. One thread.
 */
#ifndef KVL_NETWORK_LANES_H
#define KVL_NETWORK_LANES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/list.h"
#include "daemon/relay/relay-wire.h"

/* 3 for each [remote NAME] of each kvleased. Not tuned. */
#define LANES_MAX 192

/* From connecting to the greeting, which kvleased sends at once. Not tuned. */
#define LANES_GREETING_NSEC (5 * NSEC_PER_SEC)

/* Between two complaints in the log: kvleased connects again each second. Not tuned. */
#define LANES_QUIET_NSEC (10 * NSEC_PER_SEC)

#define LANES_COMPLAINT_BYTES (RELAY_WHY_BYTES + 32)

struct lanes {
        int listen_fd;           /* borrowed */
        struct list_link list;   /* struct lane.link */
        unsigned n;              /* of these */
        bool is_full;            /* none could be accepted: not asked in the next turn */
        struct list_link stores; /* struct store.link */
        char complaint[LANES_COMPLAINT_BYTES]; /* the log's last; "": none since a greeting */
        uint64_t quiet_until_nsec;             /* no complaint is logged before */
};

void lanes_init(struct lanes *s, int listen_fd);

/* Waits until something is to be done or `wake_fd` is readable, and does it. Returns 0 or -errno:
 * of poll(). */
int lanes_turn(struct lanes *s, int wake_fd);

/* Ends all operations, and closes everything. */
void lanes_deinit(struct lanes *s);

#endif
