/*
 * Free pages to prepare ahead of demand: as many as will be leased while an extent set is made.
 * PURE: time is a parameter. One per namespace, plain memory, zero is empty.
 */
#ifndef KVL_POLICY_AHEAD_H
#define KVL_POLICY_AHEAD_H

#include <stdint.h>

struct ahead {
        double pages_per_sec; /* leased, decaying average */
        double make_sec;      /* an extent set's making, decaying average */
        uint64_t last_nsec;   /* time of pages_per_sec */
};

/* `n` pages were leased. O(1). */
void ahead_leased(struct ahead *a, uint32_t n, uint64_t now_nsec);

/* Notes the time of making a set. */
void ahead_made(struct ahead *a, uint64_t took_nsec);

/* Free pages that should exist now: twice the average leases during the making of a set, at most
 * `most`; 0 if none were leased for a while, or no set was made yet. */
uint32_t ahead_pages(const struct ahead *a, uint32_t most, uint64_t now_nsec);

#endif
