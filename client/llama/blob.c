#include "client/llama/blob.h"

#include "client/llama/error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC 0xaf143cd8u
/* More than any model has, so that a wrong number ends the search for the shape. */
#define MAX_LAYERS    4096
#define MAX_TYPE      255
#define ROW_CELL      12 /* bytes */
#define STATE_CELL    8
#define LITERAL_BYTES 16

/* ---- reading --------------------------------------------------------------------------------- */

struct reader {
        const uint8_t *at;
        size_t left;
};

static bool take_bytes(struct reader *r, void *ret, size_t bytes)
{
        if (r->left < bytes)
                return false;
        if (ret)
                memcpy(ret, r->at, bytes);
        r->at += bytes;
        r->left -= bytes;
        return true;
}

static bool take_u32(struct reader *r, uint32_t *ret)
{
        return take_bytes(r, ret, sizeof(*ret));
}

/* Reads the cell of a state. */
static bool take_state_cell(struct reader *r, uint32_t *ret_position)
{
        uint32_t n, n_seqs;

        return take_u32(r, &n) && n == 1 && take_u32(r, ret_position) && take_u32(r, &n_seqs) &&
               n_seqs == 0;
}

/* Reads the cells of rows. order (may be NULL): the index of each in the order of positions. */
static bool take_cells(
        struct reader *r, uint32_t first, uint32_t n_cells, uint32_t *order, bool *ret_is_ordered)
{
        uint32_t n, pos, n_seqs, sum = 0;

        *ret_is_ordered = true;
        if (!take_u32(r, &n) || n != n_cells)
                return false;
        for (uint32_t i = 0; i < n; ++i) {
                if (!take_u32(r, &pos) || !take_u32(r, &n_seqs) || n_seqs != 1 ||
                        !take_bytes(r, NULL, sizeof(int32_t)) || pos - first >= n_cells)
                        return false;
                if (order)
                        order[i] = pos - first;
                *ret_is_ordered &= pos - first == i;
                sum += pos - first;
        }
        /* llama.cpp has each position of a sequence once. */
        return sum == n * (n - 1) / 2;
}

/* ---- learning -------------------------------------------------------------------------------- */

static struct blob_step *add_step(
        struct blob_shape *s, enum blob_step_kind kind, enum blob_part part)
{
        struct blob_step *steps = s->steps;

        if (s->n_steps % 64 == 0)
                steps = realloc(steps, (s->n_steps + 64) * sizeof(*steps));
        if (!steps)
                return NULL;
        s->steps = steps;
        steps[s->n_steps] = (struct blob_step){.kind = kind, .part = part};
        return &steps[s->n_steps++];
}

static int learn_literal(
        struct blob_shape *s, struct reader *r, enum blob_part part, uint8_t n, void *ret)
{
        struct blob_step *step = add_step(s, STEP_LITERAL, part);

        if (!step)
                return -ENOMEM;
        step->n = n;
        if (!take_bytes(r, step->bytes, n))
                return -EBADMSG;
        memcpy(ret, step->bytes, n);
        return 0;
}

static int learn_cells(struct blob_shape *s, struct reader *r, enum blob_part part, uint32_t first,
        uint32_t n_cells)
{
        uint32_t position;
        bool is_ordered;

        if (!add_step(s, STEP_CELLS, part))
                return -ENOMEM;
        if (part == BLOB_ROWS)
                return take_cells(r, first, n_cells, NULL, &is_ordered) ? 0 : -EBADMSG;
        return take_state_cell(r, &position) && position == first + n_cells - 1 ? 0 : -EBADMSG;
}

/* Learns K, V or a part of a state, of n_cells rows. */
static int learn_data(struct blob_shape *s, struct reader *r, enum blob_part part, uint32_t n_cells,
        bool is_transposed)
{
        struct {
                int32_t type;
                uint32_t numbers[2];
        } head;
        struct blob_step *step;
        uint64_t bytes;
        int e = learn_literal(s, r, part, sizeof(head), &head);

        if (e)
                return e;
        step = add_step(s, STEP_DATA, part);
        if (!step)
                return -ENOMEM;
        step->type = head.type;
        step->outer = is_transposed ? head.numbers[1] : 1;
        step->inner =
                is_transposed ? head.numbers[0] : head.numbers[0] | (uint64_t)head.numbers[1] << 32;
        if (head.type < 0 || head.type > MAX_TYPE || step->inner == 0 || step->outer == 0 ||
                step->inner > r->left || step->outer > r->left)
                return -EBADMSG;
        bytes = step->inner * step->outer;
        if (bytes > r->left / n_cells || !take_bytes(r, NULL, bytes * n_cells))
                return -EBADMSG;
        *(part == BLOB_ROWS ? &s->row_bytes : &s->state_bytes) += bytes;
        return 0;
}

