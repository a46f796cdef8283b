/*
 * The size of a trace's blocks, which no line says: what its lines leave possible. PURE.
 *
 * A line has a number of tokens and of blocks. Traces count them in one of two ways: the last block
 * may be partial and has an id all the same (the published Mooncake traces), or full blocks alone
 * have one and the rest of the text has none. Read in the wrong way a size can be taken for twice
 * what it is, so both ways are looked at.
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

/* A line of so many tokens and blocks. One without tokens or without blocks says nothing. */
void block_size_line(struct block_size *s, uint64_t tokens, uint32_t n_blocks);

/* Bit i: 2^i tokens fit all lines, in one of the two ways; up to TRACE_BLOCK_TOKENS_MAX. */
uint32_t block_size_fits(const struct block_size *s);

/* The size to read the trace with: the smallest power of two that fits where the last block may be
 * partial, else the smallest that fits where there are full ones alone. 0: none fits,
 * or what fits is more than TRACE_BLOCK_TOKENS_MAX. */
uint32_t block_size_choose(const struct block_size *s);

/* Why none fits: a sentence without its end, which names what would help. */
void block_size_explain(const struct block_size *s, char *buf, size_t size);

#endif
