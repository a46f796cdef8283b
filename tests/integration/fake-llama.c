#include "tests/integration/fake-llama.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CELLS 4096
#define N_LAYERS  2
#define ROW       16 /* bytes of a token's K, and of its V, in one layer */
#define N_STATE   16 /* numbers */
#define MAGIC     0xaf143cd8u

struct cell {
        int32_t pos; /* -1: free */
        uint32_t seqs;
        uint8_t rows[2][2 * N_LAYERS][ROW]; /* of each section: K and V of each layer */
};

struct llama_context {
        struct fake_options o;
        struct cell cells[MAX_CELLS];
        int32_t state_pos[32]; /* of each sequence; -1: none */
        float states[32][N_STATE];
};

static uint64_t mix(uint64_t a, uint64_t b)
{
        a = (a ^ b) * 0x9e3779b97f4a7c15u;
        return a ^ a >> 29;
}

struct llama_context *fake_new(const struct fake_options *options)
{
        struct llama_context *ctx = calloc(1, sizeof(*ctx));

        ctx->o = *options;
        for (int i = 0; i < MAX_CELLS; ++i)
                ctx->cells[i].pos = -1;
        for (int i = 0; i < 32; ++i)
                ctx->state_pos[i] = -1;
        return ctx;
}

void fake_set_weights(struct llama_context *ctx, uint64_t weights)
{
        ctx->o.weights = weights;
}

void fake_free(struct llama_context *ctx)
{
        free(ctx);
}

static struct cell *free_cell(struct llama_context *ctx)
{
        for (uint32_t i = 0; i < ctx->o.n_cells; ++i) {
                struct cell *c = &ctx->cells[ctx->o.is_scattered ? ctx->o.n_cells - 1 - i : i];

                if (c->pos < 0)
                        return c;
        }
        return NULL;
}

static bool has(const struct cell *c, int32_t seq)
{
        return c->pos >= 0 && c->seqs >> seq & 1;
}

static bool compute(struct llama_context *ctx, int32_t seq, int32_t token, int32_t pos)
{
        struct cell *c = ctx->o.is_recurrent ? NULL : free_cell(ctx);
        uint64_t x = mix(mix(ctx->o.weights, (uint64_t)token), (uint64_t)pos);

        if (!ctx->o.is_recurrent && !c)
                return false;
        if (c) {
                c->pos = pos;
                c->seqs = 1u << seq;
                for (size_t i = 0; i < sizeof(c->rows); ++i)
                        /* No F16 is infinite or NaN. */
                        ((uint8_t *)c->rows)[i] = (uint8_t)(mix(x, i) & 0x3b);
        }
        for (int i = 0; i < N_STATE; ++i) {
                float before = ctx->state_pos[seq] < 0 ? 0 : ctx->states[seq][i];

                ctx->states[seq][i] = before / 2 + (float)(mix(x, 1000u + (unsigned)i) % 1000);
        }
        ctx->state_pos[seq] = pos;
        return true;
}

bool fake_compute(struct llama_context *ctx, int32_t seq, const int32_t *tokens, uint32_t n)
{
        int32_t pos = llama_memory_seq_pos_max((struct llama_memory_i *)ctx, seq) + 1;

        for (uint32_t i = 0; i < n; ++i)
                if (!compute(ctx, seq, tokens[i], pos + (int32_t)i))
                        return false;
        return true;
}

/* K of each layer, and V. */
static size_t n_items(const struct llama_context *ctx)
{
        return ctx->o.has_no_v ? N_LAYERS : 2 * N_LAYERS;
}

uint64_t fake_sum(struct llama_context *ctx, int32_t seq)
{
        uint64_t sum = 0;

        for (uint32_t i = 0; i < ctx->o.n_cells; ++i) {
                const struct cell *c = &ctx->cells[i];
                uint64_t one = (uint64_t)c->pos;

                for (int s = 0; has(c, seq) && s <= ctx->o.has_window; ++s)
                        for (size_t j = 0; j < n_items(ctx) * ROW; ++j)
                                one = mix(one, c->rows[s][j / ROW][j % ROW]);
                sum += has(c, seq) ? one : 0; /* in any order of cells */
        }
        for (int i = 0; (ctx->o.is_hybrid || ctx->o.is_recurrent) && ctx->state_pos[seq] >= 0 &&
                        i < N_STATE;
                ++i)
                sum = mix(sum, (uint64_t)(ctx->states[seq][i] * 1000));
        return sum;
}

