#include "lab/bench/perplexity.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "client/examples/decoder/kv-host.h"
#include "client/examples/decoder/trained.h"

struct reader {
        const struct perplexity_options *options;
        struct model_shape shape;
        uint32_t n_tokens, n_pages;
        uint32_t *tokens;
        size_t tensor_bytes;
        unsigned char *memory, *encoded;
        unsigned char **tensors; /* [page][2 * layer + is_v] */
        struct model *model;
        struct model_kv *kv;
};

/* K is [kv head][element][token], V [kv head][token][element]: model.h. */
static struct codec_shape tensor_shape(const struct reader *d, uint32_t is_v)
{
        return (struct codec_shape){
                .number = CODEC_F16,
                .channels_first = !is_v,
                .n_matrices = d->shape.n_kv_heads,
                .n_tokens = d->options->page_tokens,
                .n_channels = model_head_size(&d->shape),
        };
}

static void close_reader(struct reader *d)
{
        if (d->kv)
                d->kv->ops->free(d->kv);
        model_free(d->model);
        free(d->tensors);
        free(d->encoded);
        free(d->memory);
        free(d->tokens);
}

static int open_reader(const struct perplexity_options *options, struct reader *d)
{
        uint32_t page_tokens = options->page_tokens, n;
        struct codec_shape k;

        *d = (struct reader){.options = options, .n_tokens = options->n_bytes};
        trained_shape(&d->shape);
        k = tensor_shape(d, 0);
        d->n_pages = (d->n_tokens + page_tokens - 1) / page_tokens;
        d->tensor_bytes = codec_plain_bytes(&k);
        n = d->n_pages * 2 * d->shape.n_layers;
        d->tokens = calloc(d->n_tokens, sizeof(*d->tokens));
        d->memory = calloc(n, d->tensor_bytes);
        d->encoded = malloc(codec_encoded_bytes(options->codec, &k));
        d->tensors = calloc(n, sizeof(*d->tensors));
        d->model = model_new(&d->shape, page_tokens);
        if (!d->tokens || !d->memory || !d->encoded || !d->tensors || !d->model)
                return -ENOMEM;
        d->tokens[0] = MODEL_BOS;
        for (uint32_t i = 1; i < d->n_tokens; i++)
                d->tokens[i] = options->text[i - 1];
        for (uint32_t i = 0; i < n; i++)
                d->tensors[i] = d->memory + i * d->tensor_bytes;
        return kv_host_new(&d->shape, page_tokens, d->n_pages, d->tensors, &d->kv);
}

/* Puts a full page through the codec. */
static int cool(struct reader *d, uint32_t page)
{
        uint32_t n_tensors = 2 * d->shape.n_layers;

        for (uint32_t i = 2 * d->options->first_layer; i < n_tensors; i++) {
                struct codec_shape shape = tensor_shape(d, i % 2);
                unsigned char *tensor = d->tensors[page * n_tensors + i];
                int r = codec_encode(d->options->codec, &shape, tensor, d->encoded);

                if (!r)
                        r = codec_decode(d->options->codec, &shape, d->encoded, tensor);
                if (r)
                        return r;
        }
        return 0;
}

/* -ln of the token's share of the logits' total. */
static double loss_of(const float *logits, uint32_t token)
{
        double sum = 0, max = -INFINITY;

        for (uint32_t i = 0; i < MODEL_VOCAB; i++)
                max = fmax(max, (double)logits[i]);
        for (uint32_t i = 0; i < MODEL_VOCAB; i++)
                sum += exp((double)logits[i] - max);
        return log(sum) + max - (double)logits[token];
}

static int read_text(struct reader *d, double *ret_sum)
{
        double sum = 0;

        for (uint32_t n, at = 0; at < d->n_tokens; at += n) {
                int r;

                n = d->options->page_tokens;
                n = n < d->n_tokens - at ? n : d->n_tokens - at;
                r = model_forward(d->model, d->kv, d->tokens + at, n, at, NULL);
                if (!r && n == d->options->page_tokens)
                        r = cool(d, at / n);
                if (r)
                        return r;
                for (uint32_t i = 0; i < n; i++) {
                        float logits[MODEL_VOCAB];

                        model_logits(d->model, i, logits);
                        sum += loss_of(logits, d->options->text[at + i]);
                }
        }
        *ret_sum = sum;
        return 0;
}

int perplexity_measure(const struct perplexity_options *options, double *ret_nats)
{
        struct reader d;
        double sum;
        int r = open_reader(options, &d);

        if (!r)
                r = read_text(&d, &sum);
        if (!r)
                *ret_nats = sum / d.n_tokens;
        close_reader(&d);
        return r;
}
