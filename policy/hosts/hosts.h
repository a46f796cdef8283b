/*
 * Many hosts over one store: what each would find in its own cache, what it would load of what
 * others have put into the store, and what it would have to compute. PURE: no I/O, no clock. Each
 * host's cache is the simulator's (policy/sim/sim.h), with the policies of the daemon. One instance
 * is one thread's; a trace is read only and may be shared.
 *
 * The model (docs/REMOTE.md, "The simulator"):
 *
 * A trace is for a *group* of hosts. More hosts than that are several groups, each with a copy of
 * the trace: the same requests with texts of their own, and later by an equal part of
 * HOSTS_SPREAD_NSEC for each copy. All groups have the one store.
 *
 * A request goes to a host of its group (enum hosts_affinity). What the host has of its text is
 * found there. Of the rest it asks the store, if that are min_tokens or more: whether the next
 * pages are there, HOSTS_PROBE_KEYS at a time, until one isn't. What is there without a gap is
 * loaded, if that are min_tokens or more and loading takes less time than computing (lanes.h). The
 * rest is computed. Then the host caches all of it, which is the same for the host's cache whether
 * it was loaded or computed.
 *
 * What is written to the store, as exports say (enum hosts_export):
 *
 *   found      as kvleased does (daemon/core/exports/export.c): what the filter admits of a
 * request's text, from its beginning, is a text that waits, those that were found before those that
 * were only published, and of each kind the newest first; it grows by blocks that continue it. Each
 * block that the host hasn't seen in the store within HOSTS_TOUCH_NSEC is marked as used there, and
 * written where it isn't there. A text of whose end the host has let go meanwhile ends where it
 * began to grow, and where that is gone, too, it is dropped, as is the last one beyond
 * HOSTS_TEXTS_MAX. demotion   what leaves a host's device for others, where the filter admits it
 * and it isn't there already. Blocks that precede what a request asks for are marked as used, once
 *              within HOSTS_TOUCH_NSEC.
 *
 * A host writes so many bytes a second at most: texts wait for that, what leaves a device is
 * dropped. A write is there at once.
 *
 * Requests take no time, as in the simulator without an engine.
 */
#ifndef KVL_POLICY_HOSTS_H
#define KVL_POLICY_HOSTS_H

#include "policy/hosts/lanes.h"
#include "policy/hosts/values.h"
#include "policy/sim/sim.h"
#include "policy/tier.h"

/* The copies of a trace begin within so long. Not tuned: longer than a burst of requests, and short
 * beside a trace, whose hours all copies then have together. */
#define HOSTS_SPREAD_NSEC UINT64_C(60000000000)

#define HOSTS_PROBE_KEYS 128                   /* of the design for several hosts; not tuned */
#define HOSTS_TOUCH_NSEC UINT64_C(60000000000) /* as EXCHANGE_AGAIN_SEC of kvleased */
#define HOSTS_TEXTS_MAX  256                   /* as EXPORT_TEXTS_MAX of kvleased */
#define HOSTS_PEAK_NSEC  UINT64_C(10000000000) /* what is busiest is looked for by so long */

/* A block whose nodes don't begin to write it within so long is dropped, of texts that wait (as
 * EXPORT_DEADLINE_NSEC of kvleased), and of what leaves a device (its memory is wanted; not tuned).
 */
#define HOSTS_WRITE_NSEC   UINT64_C(5000000000)
#define HOSTS_DEMOTED_NSEC UINT64_C(1000000000)

/* Hosts, and copies of blocks, that can be told apart. */
#define HOSTS_MAX      10000
#define HOSTS_KEYS_MAX (UINT32_MAX - 1)

/* To which host of its group a request goes. */
enum hosts_affinity {
        HOSTS_ROUND_ROBIN, /* the next one */
        HOSTS_RANDOM,
        HOSTS_SESSION, /* that of the request which it continues; else the one with least to do */
        HOSTS_PREFIX,  /* that which has most of its text, if it is at least half; of several, and
                          else, the one with least to do */
        HOSTS_AFFINITIES
};

/* What is written, and when. */
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
        /* Borrowed. Of each request the one before it that it continues; UINT32_MAX: none. With
         * HOSTS_SESSION. */
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
        uint64_t load_nsec;                    /* that loads took as estimated, in sum */
        uint64_t duration_nsec;                /* from the first request to the last */
        uint64_t peak_bytes, peak_keys;        /* read and written, asked: in the busiest
                                                  HOSTS_PEAK_NSEC */
        uint64_t most_tokens;                  /* computed by the host that computed most */
        struct values_stats values;
};

struct hosts;

/* 0: *ret_hosts, owned. -EINVAL: options are not as described above, or sim_new() says so; -EFBIG:
 * more copies of blocks than HOSTS_KEYS_MAX; -ENOMEM. Borrows the trace; options are copied. */
int hosts_new(const struct sim_trace *trace, const struct hosts_options *options,
        struct hosts **ret_hosts);
void hosts_free(struct hosts *h);

/* Requests of all copies. */
uint64_t hosts_n_requests(const struct hosts *h);

/* Runs up to `n` more requests. Number of those that are left, 0: done; -ENOMEM: it can't go on. */
int64_t hosts_run(struct hosts *h, uint64_t n);

void hosts_result(const struct hosts *h, struct hosts_result *ret);

/* Debug: each host's sim_check(), and the store's. NULL, or a static sentence. */
const char *hosts_check(const struct hosts *h);

#endif