/* ---- states ---------------------------------------------------------------------------------- */

/* Reads or writes, or only counts (at NULL). */
struct stream {
        uint8_t *at;
        size_t n, max;
        bool reads;
};

static bool pass(struct stream *s, void *value, size_t bytes)
{
        if (s->at && s->n + bytes > s->max)
                return false;
        if (s->at && s->reads)
                memcpy(value, s->at + s->n, bytes);
        else if (s->at)
                memcpy(s->at + s->n, value, bytes);
        s->n += bytes;
        return true;
}

/* Passes a number that must be the same on both sides. */
static bool expect(struct stream *s, uint64_t value, size_t bytes)
{
        uint64_t got = value;

        return pass(s, &got, bytes) && got == value;
}

static bool pass_item(struct llama_context *ctx, struct stream *s, struct cell **cells, uint32_t n,
        int section, int item)
{
        bool is_v = item >= N_LAYERS, is_transposed = is_v && ctx->o.is_transposed;
        size_t el = is_transposed ? 2 : ROW;
        bool ok = expect(s, (uint64_t)(is_v ? 1 : ctx->o.type_k), 4);

        ok = ok && (is_transposed ? expect(s, el, 4) && expect(s, ROW / el, 4) : expect(s, el, 8));
        for (size_t j = 0; ok && j < ROW / el; ++j)
                for (uint32_t i = 0; ok && i < n; ++i)
                        ok = pass(s, &cells[i]->rows[section][item][j * el], el);
        return ok;
}

static bool pass_rows(struct llama_context *ctx, struct stream *s, int32_t seq, int section)
{
        int32_t last = llama_memory_seq_pos_max((struct llama_memory_i *)ctx, seq);
        struct cell *cells[MAX_CELLS];
        uint32_t n = 0, n_streams = ctx->o.is_split ? ctx->o.n_seqs : 1;
        bool ok;

        for (uint32_t i = 0; !s->reads && i < ctx->o.n_cells; ++i) {
                struct cell *c = &ctx->cells[i];

                if (has(c, seq) && (section == 0 || last - c->pos < ctx->o.window))
                        cells[n++] = c;
        }
        ok = expect(s, n_streams, 4) && pass(s, &n, 4) && n <= MAX_CELLS;
        for (uint32_t i = 0; ok && i < n; ++i) {
                int32_t pos = s->reads ? 0 : cells[i]->pos;

                ok = pass(s, &pos, 4) && expect(s, 1, 4) && pass(s, &(int32_t){seq}, 4);
                if (!s->reads)
                        continue;
                /* The second section has the same cells. */
                cells[i] = NULL;
                for (uint32_t j = 0; section && j < ctx->o.n_cells; ++j)
                        if (has(&ctx->cells[j], seq) && ctx->cells[j].pos == pos)
                                cells[i] = &ctx->cells[j];
                cells[i] = section ? cells[i] : free_cell(ctx);
                if (!cells[i])
                        return false;
                cells[i]->pos = pos;
                cells[i]->seqs |= 1u << seq;
        }
        ok = ok && expect(s, ctx->o.is_transposed, 4) && expect(s, N_LAYERS, 4);
        for (size_t i = 0; ok && i < n_items(ctx); ++i)
                ok = pass_item(ctx, s, cells, n, section, (int)i);
        return ok;
}

static bool pass_state(struct llama_context *ctx, struct stream *s, int32_t seq)
{
        uint32_t n = ctx->state_pos[seq] >= 0;
        int32_t pos = ctx->state_pos[seq];
        bool ok = pass(s, &n, 4) && n <= 1;

        ok = ok && (n == 0 || (pass(s, &pos, 4) && expect(s, 0, 4)));
        ok = ok && expect(s, 0, 4) && expect(s, 1, 4) && expect(s, 0, 4) &&
             expect(s, sizeof(ctx->states[0]), 8);
        ok = ok && (n == 0 || pass(s, ctx->states[seq], sizeof(ctx->states[0])));
        if (ok && s->reads)
                ctx->state_pos[seq] = n ? pos : -1;
        return ok;
}

