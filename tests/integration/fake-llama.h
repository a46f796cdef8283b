/*
 * A few functions of libllama, for tests of libkvlease-llama: a context has cells, and rows that
 * follow from weights, tokens and positions. Where llama.cpp would end the process, this does.
 */
#ifndef KVL_TEST_FAKE_LLAMA_H
#define KVL_TEST_FAKE_LLAMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/llama/symbols.h"

#define LLAMA_VISIBLE            __attribute__((visibility("default")))
#define X(type, name, arguments) LLAMA_VISIBLE type llama_##name arguments;
LLAMA_FUNCTIONS(X)
#undef X

struct fake_options {
        bool is_recurrent, is_hybrid;
        bool is_transposed; /* V: no flash attention */
        bool has_window;    /* rows of half of the layers are forgotten but for the last `window` */
        bool has_no_v;      /* as of MLA */
        bool is_split;      /* each sequence has a stream of its own */
        int32_t window;
        int rope;
        int32_t type_k; /* as of llama.cpp */
        uint32_t n_seqs, n_cells;
        uint64_t weights;
        bool is_scattered; /* free cells are taken from the end */
};

/* From now on it computes with other weights. */
void fake_set_weights(struct llama_context *ctx, uint64_t weights);

struct llama_context *fake_new(const struct fake_options *options);
void fake_free(struct llama_context *ctx);

/* Computes tokens at the end of a sequence. Returns false if there are no cells. */
bool fake_compute(struct llama_context *ctx, int32_t seq, const int32_t *tokens, uint32_t n);

/* Returns a number that depends on all rows and states of the sequence. */
uint64_t fake_sum(struct llama_context *ctx, int32_t seq);

/* The state as llama_state_seq_get_data_ext() returns it; owned. */
uint8_t *fake_state(struct llama_context *ctx, int32_t seq, size_t *ret_bytes);

#endif
