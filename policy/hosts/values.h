/*
 * What a cluster of Redis or Valkey keeps: values of one size under keys, as many as have room,
 * each until it expires. PURE: no I/O, no clock, time is a parameter and never goes back. Not
 * thread-safe.
 *
 * Keys are numbers, and nothing is known of which one continues which: a value may go before those
 * that are of no use without it, as it does there.
 *
 *   absent -> put -> used, any number of times -> evicted, or expired -> absent
 *
 * The victim is exact, where Redis takes the best of five that it draws (maxmemory-samples), and of
 * sixteen that it remembers. With VALUES_LFU uses are counted as Redis counts them by default
 * (lfu-log-factor 10, lfu-decay-time 1 minute).
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
        uint32_t n, most; /* values that there are; that there were at most */
        uint64_t puts, evictions, expirations;
};

struct values;

/* 0: *ret_values, owned. -ENOMEM. 4 bytes a key, and up to 56 a value that is there. */
int values_new(const struct values_options *options, struct values **ret_values);
void values_free(struct values *v);

/* Whether it is there. No use of it, as EXISTS is none. */
bool values_has(struct values *v, uint32_t key, uint64_t now_nsec);

/* A use of it, as GET and TOUCH are. False: it isn't there. */
bool values_use(struct values *v, uint32_t key, uint64_t now_nsec);

/* A use of it, unless it was used within so long. Whether it was. */
bool values_use_again(struct values *v, uint32_t key, uint64_t within_nsec, uint64_t now_nsec);

/* It isn't there: it is from now on, and others may go for it. 0 or -ENOMEM (unchanged, but for
 * what has expired). With a capacity of 0 nothing happens. */
int values_put(struct values *v, uint32_t key, uint64_t now_nsec);

void values_stats(const struct values *v, struct values_stats *ret_stats);

/* Debug: NULL, or a static sentence naming what is not. O(values). */
const char *values_check(const struct values *v);

#endif