static size_t pass_all(struct llama_context *ctx, struct stream *s, int32_t seq, uint32_t flags)
{
        uint32_t magic = MAGIC;
        bool ok = pass(s, &magic, 4) && magic == MAGIC && pass(s, &(int32_t){seq}, 4);

        if (ok && !ctx->o.is_recurrent && !(flags & 1))
                ok = pass_rows(ctx, s, seq, 0) && (!ctx->o.has_window || pass_rows(ctx, s, seq, 1));
        if (ok && (ctx->o.is_recurrent || ctx->o.is_hybrid))
                ok = pass_state(ctx, s, seq);
        return ok ? s->n : 0;
}

uint8_t *fake_state(struct llama_context *ctx, int32_t seq, size_t *ret_bytes)
{
        uint8_t *state;

        *ret_bytes = llama_state_seq_get_size_ext(ctx, seq, 0);
        state = malloc(*ret_bytes);
        llama_state_seq_get_data_ext(ctx, state, *ret_bytes, seq, 0);
        return state;
}

/* ---- what libllama exports ------------------------------------------------------------------- */

LLAMA_VISIBLE size_t llama_state_seq_get_size_ext(
        struct llama_context *ctx, int32_t seq, uint32_t flags)
{
        return pass_all(ctx, &(struct stream){0}, seq, flags);
}

LLAMA_VISIBLE size_t llama_state_seq_get_data_ext(
        struct llama_context *ctx, uint8_t *to, size_t bytes, int32_t seq, uint32_t flags)
{
        return pass_all(ctx, &(struct stream){.at = to, .max = bytes}, seq, flags);
}

LLAMA_VISIBLE size_t llama_state_seq_set_data_ext(
        struct llama_context *ctx, const uint8_t *from, size_t bytes, int32_t seq, uint32_t flags)
{
        struct stream s = {.at = (uint8_t *)from, .max = bytes, .reads = true};

        if (!(flags & 1))
                llama_memory_seq_rm((struct llama_memory_i *)ctx, seq, -1, -1);
        return pass_all(ctx, &s, seq, flags);
}

LLAMA_VISIBLE bool llama_memory_seq_rm(
        struct llama_memory_i *memory, int32_t seq, int32_t from, int32_t end)
{
        struct llama_context *ctx = (struct llama_context *)memory;

        if (from > 0 && (ctx->o.is_recurrent || ctx->o.is_hybrid) && ctx->state_pos[seq] >= from)
                return false;
        for (uint32_t i = 0; i < ctx->o.n_cells; ++i) {
                struct cell *c = &ctx->cells[i];

                if (!has(c, seq) || c->pos < from || (end >= 0 && c->pos >= end))
                        continue;
                c->seqs &= ~(1u << seq);
                c->pos = c->seqs ? c->pos : -1;
        }
        if (from <= 0)
                ctx->state_pos[seq] = -1;
        return true;
}

LLAMA_VISIBLE void llama_memory_seq_cp(
        struct llama_memory_i *memory, int32_t from, int32_t to, int32_t first, int32_t end)
{
        struct llama_context *ctx = (struct llama_context *)memory;

        if (ctx->o.is_split)
                abort();
        for (uint32_t i = 0; i < ctx->o.n_cells; ++i) {
                struct cell *c = &ctx->cells[i];

                if (has(c, from) && c->pos >= first && c->pos < end)
                        c->seqs |= 1u << to;
        }
        ctx->state_pos[to] = ctx->state_pos[from];
        memcpy(ctx->states[to], ctx->states[from], sizeof(ctx->states[to]));
}

