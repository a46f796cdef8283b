/*
 * Decides whether cached pages on other hosts are worth loading: whether loading is faster than
 * computing them again. PURE: no clock; times are parameters.
 *
 *   n >= LOAD_COST_TOKENS_MIN, and
 *   rtt + (queued + bytes) / bandwidth * (1 + clamp(3 * error, 1/4, 1))  <  tokens * token time
 *
 * Bytes come in *parts* at the same time, each with figures of its own. The left side is that of
 * the slowest part. Imports have one part, the whole store, whose rtt is that of their own probe
 * (daemon/exchange/import.c). Bandwidth and token time are *ratios* over recent measurements.
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
#ifndef KVL_POLICY_LOAD_COST_H
#define KVL_POLICY_LOAD_COST_H

#include <stdbool.h>
#include <stdint.h>

#define LOAD_COST_TOKENS_MIN 256

/* Bandwidth assumed of a store at first, if none is configured: 1 GB/s, near the rate of one
 * connection of one server on a network of 10 Gbit/s. */
#define LOAD_COST_BANDWIDTH_DEFAULT UINT64_C(1000000000)

/* Token time assumed at first if none is configured: 100 us, 10,000 tokens a second of prefill. */
#define LOAD_COST_TOKEN_NSEC_DEFAULT UINT64_C(100000)

/* Window of the bandwidth, in time of transfers: a sample displaces as much of the older ones as it
 * took. So the number of samples doesn't matter, and slow ones count for as long as they took. Not
 * tuned. */
#define LOAD_COST_LOADS_NSEC 100e6

/* Smaller loads reflect round trips more than bandwidth, and aren't noted. Not tuned. */
#define LOAD_COST_SAMPLE_BYTES (UINT64_C(64) << 10)

/* Bound of a sample: its ratio counts as at most so many times more or less than the known one. An
 * engine that was stopped in a step changes the ratio by at most 3/8, if samples have one size. Not
 * tuned. */
#define LOAD_COST_SAMPLE_SPREAD 4

/*
 * An amount and its time, with decaying weights. A sample of tokens takes an eighth off the older
 * ones (as the average of a node's round trips does); one of bytes as LOAD_COST_LOADS_NSEC says. So
 * samples are weighted by their size. All zeros: no sample.
 */
struct load_cost_ratio {
        double amount, nsec;
};

/* Initial ratios: bytes_per_sec, or LOAD_COST_BANDWIDTH_DEFAULT if it is 0; token_nsec, or
 * LOAD_COST_TOKEN_NSEC_DEFAULT if it is 0. */
struct load_cost_ratio load_cost_bandwidth(uint64_t bytes_per_sec);
struct load_cost_ratio load_cost_token_time(uint64_t token_nsec);

/* Time of an amount, by the samples, or by `start` if there are none. */
uint64_t load_cost_nsec(
        const struct load_cost_ratio *seen, struct load_cost_ratio start, uint64_t amount);

/* Amount in a second: the inverse of load_cost_nsec(). */
uint64_t load_cost_per_sec(const struct load_cost_ratio *seen, struct load_cost_ratio start);

/* Notes a sample of tokens or bytes. A 0 isn't noted. */
void load_cost_note(struct load_cost_ratio *seen, uint64_t amount, uint64_t nsec);

/* Notes a transfer: the time from the request, less a round trip, or from the arrival of the bytes
 * before. Transfers without bytes and time, or below LOAD_COST_SAMPLE_BYTES, aren't noted. */
void load_cost_note_load(struct load_cost_ratio *seen, uint64_t bytes, uint64_t nsec);

/* Values of one load that arrive in sequence. Values noticed together are one sample. Otherwise the
 * first would seem slow, the others instantaneous, and both would be cut to
 * LOAD_COST_SAMPLE_SPREAD. */
struct load_cost_stream {
        uint64_t since_nsec; /* arrival of the last noted value, or the load's start */
        uint64_t bytes;      /* arrived since, and not noted */
};

/* Notes an arrived value; the next one has arrived already, or not. */
void load_cost_note_value(struct load_cost_ratio *seen, struct load_cost_stream *s, uint64_t bytes,
        bool next_is_there, uint64_t now_nsec);

/* Deviation of loads from their expected time: the mean of |took - expected| / expected, of which
 * each load takes an eighth off. Zero: as expected, or no load. */
struct load_cost_error {
        double mean;
};

/* Notes the time of a load, from its probe on. A load without an expectation (0) isn't noted; a
 * deviation above the expectation counts as the expectation. */
void load_cost_note_took(struct load_cost_error *error, uint64_t expected_nsec, uint64_t took_nsec);

/* A part of a load: from a store, or from one of its nodes. */
struct load_cost_part {
        uint64_t rtt_nsec;
        uint64_t queued_bytes; /* to be sent before */
        uint64_t bytes;
        const struct load_cost_ratio *seen; /* of its bytes; borrowed */
        struct load_cost_ratio start;       /* load_cost_bandwidth() */
        struct load_cost_error error;       /* of its loads */
};

enum load_cost_verdict {
        LOAD_COST_LOADED,
        LOAD_COST_TOO_SHORT, /* fewer tokens than LOAD_COST_TOKENS_MIN */
        LOAD_COST_TOO_SLOW,  /* computing is as fast, or faster */
};

struct load_cost_answer {
        enum load_cost_verdict verdict;
        uint64_t load_nsec;     /* the left side */
        uint64_t compute_nsec;  /* the right side */
        uint64_t expected_nsec; /* of loading: the left side without a margin */
};

/* Decides. parts: all places with some of the pages, at least one. seen, start: of the namespace's
 * tokens (load_cost_token_time()). */
struct load_cost_answer load_cost_loading(const struct load_cost_part *parts, unsigned n,
        uint64_t tokens, const struct load_cost_ratio *seen, struct load_cost_ratio start);

/* True if computing the tokens takes less time than the load that brought them. seen, start: as in
 * load_cost_loading(). */
bool load_cost_lost(uint64_t took_nsec, uint64_t tokens, const struct load_cost_ratio *seen,
        struct load_cost_ratio start);

#endif
