/*
 * Region sizer: the size of a tenant's reservation between [min, max], from its recent demand.
 * PURE: time is a parameter.
 *
 * Demand (bytes of extent sets that the tenant uses or waits for) is sampled into a histogram of a
 * sliding window. Aim: at most one sample in a hundred exceeds the reservation, and little more
 * than that is reserved.
 *
 * - Grow at once, if the window's p99 exceeds the reservation. Also if the current demand does, and
 *   more than one sample in 200 of the window did: rarer spikes don't count. The target is the
 *   larger of the p99 and the current demand. A sixteenth is added to it if that is whole steps; an
 *   eighth if the reservation already grew within the window, so that a long ramp takes few steps.
 * - Shrink slowly, towards the size that all but one sample in 400 of the window fit. Not before a
 *   whole window was sampled, nor in the cool-down after a change. Only if that is more than an
 *   eighth below the reservation; half of the way at a time.
 *
 * The three parts (1/100, 1/200, 1/400) differ so that a shrunk reservation doesn't grow at once.
 * They, the eighths and the sixteenth are not tuned; tests/unit/test_sizer.c checks their results.
 */
#ifndef KVL_POLICY_SIZER_H
#define KVL_POLICY_SIZER_H

#include <stdbool.h>
#include <stdint.h>

enum sizer_why {
        SIZER_NONE,       /* nothing was decided yet */
        SIZER_GROW,       /* demand beyond the reservation */
        SIZER_SHRINK,     /* the p99 lies below it */
        SIZER_HOLD,       /* it fits: within the hysteresis, or rarely exceeded */
        SIZER_COOLDOWN,   /* would shrink, but the last change is too recent */
        SIZER_AT_MAX,     /* would grow */
        SIZER_AT_MIN,     /* would shrink */
        SIZER_NEW_LIMITS, /* min or max changed: the reservation is moved into them */
        SIZER_REFUSED,    /* the device had no room to grow: set by the caller */
        SIZER_LEARNING,   /* would shrink, but a whole window wasn't sampled yet */
};

struct sizer_params {
        uint64_t window_nsec;          /* sliding window of samples; > 0 */
        uint64_t cooldown_nsec;        /* from a change to the next shrinking */
        uint64_t step_bytes;           /* reservations are multiples of it; > 0 */
        uint64_t min_bytes, max_bytes; /* min <= max */
};

struct sizer; /* opaque; one per tenant (and device) */

/*
 * Makes a sizer; NULL: no memory. It takes 75 KiB for any number of samples: a ring of
 * SIZER_BUCKETS histograms, each of a part of the window, and their sum. The window slides by one
 * part, so it covers between window_nsec and a part more.
 *
 * Demand is counted in steps, rounded up: exact below 128 steps; above, results are too large by
 * less than 1/128. All values from 2^21 steps on count as one.
 */
#define SIZER_BUCKETS 8 /* not tuned */

struct sizer *sizer_new(void);
void sizer_free(struct sizer *s);

/* Samples the demand at `now`, which never goes back. O(1), amortised. A changed window_nsec or
 * step_bytes drops all samples. */
void sizer_sample(
        struct sizer *s, const struct sizer_params *p, uint64_t demand_bytes, uint64_t now_nsec);

/* The 99th percentile of the window's samples, in whole steps; 0 without samples. */
uint64_t sizer_p99(const struct sizer *s);

/* Demand as sampled last. */
uint64_t sizer_demand(const struct sizer *s);

struct sizer_decision {
        uint64_t target_bytes; /* reservation from now on */
        uint64_t p99_bytes;
        enum sizer_why why;
};

/*
 * Decides about a reservation of `reserved_bytes` (of whole steps). The target differs from it only
 * with GROW, SHRINK and NEW_LIMITS. Changes nothing: a caller that applies the decision calls
 * sizer_applied().
 */
struct sizer_decision sizer_decide(const struct sizer *s, const struct sizer_params *p,
        uint64_t reserved_bytes, uint64_t now_nsec);
void sizer_applied(struct sizer *s, const struct sizer_decision *d, uint64_t now_nsec);

/* "demand is more than is reserved", ... Static. */
const char *sizer_why_text(enum sizer_why why);

/* "grow", "cooldown", ...: for JSON. Static. */
const char *sizer_why_name(enum sizer_why why);

#endif