static int learn_rows(
        struct blob_shape *s, struct reader *r, uint32_t first, uint32_t n_cells, bool has_v)
{
        uint32_t n_streams, heads[2];
        int e = learn_literal(s, r, BLOB_ROWS, sizeof(n_streams), &n_streams);

        if (!e && n_streams != 1)
                e = -EBADMSG;
        e = e ? e : learn_cells(s, r, BLOB_ROWS, first, n_cells);
        e = e ? e : learn_literal(s, r, BLOB_ROWS, sizeof(heads), heads);
        if (!e && (heads[0] > 1 || heads[1] == 0 || heads[1] > MAX_LAYERS))
                e = -EBADMSG;
        for (uint32_t i = 0; !e && i < heads[1]; ++i)
                e = learn_data(s, r, BLOB_ROWS, n_cells, false);
        for (uint32_t i = 0; !e && has_v && i < heads[1]; ++i)
                e = learn_data(s, r, BLOB_ROWS, n_cells, heads[0]);
        return e;
}

static int learn_state(struct blob_shape *s, struct reader *r, uint32_t first, uint32_t n_cells)
{
        uint32_t heads[2];
        int e = learn_cells(s, r, BLOB_STATE, first, n_cells);

        e = e ? e : learn_literal(s, r, BLOB_STATE, sizeof(heads), heads);
        if (!e && (heads[0] != 0 || heads[1] > MAX_LAYERS))
                e = -EBADMSG;
        do
                e = e ? e : learn_data(s, r, BLOB_STATE, 1, false);
        while (!e && r->left);
        return e;
}

/* Learns sections of rows until the rest is the state's, or nothing. */
static int learn_sections(struct blob_shape *s, struct reader r, uint32_t first, uint32_t n_cells,
        int n_sections, bool has_state, bool has_v)
{
        int e = 0;

        blob_shape_free(s);
        for (int i = 0; !e && i < n_sections; ++i)
                e = learn_rows(s, &r, first, n_cells, has_v);
        if (!e && has_state)
                e = learn_state(s, &r, first, n_cells);
        return e ? e : r.left ? -EBADMSG : 0;
}

int blob_learn(struct blob_shape *s, const uint8_t *blob, size_t bytes, uint32_t first,
        uint32_t n_cells, bool has_rows, bool has_state)
{
        struct reader r = {blob, bytes};
        uint32_t magic, n_streams;
        int e = -EBADMSG;

        *s = (struct blob_shape){0};
        if (!take_u32(&r, &magic) || magic != MAGIC || !take_bytes(&r, NULL, sizeof(int32_t)))
                return fail(-EOPNOTSUPP,
                        "libllama's states begin with another magic number: it is too new, or too old, for this kvlease");
        if (has_rows && r.left >= sizeof(n_streams)) {
                memcpy(&n_streams, r.at, sizeof(n_streams));
                if (n_streams > 1)
                        return fail(-EOPNOTSUPP,
                                "the context has %u streams: make it with kv_unified", n_streams);
        }
        /* Layers with a window have a section of their own; MLA has no V. */
        for (int i = 0; e == -EBADMSG && i < (has_rows ? 4 : 1); ++i)
                e = learn_sections(
                        s, r, first, n_cells, has_rows ? 1 + i / 2 : 0, has_state, i % 2 == 0);
        if (e == -EBADMSG)
                e = fail(-EOPNOTSUPP,
                        "the model's state (%zu bytes for %u tokens) has a form that this kvlease can't read",
                        bytes, n_cells);
        return e == -ENOMEM ? fail(e, "out of memory") : e;
}

void blob_shape_free(struct blob_shape *s)
{
        free(s->steps);
        *s = (struct blob_shape){0};
}

/* ---- states of the shape --------------------------------------------------------------------- */

static uint32_t cells_of(const struct blob_step *step, int parts, uint32_t n_cells)
{
        return step->part == BLOB_ROWS ? n_cells : parts & BLOB_NO_CELL ? 0 : 1;
}

/* Returns whether a state with these parts has the step's section. */
static bool has_step(const struct blob_step *step, int parts)
{
        return step->part == BLOB_ROWS ? parts & BLOB_ROWS : parts & (BLOB_STATE | BLOB_NO_CELL);
}

size_t blob_bytes(const struct blob_shape *s, int parts, uint32_t n_cells)
{
        size_t bytes = 2 * sizeof(uint32_t);

        for (uint32_t i = 0; i < s->n_steps; ++i) {
                const struct blob_step *step = &s->steps[i];
                size_t n = cells_of(step, parts, n_cells);

                if (!has_step(step, parts))
                        continue;
                if (step->kind == STEP_LITERAL)
                        bytes += step->n;
                else if (step->kind == STEP_DATA)
                        bytes += step->outer * step->inner * n;
                else
                        bytes += 4 + n * (step->part == BLOB_ROWS ? ROW_CELL : STATE_CELL);
        }
        return bytes;
}

