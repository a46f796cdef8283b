/*
 * The decoder over a context that it is given in chunks: the same bits in all logits as with every
 * page in place, however the pages are cut.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "client/examples/decoder/kv-host.h"
#include "client/examples/decoder/page-source.h"
#include "tests/unit/test-support.h"

enum { N_TOKENS = 333, MAX_TENSORS = 16, WINDOW_MAX = 9 };

#define RESIDUE 0xff /* as numbers none */

static const struct model_shape shape = {
        .seed = 1, .n_layers = 3, .width = 64, .n_heads = 4, .n_kv_heads = 2, .ffn_width = 64};
static uint32_t tokens[N_TOKENS];

/* A context: pages somewhere in memory, and the table the decoder sees. */
struct context {
        uint32_t page_tokens, n_pages, n_tensors;
        size_t tensor_bytes;
        unsigned char *memory, *buffers;
        unsigned char *pages[N_TOKENS * MAX_TENSORS]; /* where all are */
        unsigned char *table[N_TOKENS * MAX_TENSORS]; /* what is in place */
        struct model *model;
        struct model_kv *kv;
        float logits[N_TOKENS][MODEL_VOCAB];
};

static struct context *context_new(uint32_t page_tokens)
{
        struct context *c = calloc(1, sizeof(*c));

        assert_non_null(c);
        c->page_tokens = page_tokens;
        c->n_pages = (N_TOKENS + page_tokens - 1) / page_tokens;
        c->n_tensors = 2 * shape.n_layers;
        assert_true(c->n_tensors <= MAX_TENSORS);
        c->tensor_bytes = (size_t)shape.n_kv_heads * model_head_size(&shape) * page_tokens * 2;
        c->memory = calloc((size_t)c->n_pages * c->n_tensors, c->tensor_bytes);
        c->buffers = malloc(2 * WINDOW_MAX * c->tensor_bytes);
        c->model = model_new(&shape, page_tokens);
        assert_true(c->memory && c->buffers && c->model);
        for (uint32_t i = 0; i < c->n_pages * c->n_tensors; i++)
                c->pages[i] = c->memory + i * c->tensor_bytes;
        assert_int_equal(kv_host_new(&shape, page_tokens, c->n_pages, c->table, &c->kv), 0);
        return c;
}

static void context_free(struct context *c)
{
        c->kv->ops->free(c->kv);
        model_free(c->model);
        free(c->buffers);
        free(c->memory);
        free(c);
}

/* The page that is written is in place; those before it only where there is no source. */
static void place(struct context *c, uint32_t page)
{
        size_t n = c->n_tensors;

        if (c->kv->source)
                memset(c->table, 0, sizeof(c->table));
        memcpy(c->table + page * n, c->pages + page * n, n * sizeof(*c->table));
}

static int run(struct context *c)
{
        int r = 0;

        for (uint32_t n, at = 0; !r && at < N_TOKENS; at += n) {
                n = c->page_tokens < N_TOKENS - at ? c->page_tokens : N_TOKENS - at;
                place(c, at / c->page_tokens);
                r = model_forward(c->model, c->kv, tokens + at, n, at, NULL);
                for (uint32_t i = 0; !r && i < n; i++)
                        model_logits(c->model, i, c->logits[at + i]);
        }
        return r;
}

/* Hands out pages of a context in chunks of random lengths, copied to one of two buffers in turn,
 * and spoils the other one. The last page it is asked for is being written, and given in place. */
struct chunk_source {
        struct page_source source;
        struct context *context;
        uint32_t window_pages; /* most pages in a chunk */
        unsigned turn;
        uint32_t n_chunks;
        int fail_at; /* the fail_at-th chunk fails with -ECANCELED; 0: none */
        unsigned char *rows[WINDOW_MAX * MAX_TENSORS];
};

