/* Simulates hits and loads of several hosts over one store (policy/hosts/hosts.h): for each number
 * of hosts, and each way to assign their requests; and the nodes that the store needs. */
#ifndef KVL_TRACE_HOST_RUNS_H
#define KVL_TRACE_HOST_RUNS_H

#include "client/trace/store-model.h"
#include "policy/hosts/hosts.h"

#define HOST_COUNTS_MAX 16

/* Fewer tokens aren't worth a load: from the design for several hosts, not tuned. */
#define HOST_LOAD_TOKENS 256

/* The daemon's filter of exports (EXCHANGE_LONG_TOKENS), as that of its disk. */
#define HOST_LONG_TOKENS 16384

/* Memory of a node per byte of values, in percent: Redis' size classes (docs/measure/REMOTE.md). */
#define STORE_MEMORY_PERCENT 125

/* Nodes that a store needs, each at least 1: for its values' memory, and for the bytes and the keys
 * of the busiest HOSTS_PEAK_NSEC. */
struct nodes_needed {
        uint64_t by_memory, by_bandwidth, by_keys;
};

struct host_run {
        struct hosts_result result; /* with n_nodes */
        uint64_t n_nodes;           /* as given, else the most that is needed */
        /* From the loads with nodes that are never busy; with nodes given, from the result. */
        struct nodes_needed needed;
};

struct host_runs {
        /* Inputs. */
        const struct evict_ops *policy; /* of each host */
        uint32_t below;                 /* a lower tier with this many times the pages; 0: none */
        uint64_t cache_bytes, token_bytes;
        uint64_t prefill_tokens_per_sec; /* > 0 */
        uint32_t group;                  /* > 0: hosts for one copy of the trace */
        uint32_t counts[HOST_COUNTS_MAX];
        unsigned n_counts;
        enum hosts_affinity affinities[HOSTS_AFFINITIES];
        unsigned n_affinities;
        struct store_model store;
        /* Results. */
        uint32_t cache_pages; /* of the trace's blocks */
        uint64_t block_bytes;
        struct host_run runs[HOST_COUNTS_MAX][HOSTS_AFFINITIES];
};

/* "10,100,1000": multiples of the group, or fewer than it. "prefix,random". Return 0, -EINVAL with
 * a sentence in err, or -ENOMEM. */
int host_runs_set_counts(struct host_runs *h, const char *list, char *err, size_t err_len);
int host_runs_set_affinities(struct host_runs *h, const char *list, char *err, size_t err_len);

/* Returns the name that host_runs_set_affinities() reads. */
const char *hosts_affinity_name(enum hosts_affinity affinity);

/* Returns as replay_run(); also -EINVAL with a sentence in err: inputs contradict each other. */
int host_runs_run(struct host_runs *h, const struct sim_trace *trace, unsigned n_processes,
        bool (*progress)(uint64_t done, uint64_t total, void *data), void *data, char *err,
        size_t err_len);

/* Returns n per second of the trace, over all hosts; 0 if the trace takes no time. */
double host_run_rate(const struct host_run *run, uint64_t n);

#endif
