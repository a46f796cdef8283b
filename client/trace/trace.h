/*
 * Traces of requests, in the format that the published Mooncake traces have: one JSON object a
 * line, plain or gzip.
 *
 *   {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2353]}
 *
 * timestamp in milliseconds or in another unit that is given, also with a fraction; either all
 * lines have one, or none: then requests come a second apart. Lengths in tokens, output_length 0
 * where it is missing. hash_ids: a block each, of
 * the text from its start on. An id (0 to 2^63 - 1) names the whole prefix up to its block
 * ("chained"); in other traces it names the content of its block alone, and the reader chains it
 * (TRACE_CHAIN). The last block may be partial. Optional fields: "tenant" (a name), "hint"
 * ("unknown", "continues", "done"). Other fields are ignored, empty lines too.
 *
 * Whatever a file holds: a line has at most TRACE_LINE_MAX bytes (line.h), a trace at most
 * TRACE_TENANTS_MAX tenants, and memory is less than 100 bytes for each byte of text.
 */
#ifndef KVL_TRACE_TRACE_H
#define KVL_TRACE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/sim/sim.h"

/* X(ID, name, nanoseconds, plural), of times. */
#define TRACE_UNIT_TABLE(X)                            \
        X(MS, "ms", UINT64_C(1000000), "milliseconds") \
        X(S, "s", UINT64_C(1000000000), "seconds")     \
        X(US, "us", UINT64_C(1000), "microseconds")    \
        X(NS, "ns", UINT64_C(1), "nanoseconds")

enum trace_unit {
#define X(id, ...) TRACE_UNIT_##id,
        TRACE_UNIT_TABLE(X)
#undef X
                TRACE_UNITS
};

struct trace_unit_row {
        const char *name, *plural;
        uint64_t nsec;
};

extern const struct trace_unit_row trace_units[TRACE_UNITS];

/* Those, and in the bits above them a trace_unit (TRACE_UNIT_FLAG()). */
enum trace_flags {
        TRACE_CHAIN = 1 << 0,    /* ids name the content of a block */
        TRACE_SKIP_BAD = 1 << 1, /* lines that can't be read are counted, not fatal */
};

#define TRACE_UNIT_SHIFT      2
#define TRACE_UNIT_FLAG(unit) ((unsigned)(unit) << TRACE_UNIT_SHIFT)

/* Not tuned: what one host may serve, and a search through them for each line. */
#define TRACE_TENANTS_MAX 256

/* Block sizes that are found out, a power of two. Larger ones must be given: a wrong input_length
 * gives those. */
#define TRACE_BLOCK_TOKENS_MAX 65536

struct trace_error {
        unsigned file; /* of those given, 0.. */
        uint64_t line; /* 1..; 0: none (the file itself) */
        char text[256];
};

/* Owned; trace_free(). */
struct trace {
        struct sim_trace sim; /* requests by time; those of the same time as they were read */
        char **tenants;       /* names, sim.n_tenants; one "" where the trace names none */
        /* Bit i: blocks of 2^i tokens fit every line. More than one bit: sim.block_tokens may be
         * wrong. 0: the size was given. */
        uint32_t block_sizes;
        uint64_t n_bad;       /* lines skipped */
        uint64_t n_late;      /* lines with a time before that of a line above: sorted */
        uint64_t n_fractions; /* lines whose time is no whole number */
        bool has_times;
        struct trace_error first_bad;
};

/*
 * Reads one file, or several as one tenant each (named by the file; what its lines say of tenants
 * is ignored), merged by time. Texts of different tenants share no blocks. block_tokens: of the
 * trace's blocks, 0: found out (the power of two that fits every line, and the smallest where
 * several do: block_sizes; 512 in the published ones; -EINVAL where none does). progress (may be
 * NULL) is called with bytes read now and then; false ends it with -ECANCELED. 0; -EINVAL:
 * *ret_error says which line and what is wrong with it; -errno of the file *ret_error names;
 * -ENOMEM. *ret_trace is untouched on failure.
 */
int trace_read(const char *const *paths, unsigned n_paths, unsigned flags, uint32_t block_tokens,
        bool (*progress)(uint64_t done_bytes, uint64_t total_bytes, void *data), void *data,
        struct trace *ret_trace, struct trace_error *ret_error);

/* The same from memory, not compressed: for tests and the fuzzer. */
int trace_parse(const char *text, size_t len, unsigned flags, uint32_t block_tokens,
        struct trace *ret_trace, struct trace_error *ret_error);

/*
 * Whether the times may be of another unit than that they were read as: a clause for people that
 * says why, or "". TRACE_DOUBT_SURE: they can't be what they were taken for. is_of_one_host: more
 * than one host can answer is a doubt. 0 or -ENOMEM.
 */
enum trace_doubt { TRACE_DOUBT_NONE, TRACE_DOUBT_MAYBE, TRACE_DOUBT_SURE };

int trace_doubt_times(
        const struct trace *t, bool is_of_one_host, enum trace_doubt *ret, char *why, size_t size);

/* A name of a tenant from that of its file: "/data/chat.jsonl.gz" is "chat". What can't be in one
 * becomes '_'. */
#define TRACE_NAME_SIZE 65
void trace_name(const char *path, char name[TRACE_NAME_SIZE]);

/* Safe on a zeroed struct. */
void trace_free(struct trace *t);

#endif
