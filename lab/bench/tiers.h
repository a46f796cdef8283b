/*
 * The parts of the benchmark `tiers`, a file or two each; tiers.c runs them in turn. A new one is a
 * function here and a line of its table.
 */
#ifndef KVL_BENCH_TIERS_H
#define KVL_BENCH_TIERS_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/bench/bench.h"

/* Adds its rows. Returns 0; -errno with a line on stderr; -ENODEV after a note: a needed thing
 * isn't here, and the others continue. */
typedef int (*tiers_part_fn)(struct bench_run *run);

int tiers_moves(struct bench_run *run);  /* the mover, without codec */
int tiers_codecs(struct bench_run *run); /* encoding and decoding */
int tiers_perplexity(struct bench_run *run);
int tiers_traffic(struct bench_run *run);  /* down and up through the daemon */
int tiers_leases(struct bench_run *run);   /* beside that */
int tiers_hits(struct bench_run *run);     /* of a trace */
int tiers_prefetch(struct bench_run *run); /* a cold text that is read piece by piece */

/* ---- what goes down and comes up again, beside memcpy() of as many bytes -----------------------
 */

/* Two memory files like the daemon's, far larger than caches. The measured code uses the first half
 * of both, memcpy() the second, alternating by blocks: all blocks down, then all up. */
struct contest {
        uint8_t *plain, *stored; /* bytes * 2 each; borrowed by the code that moves them */
        size_t bytes;            /* a half: a multiple of CONTEST_BLOCK */
        size_t page_bytes;       /* size of a memcpy(); a divisor of CONTEST_BLOCK */
        int fds[2];
};

#define CONTEST_BLOCK ((size_t)64 << 20)

/* Plain bytes are finite fp16 numbers. 0, or -errno with a line. */
int contest_open(struct contest *c, bool quick);
void contest_close(struct contest *c);

/* Moves `bytes` plain bytes from `at` on, both multiples of the page. 0, or -errno with a line. */
typedef int (*contest_fn)(struct contest *c, bool is_up, size_t at, size_t bytes, void *data);

/* Units of a round's result, in GB/s of plain bytes, down and up counted each. By the clock, or by
 * processor time of all threads of this process, which other processes affect less. */
enum contest_clock { CONTEST_CLOCK, CONTEST_PROCESSOR, N_CONTEST_CLOCKS };

/* Sets medians over the rounds; results[i] may be NULL. Returns 0, or fn's result. */
int contest_run(struct contest *c, unsigned rounds, contest_fn fn, void *data,
        struct bench_result *const results[N_CONTEST_CLOCKS]);

#endif
