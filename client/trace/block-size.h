/*
 * Determines the size of a trace's blocks from its lines, which don't state it. PURE.
 *
 * A line has a number of tokens and of blocks. Traces count them in one of two ways. Either the
 * last block may be partial and has an id (the published Mooncake traces). Or only full blocks have
 * ids, and the rest of the sequence has none. Read in the wrong way a size may appear doubled, so
 * both ways are considered.
 */
#ifndef KVL_TRACE_BLOCK_SIZE_H
#define KVL_TRACE_BLOCK_SIZE_H

#include <stddef.h>
#include <stdint.h>

/* Tokens of a block, both ends included; least > most: no size fits all lines. */
struct block_range {
        uint64_t least, most;
};

struct block_size {
        struct block_range partial; /* (n - 1) * size < tokens <= n * size */
        struct block_range full;    /* n * size <= tokens < (n + 1) * size */
};

void block_size_init(struct block_size *s);

/* Adds a line's tokens and blocks. Nothing if one of them is 0. */
void block_size_line(struct block_size *s, uint64_t tokens, uint32_t n_blocks);

/* Returns a bit mask: bit i is set if 2^i tokens fit all lines in one of the two ways; up to
 * TRACE_BLOCK_TOKENS_MAX. */
uint32_t block_size_fits(const struct block_size *s);

/* Returns the size to read the trace with: the smallest power of two that fits if the last block
 * may be partial, else the smallest that fits with full blocks only. 0: none fits, or it exceeds
 * TRACE_BLOCK_TOKENS_MAX. */
uint32_t block_size_choose(const struct block_size *s);

/* Writes why none fits: a sentence without its end, with the remedy. */
void block_size_explain(const struct block_size *s, char *buf, size_t size);

#endif
