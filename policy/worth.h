/*
 * Decides whether cached pages on other hosts are worth loading: whether loading is faster than
 * computing them again. PURE: no clock; times are parameters.
 *
 *   n >= WORTH_TOKENS_MIN, and
 *   rtt + (queued + bytes) / bandwidth * (1 + clamp(3 * error, 1/4, 1))  <  tokens * token time
 *
 * Bytes come in *parts* at the same time, each with figures of its own. The left side is that of
 * the slowest part. Imports have one part, the whole store, whose rtt is that of their own probe
 * (core/exchange/import.c). Bandwidth and token time are *ratios* over recent measurements.
 * Settings of the administrator replace missing measurements, and may override them. Engines
 * measure the token time.
 *
 * A quarter is added to transfers, as a late load costs more than an untried one would gain. If the
 * last loads deviated from their expected time by more than a twelfth on average, three times that
 * average is added instead. For normal deviations these are 2.4 standard deviations: fewer than one
 * load in a hundred takes longer. At most a transfer's own time is added. Otherwise, after a moment
 * of late loads, good loads would be refused, and refused ones aren't measured. The least number of
 * tokens and the quarter are from the design for several hosts. None is tuned.
 *
 * All functions take any numbers: results saturate.
 */
#ifndef KVL_POLICY_WORTH_H
#define KVL_POLICY_WORTH_H

#include <stdbool.h>
#include <stdint.h>

#define WORTH_TOKENS_MIN 256

/* Bandwidth assumed of a store at first, if none is configured: 1 GB/s, near the rate of one
 * connection of one server on a network of 10 Gbit/s. */
#define WORTH_BANDWIDTH_DEFAULT UINT64_C(1000000000)

/* Token time assumed at first if none is configured: 100 us, 10,000 tokens a second of prefill. */
#define WORTH_TOKEN_NSEC_DEFAULT UINT64_C(100000)

/* Window of the bandwidth, in time of transfers: a sample displaces as much of the older ones as it
 * took. So the number of samples doesn't matter, and slow ones count for as long as they took. Not
 * tuned. */
#define WORTH_LOADS_NSEC 100e6

/* Smaller loads reflect round trips more than bandwidth, and aren't noted. Not tuned. */
#define WORTH_SAMPLE_BYTES (UINT64_C(64) << 10)

/* Bound of a sample: its ratio counts as at most so many times more or less than the known one. An
 * engine that was stopped in a step changes the ratio by at most 3/8, if samples have one size. Not
 * tuned. */
#define WORTH_SAMPLE_SPREAD 4

/*
 * An amount and its time, with decaying weights. A sample of tokens takes an eighth off the older
 * ones (as the average of a node's round trips does); one of bytes as WORTH_LOADS_NSEC says. So
 * samples are weighted by their size. All zeros: no sample.
 */
struct worth_ratio {
        double amount, nsec;
};

/* Initial ratios: bytes_per_sec, or WORTH_BANDWIDTH_DEFAULT if it is 0; token_nsec, or
 * WORTH_TOKEN_NSEC_DEFAULT if it is 0. */
struct worth_ratio worth_bandwidth(uint64_t bytes_per_sec);
struct worth_ratio worth_token_time(uint64_t token_nsec);

/* Time of an amount, by the samples, or by `start` if there are none. */
uint64_t worth_nsec(const struct worth_ratio *seen, struct worth_ratio start, uint64_t amount);

/* Amount in a second: the inverse of worth_nsec(). */
uint64_t worth_per_sec(const struct worth_ratio *seen, struct worth_ratio start);

/* Notes a sample of tokens or bytes. A 0 isn't noted. */
void worth_note(struct worth_ratio *seen, uint64_t amount, uint64_t nsec);

/* Notes a transfer: the time from the request, less a round trip, or from the arrival of the bytes
 * before. Transfers without bytes and time, or below WORTH_SAMPLE_BYTES, aren't noted. */
void worth_note_load(struct worth_ratio *seen, uint64_t bytes, uint64_t nsec);

/* Values of one load that arrive in sequence. Values noticed together are one sample. Otherwise the
 * first would seem slow, the others instantaneous, and both would be cut to WORTH_SAMPLE_SPREAD. */
struct worth_stream {
        uint64_t since_nsec; /* arrival of the last noted value, or the load's start */
        uint64_t bytes;      /* arrived since, and not noted */
};

/* Notes an arrived value; the next one has arrived already, or not. */
void worth_note_value(struct worth_ratio *seen, struct worth_stream *s, uint64_t bytes,
        bool next_is_there, uint64_t now_nsec);

/* Deviation of loads from their expected time: the mean of |took - expected| / expected, of which
 * each load takes an eighth off. Zero: as expected, or no load. */
struct worth_error {
        double mean;
};

/* Notes the time of a load, from its probe on. A load without an expectation (0) isn't noted; a
 * deviation above the expectation counts as the expectation. */
void worth_note_took(struct worth_error *error, uint64_t expected_nsec, uint64_t took_nsec);

/* A part of a load: from a store, or from one of its nodes. */
struct worth_part {
        uint64_t rtt_nsec;
        uint64_t queued_bytes; /* to be sent before */
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
        uint64_t expected_nsec; /* of loading: the left side without a margin */
};

/* Decides. parts: all places with some of the pages, at least one. seen, start: of the namespace's
 * tokens (worth_token_time()). */
struct worth_answer worth_loading(const struct worth_part *parts, unsigned n, uint64_t tokens,
        const struct worth_ratio *seen, struct worth_ratio start);

/* True if computing the tokens takes less time than the load that brought them. seen, start: as in
 * worth_loading(). */
bool worth_lost(uint64_t took_nsec, uint64_t tokens, const struct worth_ratio *seen,
        struct worth_ratio start);

#endif
