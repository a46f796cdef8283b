/*
 * Traces of requests, in the format of the published Mooncake traces: one JSON object a line, plain
 * or gzip.
 *
 *   {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2353]}
 *
 * timestamp: in milliseconds or another given unit, also with a fraction. Either all lines have
 * one, or none: then requests come a second apart. Lengths are in tokens; a missing output_length
 * is 0. hash_ids: one for each block of the sequence from its start on. An id (0 to 2^63 - 1) names
 * the whole prefix up to its block ("chained"). In other traces it names only its block's content,
 * and the reader chains it (TRACE_CHAIN). The last block may be partial. Optional fields: "tenant"
 * (a name), "hint" ("unknown", "continues", "done"), "ending" (a number). Other fields and empty
 * lines are ignored.
 *
 * For any file: a line has at most TRACE_LINE_MAX bytes (line.h), a trace at most TRACE_TENANTS_MAX
 * tenants, and memory is less than 100 bytes for each byte of text.
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

/* These flags, and in the bits above them a trace_unit (TRACE_UNIT_FLAG()). */
enum trace_flags {
        TRACE_CHAIN = 1 << 0,    /* ids name the content of a block */
        TRACE_SKIP_BAD = 1 << 1, /* lines that can't be read are counted, not fatal */
};

#define TRACE_UNIT_SHIFT      2
#define TRACE_UNIT_FLAG(unit) ((unsigned)(unit) << TRACE_UNIT_SHIFT)

/* Not tuned: as one host may serve; each line searches them. */
#define TRACE_TENANTS_MAX 256

/* Limit on determined block sizes, a power of two. Larger ones must be given: a wrong input_length
 * looks like one. */
#define TRACE_BLOCK_TOKENS_MAX 65536

struct trace_error {
        unsigned file; /* index of the given files */
        uint64_t line; /* 1..; 0: none (the file itself) */
        char text[256];
};

/* Owned; trace_free(). */
struct trace {
        struct sim_trace sim; /* requests by time; at equal times in order of reading */
        char **tenants;       /* names, sim.n_tenants; one "" if the trace names none */
        /* Bit i: blocks of 2^i tokens fit every line. More than one bit: sim.block_tokens may be
         * wrong. 0: the size was given. */
        uint32_t block_sizes;
        uint64_t n_bad;       /* lines skipped */
        uint64_t n_late;      /* lines with a time before an earlier line's: sorted */
        uint64_t n_fractions; /* lines whose time is no whole number */
        bool has_times;
        struct trace_error first_bad;
};

/* Files to read. */
struct trace_source {
        const char *const *paths; /* n_paths of them; borrowed */
        unsigned n_paths;
        unsigned flags;        /* enum trace_flags */
        uint32_t block_tokens; /* the trace's block size; 0: determined */
        /* NULL, or called with the bytes read at intervals; false ends the reading. */
        bool (*progress)(uint64_t done_bytes, uint64_t total_bytes, void *data);
        void *data;
};

/*
 * Reads one file, or several as one tenant each (named by the file; tenants of its lines are
 * ignored), merged by time. Sequences of different tenants share no blocks. A determined block size
 * is the smallest power of two that fits every line (block_sizes has all; 512 in the published
 * traces); -EINVAL if none does. -ECANCELED: progress() ended it.
 *
 * Returns 0; -EINVAL: *ret_error has the line and its error; -errno of the file that *ret_error
 * names; -ENOMEM. *ret_trace is untouched on failure.
 */
int trace_read(
        const struct trace_source *source, struct trace *ret_trace, struct trace_error *ret_error);

/* Does trace_read() from uncompressed memory: for tests and the fuzzer. */
int trace_parse(const char *text, size_t len, unsigned flags, uint32_t block_tokens,
        struct trace *ret_trace, struct trace_error *ret_error);

/* Checks whether the times may have another unit than given. Writes a clause for people with the
 * reason, or "". TRACE_DOUBT_SURE: they can't have the given unit. is_of_one_host: more load than
 * one host can answer is a doubt. Returns 0 or -ENOMEM. */
enum trace_doubt { TRACE_DOUBT_NONE, TRACE_DOUBT_MAYBE, TRACE_DOUBT_SURE };

int trace_doubt_times(
        const struct trace *t, bool is_of_one_host, enum trace_doubt *ret, char *why, size_t size);

/* Makes a tenant's name of a file's name: "/data/chat.jsonl.gz" is "chat". Other characters than
 * names may have become '_'. */
#define TRACE_NAME_SIZE 65
void trace_name(const char *path, char name[TRACE_NAME_SIZE]);

/* Safe on a zeroed struct. */
void trace_free(struct trace *t);

#endif
