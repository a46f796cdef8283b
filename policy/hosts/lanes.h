/*
 * The ways that bytes take between hosts and the nodes of a store: how long each of them is busy,
 * and so how long it takes to load. PURE: no I/O, no clock. Not thread-safe.
 *
 * A node serves one after the other what it is asked for, at its bandwidth, and reads before
 * writes; so does the link of a host what it receives. A load is over when the last of its bytes
 * has come through both, and one round trip has passed; it is estimated as kvleased is to
 * (docs/REMOTE.md, "Whether to load"), with a quarter more than its bytes would take. Writes wait.
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
 * A load is gathered: lanes_begin(), lanes_add() of each of its values, by a number that says on
 * which node it lies. Then lanes_estimate() says how long it would take from now on, in
 * nanoseconds, and lanes_load() has it go.
 */
void lanes_begin(struct lanes *l, uint32_t host);
void lanes_add(struct lanes *l, uint64_t place, uint64_t bytes);
uint64_t lanes_estimate(const struct lanes *l, uint64_t now_nsec);
void lanes_load(struct lanes *l, uint64_t now_nsec);

/* How long until the node could begin to write another value, as it is asked now. */
uint64_t lanes_write_wait_nsec(const struct lanes *l, uint64_t place, uint64_t now_nsec);

/* A value is written to its node, after all that this is asked for already. */
void lanes_write(struct lanes *l, uint64_t place, uint64_t bytes, uint64_t now_nsec);

#endif
