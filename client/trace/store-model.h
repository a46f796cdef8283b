/* The store model of the simulator of several hosts: KEY=VALUE, and defaults. */
#ifndef KVL_TRACE_STORE_MODEL_H
#define KVL_TRACE_STORE_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/hosts/values.h"

/* Sizes in bytes, times in nanoseconds. */
struct store_model {
        uint64_t host_size;   /* of values, for each host; 0: there is no store */
        uint32_t evict;       /* enum values_evict */
        uint32_t export;      /* enum hosts_export */
        uint64_t write_rate;  /* bytes a second of each host; 0: no limit */
        uint64_t expiry_nsec; /* 0: never */
        uint64_t min_uses;    /* 1 ..; of short values */
        uint64_t n_nodes;     /* 0: as many as needed */
        uint64_t node_bandwidth, host_bandwidth; /* a second */
        uint64_t node_memory;
        uint64_t node_keys; /* asked of a node in a second */
        uint64_t rtt_nsec;
        uint64_t page_tokens; /* 0: pages are the trace's blocks */
};

/* X(key, kind, field, default, least, most, "MEANING"). Defaults are written as users write them;
 * those of expire, export, write and uses are kvleased's (expiry, remote_write). */
#define STORE_MODEL_TABLE(X)                                                                  \
        X("size", BYTES, host_size, "256GiB", 0, 1ull << 50, "values of each host")           \
        X("evict", EVICT, evict, "lru", 0, 0, "lru or lfu, by single keys, as Redis does")    \
        X("expire", TIME, expiry_nsec, "1d", 0, 1ull << 60,                                   \
                "remove a value after this time; 0: never")                                   \
        X("export", EXPORT, export, "found", 0, 0,                                            \
                "found pages, long prompts; demotion: pages that leave devices")              \
        X("write", BYTES, write_rate, "64MiB", 0, 1ull << 34,                                 \
                "bytes that a host writes a second; 0: no limit")                             \
        X("uses", NUMBER, min_uses, "2", 1, 100,                                              \
                "before a page is written, in prompts under 16384 tokens")                    \
        X("nodes", NUMBER, n_nodes, "0", 0, 100000,                                           \
                "nodes of the store; 0: as many as are needed")                               \
        X("bandwidth", BYTES, node_bandwidth, "2GiB", 1 << 20, 1ull << 40,                    \
                "bytes of a node a second")                                                   \
        X("memory", BYTES, node_memory, "256GiB", 1 << 20, 1ull << 50, "memory of a node")    \
        X("keys", NUMBER, node_keys, "500000", 1, 1000000000,                                 \
                "keys that a node serves a second, at most")                                  \
        X("link", BYTES, host_bandwidth, "3GiB", 1 << 20, 1ull << 40,                         \
                "bytes that a host receives a second")                                        \
        X("rtt", TIME, rtt_nsec, "1ms", 0, 1ull << 34, "a round trip to a node that is idle") \
        X("page", NUMBER, page_tokens, "0", 0, 65536, "tokens of a value; 0: a block of the trace")

/* Sets the defaults. */
void store_model_init(struct store_model *m);

/* Applies "size=1TiB,evict=lfu". Returns 0; -EINVAL with a sentence in err;
 * -ENOMEM. */
int store_model_parse(struct store_model *m, const char *list, char *err, size_t err_len);

#endif