LLAMA_VISIBLE int32_t llama_memory_seq_pos_max(struct llama_memory_i *memory, int32_t seq)
{
        struct llama_context *ctx = (struct llama_context *)memory;
        int32_t last = ctx->o.is_recurrent ? ctx->state_pos[seq] : -1;

        for (uint32_t i = 0; i < ctx->o.n_cells; ++i)
                if (has(&ctx->cells[i], seq) && ctx->cells[i].pos > last)
                        last = ctx->cells[i].pos;
        return last;
}

LLAMA_VISIBLE int32_t llama_memory_seq_pos_min(struct llama_memory_i *memory, int32_t seq)
{
        struct llama_context *ctx = (struct llama_context *)memory;
        int32_t first = llama_memory_seq_pos_max(memory, seq);

        for (uint32_t i = 0; i < ctx->o.n_cells; ++i)
                if (has(&ctx->cells[i], seq) && ctx->cells[i].pos < first)
                        first = ctx->cells[i].pos;
        return first;
}

LLAMA_VISIBLE int32_t llama_decode(struct llama_context *ctx, struct llama_batch batch)
{
        for (int i = 0; i < batch.n_tokens; ++i)
                if (!compute(ctx, *batch.seq_id[i], batch.token[i], batch.pos[i]))
                        return 1;
        return 0;
}

/* Objects of llama.cpp are all the context here. */

LLAMA_VISIBLE const struct llama_model *llama_get_model(const struct llama_context *ctx)
{
        return (const struct llama_model *)ctx;
}

LLAMA_VISIBLE struct llama_memory_i *llama_get_memory(const struct llama_context *ctx)
{
        return (struct llama_memory_i *)ctx;
}

LLAMA_VISIBLE const struct llama_vocab *llama_model_get_vocab(const struct llama_model *model)
{
        return (const struct llama_vocab *)model;
}

LLAMA_VISIBLE uint32_t llama_n_ctx_seq(const struct llama_context *ctx)
{
        return MAX_CELLS;
}

LLAMA_VISIBLE uint32_t llama_n_seq_max(const struct llama_context *ctx)
{
        return ctx->o.n_seqs;
}

LLAMA_VISIBLE int32_t llama_vocab_n_tokens(const struct llama_vocab *vocab)
{
        return 1000;
}

LLAMA_VISIBLE int32_t llama_model_n_ctx_train(const struct llama_model *model)
{
        return MAX_CELLS;
}

LLAMA_VISIBLE int32_t llama_model_n_swa(const struct llama_model *model)
{
        return ((const struct llama_context *)model)->o.window;
}

LLAMA_VISIBLE int llama_model_rope_type(const struct llama_model *model)
{
        return ((const struct llama_context *)model)->o.rope;
}

LLAMA_VISIBLE bool llama_model_is_recurrent(const struct llama_model *model)
{
        return ((const struct llama_context *)model)->o.is_recurrent;
}

LLAMA_VISIBLE bool llama_model_is_hybrid(const struct llama_model *model)
{
        return ((const struct llama_context *)model)->o.is_hybrid;
}

LLAMA_VISIBLE bool llama_model_has_encoder(const struct llama_model *model)
{
        return false;
}

LLAMA_VISIBLE int32_t llama_model_desc(const struct llama_model *model, char *text, size_t bytes)
{
        return snprintf(text, bytes, "fake");
}

LLAMA_VISIBLE uint64_t llama_model_size(const struct llama_model *model)
{
        return 1;
}

LLAMA_VISIBLE uint64_t llama_model_n_params(const struct llama_model *model)
{
        return 1;
}

LLAMA_VISIBLE int32_t llama_model_meta_count(const struct llama_model *model)
{
        return 1;
}

LLAMA_VISIBLE int32_t llama_model_meta_key_by_index(
        const struct llama_model *model, int32_t i, char *text, size_t bytes)
{
        return snprintf(text, bytes, "general.architecture");
}

LLAMA_VISIBLE int32_t llama_model_meta_val_str_by_index(
        const struct llama_model *model, int32_t i, char *text, size_t bytes)
{
        return snprintf(text, bytes, "fake");
}

LLAMA_VISIBLE const char *llama_print_system_info(void)
{
        return "fake";
}
