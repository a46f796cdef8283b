/*
 * Paths of bytes between hosts and the nodes of a store: their busy times, and so the duration of
 * loads. PURE: no I/O, no clock. Not thread-safe.
 *
 * A node serves requests in order at its bandwidth, reads before writes; the link of a host does
 * the same with received bytes. A load ends when its last byte has come through both, and one round
 * trip has passed. It is estimated like kvleased's (docs/measure/REMOTE.md, "The decision to
 * load"), with a quarter added to the time of its bytes. Writes wait.
 */
#ifndef KVL_POLICY_HOSTS_LANES_H
#define KVL_POLICY_HOSTS_LANES_H

#include <stdint.h>

struct lanes_options {
        uint32_t n_nodes; /* 0: each value has a node of its own, which is idle */
        uint32_t n_hosts;
        uint64_t node_bytes_per_sec; /* 0: no limit */
        uint64_t host_bytes_per_sec; /* 0: no limit */
        uint64_t rtt_nsec;
};

struct lanes;

/* 0: *ret_lanes, owned; -ENOMEM. */
int lanes_new(const struct lanes_options *options, struct lanes **ret_lanes);
void lanes_free(struct lanes *l);

/*
 * Loads: lanes_begin(), then lanes_add() of each value, with a number that determines its node.
 * Then lanes_estimate() returns the duration from now on, in nanoseconds, and lanes_load() makes
 * the load.
 */
void lanes_begin(struct lanes *l, uint32_t host);
void lanes_add(struct lanes *l, uint64_t place, uint64_t bytes);
uint64_t lanes_estimate(const struct lanes *l, uint64_t now_nsec);
void lanes_load(struct lanes *l, uint64_t now_nsec);

/* Wait until the node could begin to write another value, behind its current requests. */
uint64_t lanes_write_wait_nsec(const struct lanes *l, uint64_t place, uint64_t now_nsec);

/* Writes a value to its node, behind its current requests. */
void lanes_write(struct lanes *l, uint64_t place, uint64_t bytes, uint64_t now_nsec);

#endif
