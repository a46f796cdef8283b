/*
 * Simulates the values in a cluster of Redis or Valkey: values of one size under keys, up to its
 * capacity, each until it expires. PURE: no I/O, no clock, time is a parameter and never goes back.
 * Not thread-safe.
 *
 * Keys are numbers without a relation: a value may be evicted before others that are useless
 * without it, as in a real cluster.
 *
 *   absent -> put -> used, any number of times -> evicted, or expired -> absent
 *
 * The victim is exact. Redis takes the best of five samples (maxmemory-samples) and sixteen
 * remembered ones. With VALUES_LFU uses are counted as by Redis's defaults (lfu-log-factor 10,
 * lfu-decay-time 1 minute).
 */
#ifndef KVL_POLICY_HOSTS_VALUES_H
#define KVL_POLICY_HOSTS_VALUES_H

#include <stdbool.h>
#include <stdint.h>

enum values_evict {
        VALUES_LRU, /* allkeys-lru */
        VALUES_LFU, /* allkeys-lfu */
};

struct values_options {
        enum values_evict evict;
        uint32_t n_keys;      /* 0 .. n_keys - 1; < UINT32_MAX */
        uint32_t capacity;    /* values; more than n_keys: n_keys */
        uint64_t expiry_nsec; /* from its put() on; 0: never */
        uint64_t seed;        /* of the LFU's counters */
};

struct values_stats {
        uint32_t n, most; /* values now; highest number */
        uint64_t evictions, expirations;
};

struct values;

/* Returns 0 with an owned *ret_values, or -ENOMEM. 4 bytes a key, and up to 56 an existing
 * value. */
int values_new(const struct values_options *options, struct values **ret_values);
void values_free(struct values *v);

/* True if the key exists. Not a use of it, like EXISTS. */
bool values_has(struct values *v, uint32_t key, uint64_t now_nsec);

/* Uses the key, like GET and TOUCH. Returns false if it doesn't exist. */
bool values_use(struct values *v, uint32_t key, uint64_t now_nsec);

/* Uses the key, unless it was used within so long. Returns true if it was used now. */
bool values_use_again(struct values *v, uint32_t key, uint64_t within_nsec, uint64_t now_nsec);

/* Puts a missing key; others may be evicted for it. Returns 0 or -ENOMEM (unchanged, except expired
 * values). With a capacity of 0 nothing happens. */
int values_put(struct values *v, uint32_t key, uint64_t now_nsec);

void values_stats(const struct values *v, struct values_stats *ret_stats);

/* Debug: NULL, or a static sentence naming an inconsistency. O(values). */
const char *values_check(const struct values *v);

#endif
