/*
 * The shape of the state that llama_state_seq_get_data_ext() writes for one sequence.
 *
 * It is learned from a state of our own. From then on the bytes of rows alone are taken from
 * states, and states are made from rows alone. So llama.cpp reads no header that another process
 * wrote.
 *
 *   state:  magic u32, sequence i32, sections
 *   rows (1 or 2 sections):  streams u32 = 1, cells u32, cell..., transposed u32, layers u32,
 *           K of each layer, V of each layer or of none
 *   state of a recurrent model (the last section):  cells u32 <= 1, cell, u32, layers u32, parts
 *   cell:   position i32, sequences u32 (rows: 1, else 0), sequence i32 (rows)
 *   K, V, part:  type i32, bytes of a row u64, rows; V transposed: type i32, bytes of an element
 * u32, elements u32, and for each element those of all cells
 */
#ifndef KVL_LLAMA_BLOB_H
#define KVL_LLAMA_BLOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Parts of a state, as bits. */
enum blob_part {
        BLOB_ROWS = 1,
        BLOB_STATE = 2,
        BLOB_NO_CELL = 4, /* the section of the state is there, without a state */
};

enum blob_step_kind {
        STEP_LITERAL, /* bytes that are the same in all states */
        STEP_CELLS,
        STEP_DATA, /* outer times, for each cell: inner bytes */
};

struct blob_step {
        enum blob_step_kind kind;
        enum blob_part part;
        uint8_t n;         /* LITERAL: bytes */
        uint8_t bytes[16]; /* LITERAL */
        int32_t type;      /* DATA: of llama.cpp's numbers (enum ggml_type) */
        uint64_t outer, inner;
};

struct blob_shape {
        struct blob_step *steps; /* owned */
        uint32_t n_steps;
        uint64_t row_bytes;   /* of one token, over all sections and layers */
        uint64_t state_bytes; /* of the state; 0: none */
};

/* Learns the shape from a state with rows of n_cells tokens from position `first` on (none if
 * is_recurrent), and a state if has_state. Returns 0; -EOPNOTSUPP: it has another form, with a
 * sentence; -ENOMEM. Owned: blob_shape_free(), also after a failure. */
int blob_learn(struct blob_shape *shape, const uint8_t *blob, size_t bytes, uint32_t first,
        uint32_t n_cells, bool has_rows, bool has_state);
void blob_shape_free(struct blob_shape *shape);

/* Returns the bytes of a state with these parts, of n_cells rows. */
size_t blob_bytes(const struct blob_shape *shape, int parts, uint32_t n_cells);

/*
 * Takes rows and state out of a state of our own: rows in order of positions, first..first +
 * n_cells - 1. rows: n_cells * row_bytes; state: state_bytes; NULL: not wanted. Returns 0;
 * -EBADMSG: it isn't of the shape, with a sentence; then their contents are undefined.
 */
int blob_unpack(const struct blob_shape *shape, const uint8_t *blob, size_t bytes, int parts,
        uint32_t first, uint32_t n_cells, uint8_t *rows, uint8_t *state);

/* Makes a state of blob_bytes() bytes. The state's position is first + n_cells - 1. */
void blob_pack(const struct blob_shape *shape, int parts, uint32_t first, uint32_t n_cells,
        const uint8_t *rows, const uint8_t *state, uint8_t *ret_blob);

/* Returns whether two chunks' rows, or two states (part), can't be of the same text. */
bool blob_differ(const struct blob_shape *shape, enum blob_part part, uint32_t n_cells,
        const uint8_t *own, const uint8_t *other);

#endif