static int take(struct page_source *source, uint32_t layer, uint32_t is_v, uint32_t first_page,
        uint32_t n_pages, unsigned char *const **ret_tensors, uint32_t *ret_n_pages)
{
        struct chunk_source *s = container_of(source, struct chunk_source, source);
        const struct context *c = s->context;
        size_t bytes = s->window_pages * c->tensor_bytes, column = 2 * (size_t)layer + is_v;
        unsigned char *buffer = c->buffers + (s->turn ^= 1) * bytes;
        uint32_t n = 1 + (uint32_t)rand() % s->window_pages;

        assert_true(n_pages > 0 && column < c->n_tensors);
        if (++s->n_chunks == (uint32_t)s->fail_at)
                return -ECANCELED;
        n = n < n_pages ? n : n_pages;
        memset(c->buffers + (s->turn ^ 1) * bytes, RESIDUE, bytes);
        memset(s->rows, 0, sizeof(s->rows));
        for (uint32_t i = 0; i < n; i++) {
                unsigned char *from = c->pages[(first_page + i) * c->n_tensors + column];
                unsigned char *to = buffer + i * c->tensor_bytes;

                to = i + 1 == n_pages ? from : memcpy(to, from, c->tensor_bytes);
                s->rows[i * c->n_tensors + column] = to;
        }
        *ret_tensors = s->rows;
        *ret_n_pages = n;
        return 0;
}

static struct chunk_source source_over(struct context *c, uint32_t window_pages)
{
        assert_true(window_pages <= WINDOW_MAX);
        return (struct chunk_source){
                .source.take = take, .context = c, .window_pages = window_pages};
}

static int setup(void **state)
{
        srand(1);
        tokens[0] = MODEL_BOS;
        for (int i = 1; i < N_TOKENS; i++)
                tokens[i] = (uint32_t)rand() % 256;
        return 0;
}

TEST(test_chunks_have_the_same_bits)
{
        static const uint32_t windows[] = {1, 2, 5, WINDOW_MAX};
        static const uint32_t page_tokens[] = {7, 16, 64};
        struct context *whole = context_new(64);

        assert_int_equal(run(whole), 0);
        for (size_t i = 0; i < ARRAY_SIZE(page_tokens); i++) {
                for (size_t j = 0; j < ARRAY_SIZE(windows); j++) {
                        struct context *c = context_new(page_tokens[i]);
                        struct chunk_source s = source_over(c, windows[j]);

                        c->kv->source = &s.source;
                        assert_int_equal(run(c), 0);
                        assert_true(s.n_chunks > 2 * shape.n_layers * c->n_pages);
                        assert_memory_equal(c->logits, whole->logits, sizeof(c->logits));
                        context_free(c);
                }
        }
        context_free(whole);
}

/* The test above sees a byte that is wrong in the page that is farthest away. */
TEST(test_far_pages_matter)
{
        struct context *c = context_new(16), *changed = context_new(16);
        uint32_t last = N_TOKENS - N_TOKENS % 16;

        assert_int_equal(run(c), 0);
        assert_int_equal(run(changed), 0);
        for (uint32_t i = 0; i < changed->tensor_bytes / 2; i++)
                ((uint16_t *)(void *)changed->pages[1])[i] ^= 0x0200; /* V of the first layer */
        assert_int_equal(model_forward(changed->model, changed->kv, tokens + last, N_TOKENS - last,
                                 last, changed->logits[0]),
                0);
        assert_memory_not_equal(
                c->logits[N_TOKENS - 1], changed->logits[0], sizeof(changed->logits[0]));
        context_free(changed);
        context_free(c);
}

/* An error of the source is returned, wherever it occurs, and the step can be repeated. */
TEST(test_source_fails)
{
        struct context *whole = context_new(64), *c = context_new(64);
        struct chunk_source s = source_over(c, 1);
        int n_failed = 0, r;

        assert_int_equal(run(whole), 0);
        c->kv->source = &s.source;
        do {
                s.n_chunks = 0;
                s.fail_at = 1 + 7 * n_failed++;
                r = run(c);
                assert_true(r == 0 || r == -ECANCELED);
        } while (r);
        assert_true(n_failed > 10);
        assert_memory_equal(c->logits, whole->logits, sizeof(c->logits));
        context_free(c);
        context_free(whole);
}

int main(void)
{
        return test_run_all(setup, NULL);
}
