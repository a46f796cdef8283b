/*
 * A token bucket: a rate, and a burst after a pause. PURE: time is a parameter. Plain memory; all
 * zero is a full bucket. Tokens taken beyond its contents are a debt to the tokens to come.
 */
#ifndef KVL_POLICY_BUCKET_H
#define KVL_POLICY_BUCKET_H

#include <stdint.h>

/* The highest `rate`. At a higher one the time of a token, which is in whole nanoseconds, would be
 * off by more than a thousandth. */
#define BUCKET_MAX_RATE 1000000u

struct bucket {
        uint64_t full_nsec; /* time when it is full again; past: it is full */
};

struct bucket_limit {
        uint32_t rate;  /* tokens a second, at most BUCKET_MAX_RATE; 0: no limit, always open */
        uint32_t burst; /* tokens of a full bucket, from 1 */
};

/* Wait until a token is there; 0: one is. */
uint64_t bucket_wait_nsec(const struct bucket *b, struct bucket_limit limit, uint64_t now_nsec);

/* Takes n tokens, even if they aren't there yet. */
void bucket_take(struct bucket *b, struct bucket_limit limit, uint32_t n, uint64_t now_nsec);

#endif
