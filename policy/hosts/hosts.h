/*
 * Simulates many hosts over one store: cached tokens that each host finds locally, loads from the
 * store, or computes. PURE: no I/O, no clock. Each host's cache is the simulator's
 * (policy/sim/sim.h), with the policies of the daemon. One instance is one thread's; a trace is
 * only read and may be shared.
 *
 * The model (docs/measure/REMOTE.md, "The simulator"):
 *
 * A trace is for a *group* of hosts. More hosts are several groups, each with a copy of the trace:
 * the same requests with texts of their own. Each copy is later by an equal part of
 * HOSTS_SPREAD_NSEC. All groups share one store.
 *
 * A request goes to a host of its group (enum hosts_affinity), and finds the host's cached part of
 * its text there. If the rest has min_tokens or more, the host asks the store for its pages,
 * HOSTS_PROBE_KEYS at a time, until one is missing. Pages without a gap are loaded, if they have
 * min_tokens or more and loading takes less time than computing (lanes.h). The rest is computed.
 * Then the host caches all of it, loaded or computed.
 *
 * Writes to the store (enum hosts_export):
 *
 * - found: as kvleased does (daemon/exchange/export.c). The part of a request's text that the
 *   filter admits, from its beginning, becomes a waiting text. Found texts go before texts that
 *   were only published, and newest first within a kind. It grows by blocks that continue it. Each
 *   block not seen in the store within HOSTS_TOUCH_NSEC is marked as used there, and written if it
 *   is missing. If the host evicted the text's end meanwhile, it ends where it began to grow; if
 *   that is evicted, too, it is dropped. So is the last text beyond HOSTS_TEXTS_MAX.
 * - demotion: a page that a host's device evicts, if the filter admits it and the store lacks it.
 *   Blocks that precede a request's wanted ones are marked as used, once within HOSTS_TOUCH_NSEC.
 *
 * A host has a limit of written bytes a second: texts wait for it, evicted pages are dropped. A
 * write is visible at once.
 *
 * Requests take no time, as in the simulator without an engine.
 */
#ifndef KVL_POLICY_HOSTS_H
#define KVL_POLICY_HOSTS_H

#include "policy/hosts/lanes.h"
#include "policy/hosts/values.h"
#include "policy/sim/sim.h"
#include "policy/tier.h"

/* Time within which the copies of a trace begin. Not tuned: longer than a burst of requests, and
 * short compared to a trace. */
#define HOSTS_SPREAD_NSEC UINT64_C(60000000000)

#define HOSTS_PROBE_KEYS 128                   /* of the design for several hosts; not tuned */
#define HOSTS_TOUCH_NSEC UINT64_C(60000000000) /* as EXCHANGE_AGAIN_SEC of kvleased */
#define HOSTS_TEXTS_MAX  256                   /* as EXPORT_TEXTS_MAX of kvleased */
#define HOSTS_PEAK_NSEC  UINT64_C(10000000000) /* interval for peaks */

/* A block is dropped if its nodes don't begin to write it within this time. The first is for
 * waiting texts (EXPORT_DEADLINE_NSEC of kvleased), the second for evicted pages, whose memory is
 * wanted (not tuned). */
#define HOSTS_WRITE_NSEC   UINT64_C(5000000000)
#define HOSTS_DEMOTED_NSEC UINT64_C(1000000000)

/* Bounds of hosts, and of copies of blocks. */
#define HOSTS_MAX      10000
#define HOSTS_KEYS_MAX (UINT32_MAX - 1)

/* The host of its group that gets a request. */
enum hosts_affinity {
        HOSTS_ROUND_ROBIN, /* the next host */
        HOSTS_RANDOM,
        HOSTS_SESSION, /* the host of the request it continues; else the least busy one */
        HOSTS_PREFIX,  /* the host with most of its text, if at least half; if several, or none, the
                          least busy one */
        HOSTS_AFFINITIES
};

/* When pages are written to the store. */
enum hosts_export { HOSTS_EXPORT_FOUND, HOSTS_EXPORT_DEMOTION };

struct hosts_store {
        struct values_options values; /* its n_keys and seed are set here; capacity 0: no store */
        struct lanes_options lanes;   /* its n_hosts is set here */
        struct tier_filter filter;
        enum hosts_export export;
        uint64_t write_bytes_per_sec; /* of each host; 0: no limit */
        uint32_t min_tokens;          /* fewer are neither asked for nor loaded */
        uint64_t block_bytes;         /* > 0 */
        /* A block of the trace is so many pages of the daemon, each a key: 1 .. HOSTS_PROBE_KEYS.
         */
        uint32_t keys_per_block;
};

struct hosts_options {
        /* Each host's cache. All requests, no engine, no expectations; its callback is set here. */
        struct sim_options cache;
        uint32_t n_hosts; /* 1 .. HOSTS_MAX */
        uint32_t group;   /* 1 ..; n_hosts is less, or a multiple */
        enum hosts_affinity affinity;
        /* Borrowed, with HOSTS_SESSION. For each request, the earlier one that it continues;
         * UINT32_MAX: none. */
        const uint32_t *continued;
        uint64_t prefill_tokens_per_sec; /* of each host, > 0 */
        struct hosts_store store;
};

struct hosts_result {
        uint64_t requests, input_tokens;
        uint64_t local_tokens, remote_tokens;  /* found; the rest was computed */
        uint64_t loads, load_bytes;            /* runs of pages */
        uint64_t lost_loads, lost_tokens;      /* in the store, and computing was faster */
        uint64_t writes, write_bytes;          /* pages */
        uint64_t refused_writes, known_writes; /* by the filter; there already */
        uint64_t dropped_writes;               /* a node, or the host, was too far behind */
        uint64_t probes, touches;              /* keys that were asked for, by EXISTS and TOUCH */
        uint64_t load_nsec;                    /* estimated time of loads, in sum */
        uint64_t duration_nsec;                /* from the first request to the last */
        uint64_t peak_bytes, peak_keys;        /* read and written, asked: in the busiest
                                                  HOSTS_PEAK_NSEC */
        uint64_t most_tokens;                  /* computed by the host that computed most */
        struct values_stats values;
};

struct hosts;

/* Makes a simulation. Returns 0 with an owned *ret_hosts; -EINVAL: options are not as described
 * above, or sim_new() refuses them; -EFBIG: more copies of blocks than HOSTS_KEYS_MAX; -ENOMEM.
 * Borrows the trace; options are copied. */
int hosts_new(const struct sim_trace *trace, const struct hosts_options *options,
        struct hosts **ret_hosts);
void hosts_free(struct hosts *h);

/* Requests of all copies. */
uint64_t hosts_n_requests(const struct hosts *h);

/* Runs up to `n` more requests. Returns the number of the rest (0: done), or -ENOMEM: it can't
 * continue. */
int64_t hosts_run(struct hosts *h, uint64_t n);

void hosts_result(const struct hosts *h, struct hosts_result *ret);

/* Debug: each host's sim_check(), and the store's. NULL, or a static sentence. */
const char *hosts_check(const struct hosts *h);

#endif
