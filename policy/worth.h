/*
 * Whether cached pages that lie on other hosts are worth loading: whether they are here sooner than
 * they would be computed again. PURE: no clock; times are parameters.
 *
 *   n >= WORTH_TOKENS_MIN, and
 *   rtt + (queued + bytes) / bandwidth * (1 + clamp(3 * error, 1/4, 1))  <  tokens * token time
 *
 * Bytes come in *parts* that are under way at the same time, each with figures of its own; the
 * left side is that of the part which takes longest. Imports have one part, the whole store, whose
 * rtt is what their own probe took (core/exchange/import.c). Bandwidth and the time a token takes
 * are *ratios* over what was seen lately; before anything was seen, or in the place of that, what
 * an administrator says. What tokens take is measured by engines.
 *
 * A quarter is added to transfers, as a load that comes late costs more than one that wasn't tried
 * gains. Where the last loads were off from what was expected of them by more than a twelfth in the
 * mean, three times that mean is added in its place. If they spread normally that is 2.4 standard
 * deviations, and fewer than one load in a hundred takes longer: so many may lose. More than a
 * transfer's own time is never added: after a moment in which all loads were late it would refuse
 * those that win by far, and what is refused isn't measured. The least number of tokens and the
 * quarter are of the design for several hosts. None of it is tuned.
 *
 * All functions take any numbers: what is too large for the result counts as its largest value.
 */
#ifndef KVL_POLICY_WORTH_H
#define KVL_POLICY_WORTH_H

#include <stdbool.h>
#include <stdint.h>

#define WORTH_TOKENS_MIN 256

/* Bytes a second that are assumed of a store at first, where nothing is configured: 1 GB/s, near to
 * what one connection of one server gives on a network of 10 Gbit/s. */
#define WORTH_BANDWIDTH_DEFAULT UINT64_C(1000000000)

/* Likewise of a token's time: 100 us, 10,000 tokens a second of prefill. */
#define WORTH_TOKEN_NSEC_DEFAULT UINT64_C(100000)

/* Of the time in which something came, so much of the latest counts for bandwidth: of what was
 * before a sample it takes off as much as adds up to that. So it doesn't matter in how many samples
 * bytes came, and slow ones count for as long as they took. Not tuned. */
#define WORTH_LOADS_NSEC 100e6

/* Loads below it say more of a round trip than of bandwidth, and aren't noted. Not tuned. */
#define WORTH_SAMPLE_BYTES (UINT64_C(64) << 10)

/* A sample that is more times what is known, or more times less, counts as so many times. Of
 * tokens, in samples of one size, one then changes the ratio by 3/8 at most, as where an engine was
 * stopped in the middle of a step. Not tuned. */
#define WORTH_SAMPLE_SPREAD 4

/*
 * An amount and the time it took, of which older samples count less and less. One of tokens takes
 * an eighth off what was there before (as the average of a node's round trips does), one of bytes
 * what WORTH_LOADS_NSEC says. So a ratio weighs samples by how large they are. All zeros: nothing
 * was seen.
 */
struct worth_ratio {
        double amount, nsec;
};

/* The ratio to begin with: bytes_per_sec, or WORTH_BANDWIDTH_DEFAULT where it is 0; token_nsec, or
 * WORTH_TOKEN_NSEC_DEFAULT where it is 0. */
struct worth_ratio worth_bandwidth(uint64_t bytes_per_sec);
struct worth_ratio worth_token_time(uint64_t token_nsec);

/* How long the amount takes: as what was seen, or where nothing was, as `start` has it. */
uint64_t worth_nsec(const struct worth_ratio *seen, struct worth_ratio start, uint64_t amount);

/* How much of it there is in a second: the inverse of worth_nsec(). */
uint64_t worth_per_sec(const struct worth_ratio *seen, struct worth_ratio start);

/* That amount took so long: tokens, or bytes. A 0 isn't noted. */
void worth_note(struct worth_ratio *seen, uint64_t amount, uint64_t nsec);

/* So many bytes came in that time: from when they were asked for less a round trip, or from when
 * what was sent before was there. Nothing in no time, and less than WORTH_SAMPLE_BYTES isn't
 * noted. */
void worth_note_load(struct worth_ratio *seen, uint64_t bytes, uint64_t nsec);

/* Values that come one after the other, of one load. Where some of them are looked at together they
 * are one sample: the first alone would seem slow, and the others as if they had taken no time, and
 * both count as WORTH_SAMPLE_SPREAD has it. */
struct worth_stream {
        uint64_t since_nsec; /* what was noted last had come, or the load began */
        uint64_t bytes;      /* that came since, and aren't noted */
};

/* One came; the next one is there already, or not. */
void worth_note_value(struct worth_ratio *seen, struct worth_stream *s, uint64_t bytes,
        bool next_is_there, uint64_t now_nsec);

/* How far loads were off from what was expected of them: the mean of |took - expected| / expected,
 * of which each load takes an eighth off. Zero: as expected, or none was seen. */
struct worth_error {
        double mean;
};

/* A load took so long, from when it was asked what is there. One of which nothing was
 * expected (0) isn't noted; one that was off by more than all that was expected is off by that. */
void worth_note_took(struct worth_error *error, uint64_t expected_nsec, uint64_t took_nsec);

/* What is asked for at one place: of a store, or of one of its nodes. */
struct worth_part {
        uint64_t rtt_nsec;
        uint64_t queued_bytes; /* that it is to send before */
        uint64_t bytes;
        const struct worth_ratio *seen; /* of its bytes; borrowed */
        struct worth_ratio start;       /* worth_bandwidth() */
        struct worth_error error;       /* of its loads */
};

enum worth_verdict {
        WORTH_LOADED,
        WORTH_TOO_SHORT, /* fewer tokens than WORTH_TOKENS_MIN */
        WORTH_TOO_SLOW,  /* computing is as fast, or faster */
};

struct worth_answer {
        enum worth_verdict verdict;
        uint64_t load_nsec;     /* the left side */
        uint64_t compute_nsec;  /* the right side */
        uint64_t expected_nsec; /* that loading takes: the left side, but that nothing is added */
};

/* parts: of all places that have some of the pages, at least one. seen, start: of the namespace's
 * tokens (worth_token_time()). */
struct worth_answer worth_loading(const struct worth_part *parts, unsigned n, uint64_t tokens,
        const struct worth_ratio *seen, struct worth_ratio start);

/* Whether computing so many tokens takes less than a load took that brought them. As long isn't
 * less. seen, start: as worth_loading() has them. */
bool worth_lost(uint64_t took_nsec, uint64_t tokens, const struct worth_ratio *seen,
        struct worth_ratio start);

#endif