/* Copies rows in the order of positions. */
static void copy_ordered(const struct blob_step *step, uint32_t n, const uint32_t *order,
        const uint8_t *src, uint8_t *dst)
{
        for (uint64_t j = 0; j < step->outer; ++j)
                for (uint64_t i = 0; i < n; ++i)
                        memcpy(dst + (j * n + order[i]) * step->inner,
                                src + (j * n + i) * step->inner, step->inner);
}

static bool unpack_step(const struct blob_step *step, struct reader *r, uint32_t first,
        uint32_t n_cells, uint32_t *order, bool *is_ordered, uint8_t **to)
{
        uint64_t n = step->part == BLOB_ROWS ? n_cells : 1;
        uint64_t bytes = step->outer * step->inner * n;
        uint8_t literal[LITERAL_BYTES];
        uint32_t position;

        if (step->kind == STEP_LITERAL)
                return take_bytes(r, literal, step->n) &&
                       memcmp(literal, step->bytes, step->n) == 0;
        if (step->kind == STEP_CELLS && step->part == BLOB_ROWS)
                return take_cells(r, first, n_cells, order, is_ordered);
        /* A sequence that goes on after a chunk has the state of its end. */
        if (step->kind == STEP_CELLS)
                return take_state_cell(r, &position) && (!*to || position == first + n_cells - 1);
        if (r->left < bytes)
                return false;
        if (*to) {
                if (*is_ordered || n == 1)
                        memcpy(*to, r->at, bytes);
                else
                        copy_ordered(step, n_cells, order, r->at, *to);
                *to += bytes;
        }
        return take_bytes(r, NULL, bytes);
}

int blob_unpack(const struct blob_shape *s, const uint8_t *blob, size_t bytes, int parts,
        uint32_t first, uint32_t n_cells, uint8_t *rows, uint8_t *state)
{
        uint32_t *order = malloc((n_cells + 1) * sizeof(*order)), magic;
        struct reader r = {blob, bytes};
        bool is_ordered = true, ok;

        if (!order)
                return fail(-ENOMEM, "out of memory");
        ok = take_u32(&r, &magic) && magic == MAGIC && take_bytes(&r, NULL, sizeof(int32_t));
        for (uint32_t i = 0; ok && i < s->n_steps; ++i) {
                const struct blob_step *step = &s->steps[i];

                if (has_step(step, parts))
                        ok = unpack_step(step, &r, first, n_cells, order, &is_ordered,
                                step->part == BLOB_ROWS ? &rows : &state);
        }
        free(order);
        return ok && r.left == 0
                       ? 0
                       : fail(-EBADMSG,
                                 "libllama's state of tokens %u to %u isn't as it was when the "
                                 "context was opened: were rows dropped (a sliding window without swa_full, a shifted context)?",
                                 first, first + n_cells - 1);
}

static uint8_t *put_bytes(uint8_t *to, const void *from, size_t bytes)
{
        memcpy(to, from, bytes);
        return to + bytes;
}

static uint8_t *put_u32(uint8_t *to, uint32_t value)
{
        return put_bytes(to, &value, sizeof(value));
}

void blob_pack(const struct blob_shape *s, int parts, uint32_t first, uint32_t n_cells,
        const uint8_t *rows, const uint8_t *state, uint8_t *to)
{
        to = put_u32(to, MAGIC);
        to = put_u32(to, 0);
        for (uint32_t i = 0; i < s->n_steps; ++i) {
                const struct blob_step *step = &s->steps[i];
                const uint8_t **from = step->part == BLOB_ROWS ? &rows : &state;
                uint32_t n = cells_of(step, parts, n_cells);
                size_t bytes = step->outer * step->inner * n;

                if (!has_step(step, parts))
                        continue;
                if (step->kind == STEP_LITERAL) {
                        to = put_bytes(to, step->bytes, step->n);
                } else if (step->kind == STEP_CELLS) {
                        to = put_u32(to, n);
                        for (uint32_t j = 0; j < n; ++j) {
                                bool is_row = step->part == BLOB_ROWS;

                                to = put_u32(to, is_row ? first + j : first + n_cells - 1);
                                to = put_u32(to, is_row);
                                to = is_row ? put_u32(to, 0) : to;
                        }
                } else if (bytes) {
                        to = put_bytes(to, *from, bytes);
                        *from += bytes;
                }
        }
}
