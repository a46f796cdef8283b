/*
 * What several hosts would find and load over one store (policy/hosts/hosts.h): for so many hosts
 * each, and for each way to give them their requests; and how many nodes the store needs.
 */
#ifndef KVL_TRACE_HOST_RUNS_H
#define KVL_TRACE_HOST_RUNS_H

#include "client/trace/store-model.h"
#include "policy/hosts/hosts.h"

#define HOST_COUNTS_MAX 16

/* Fewer tokens aren't worth a load: of the design for several hosts, not tuned. */
#define HOST_LOAD_TOKENS 256

/* As the daemon's filter of exports (EXCHANGE_LONG_TOKENS), which is that of its disk. */
#define HOST_LONG_TOKENS 16384

/* Memory of a node for each byte of values, in percent: Redis' size classes (docs/REMOTE.md). */
#define STORE_MEMORY_PERCENT 125

/* Nodes that a store needs, each at least 1: so that its values have room; that what is read and
 * written, and that what is asked, in the busiest HOSTS_PEAK_NSEC is what they can do. */
struct nodes_needed {
        uint64_t by_memory, by_bandwidth, by_keys;
};

struct host_run {
        struct hosts_result result; /* with n_nodes */
        uint64_t n_nodes;           /* those given; else the most of what is needed */
        /* From what is loaded where no node is ever busy; with nodes given, from the result. */
        struct nodes_needed needed;
};

struct host_runs {
        /* Given. */
        const struct evict_ops *policy; /* of each host */
        uint32_t below;                 /* a tier below has so many times the pages; 0: none */
        uint64_t cache_bytes, token_bytes;
        uint64_t prefill_tokens_per_sec; /* > 0 */
        uint32_t group;                  /* > 0: hosts that one copy of the trace is for */
        uint32_t counts[HOST_COUNTS_MAX];
        unsigned n_counts;
        enum hosts_affinity affinities[HOSTS_AFFINITIES];
        unsigned n_affinities;
        struct store_model store;
        /* Found. */
        uint32_t cache_pages; /* of the trace's blocks */
        uint64_t block_bytes;
        struct host_run runs[HOST_COUNTS_MAX][HOSTS_AFFINITIES];
};

/* "10,100,1000": multiples of the group, or fewer than it. "prefix,random". 0, -EINVAL with a
 * sentence in err, or -ENOMEM. */
int host_runs_set_counts(struct host_runs *h, const char *list, char *err, size_t err_len);
int host_runs_set_affinities(struct host_runs *h, const char *list, char *err, size_t err_len);

/* As in host_runs_set_affinities(). */
const char *hosts_affinity_name(enum hosts_affinity affinity);

/* As replay_run(); and -EINVAL with a sentence in err: what is given doesn't go together. */
int host_runs_run(struct host_runs *h, const struct sim_trace *trace, unsigned n_processes,
        bool (*progress)(uint64_t done, uint64_t total, void *data), void *data, char *err,
        size_t err_len);

/* Per second of the trace, over all hosts; 0 where it takes no time. */
double host_run_rate(const struct host_run *run, uint64_t n);

#endif
