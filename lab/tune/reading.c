#include "lab/tune/reading.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/examples/decoder/kv-host.h"
#include "client/examples/decoder/scores.h"
#include "client/examples/decoder/trained.h"

/* Weight of a page's attention one page later: it halves in seven pages. Not tuned. */
#define FADE 0.9f

struct reader {
        const struct text *text;
        const struct plan *plan;
        struct model_shape shape;
        uint32_t page_tokens, document_bytes, n_pages; /* of the longest document */
        uint32_t *tokens;
        size_t tensor_bytes;
        unsigned char *memory, *encoded;
        unsigned char **tensors; /* [page][2 * layer + is_v] */
        bool *is_kept;           /* [layer][page] */
        struct scores *scores;
        struct model *model;
        struct model_kv *kv;
        struct byte_reading *ret_bytes;
};

static void close_reader(struct reader *d)
{
        if (d->kv)
                d->kv->ops->free(d->kv);
        model_free(d->model);
        scores_free(d->scores);
        free(d->is_kept);
        free(d->tensors);
        free(d->encoded);
        free(d->memory);
        free(d->tokens);
}

static int allocate(struct reader *d)
{
        struct codec_shape k = plan_tensor_shape(&d->shape, d->page_tokens, 0);
        size_t n = (size_t)d->n_pages * 2 * d->shape.n_layers;

        d->tensor_bytes = codec_plain_bytes(&k);
        d->tokens = calloc(d->document_bytes, sizeof(*d->tokens));
        d->memory = calloc(n, d->tensor_bytes);
        d->encoded = malloc(d->tensor_bytes); /* no codec makes it larger */
        d->tensors = calloc(n, sizeof(*d->tensors));
        d->is_kept = calloc(n / 2, sizeof(*d->is_kept));
        d->scores = scores_new(d->shape.n_layers, d->n_pages);
        d->model = model_new(&d->shape, d->page_tokens);
        if (!d->tokens || !d->memory || !d->encoded || !d->tensors || !d->is_kept || !d->scores ||
                !d->model)
                return -ENOMEM;
        return 0;
}

static int open_reader(struct reader *d)
{
        const struct text *text = d->text;
        int r;

        d->document_bytes = text->document_bytes;
        if (d->document_bytes == 0 || d->document_bytes > text->n_bytes)
                d->document_bytes = text->n_bytes;
        d->n_pages = (d->document_bytes + d->page_tokens - 1) / d->page_tokens;
        r = allocate(d);
        if (!r)
                r = kv_host_new(&d->shape, d->page_tokens, d->n_pages, d->tensors, &d->kv);
        if (!r)
                d->kv->scores = d->scores;
        return r;
}

/* Nothing is known of what was read before. */
static void begin_document(struct reader *d, uint32_t first, uint32_t n)
{
        for (size_t i = 0; i < (size_t)d->n_pages * 2 * d->shape.n_layers; i++)
                d->tensors[i] = d->memory + i * d->tensor_bytes;
        memset(d->is_kept, 0, (size_t)d->n_pages * d->shape.n_layers * sizeof(*d->is_kept));
        scores_clear(d->scores);
        d->tokens[0] = MODEL_BOS;
        for (uint32_t i = 1; i < n; i++)
                d->tokens[i] = d->text->bytes[first + i - 1];
}

/* ---- pages ----------------------------------------------------------------------------------- */

/* Puts a page of a layer through its codec. */
static int cool(struct reader *d, uint32_t layer, uint32_t page)
{
        enum codec codec = d->plan->layers[layer].codec;
        int r = 0;

        for (uint32_t is_v = 0; !r && codec != CODEC_NONE && is_v < 2; is_v++) {
                struct codec_shape shape = plan_tensor_shape(&d->shape, d->page_tokens, is_v);
                unsigned char *tensor =
                        d->tensors[((size_t)page * d->shape.n_layers + layer) * 2 + is_v];

                r = codec_encode(codec, &shape, tensor, d->encoded);
                if (!r)
                        r = codec_decode(codec, &shape, d->encoded, tensor);
        }
        return r;
}

static uint32_t count_kept(const struct reader *d, uint32_t layer)
{
        uint32_t n = 0;

        for (uint32_t i = 0; i < d->n_pages; i++)
                n += d->is_kept[(size_t)layer * d->n_pages + i];
        return n;
}

/* Gives up pages until the layer keeps as many of n_full pages as the plan says. */
static void give_up(struct reader *d, uint32_t layer, uint32_t n_full)
{
        bool *is_kept = d->is_kept + (size_t)layer * d->n_pages;
        uint32_t n_most = plan_pages(&d->plan->layers[layer], n_full);

        for (uint32_t n = count_kept(d, layer); n > n_most; n--) {
                uint32_t page = keep_next_to_go(d->plan->rule, is_kept, n_full, d->scores, layer);
                unsigned char **row = d->tensors + (size_t)page * 2 * d->shape.n_layers;

                is_kept[page] = false;
                row[2 * layer] = row[2 * layer + 1] = NULL;
        }
}

static int end_page(struct reader *d, uint32_t page)
{
        int r = 0;

        for (uint32_t layer = 0; !r && layer < d->shape.n_layers; layer++) {
                r = cool(d, layer, page);
                d->is_kept[(size_t)layer * d->n_pages + page] = true;
                if (!r)
                        give_up(d, layer, page + 1);
        }
        scores_fade(d->scores, FADE);
        return r;
}

/* ---- text ------------------------------------------------------------------------------------ */

static struct byte_reading read_byte(const float *logits, unsigned char byte)
{
        uint16_t best = 0;
        double sum = 0;

        for (uint16_t i = 1; i < MODEL_VOCAB; i++)
                if (logits[i] > logits[best])
                        best = i;
        for (uint32_t i = 0; i < MODEL_VOCAB; i++)
                sum += exp((double)logits[i] - (double)logits[best]);
        return (struct byte_reading){
                .nats = (float)(log(sum) + (double)logits[best] - (double)logits[byte]),
                .likeliest = best,
        };
}

/* Sums over bytes, as yet: lost_error has that of the squares. */
static void count_bytes(struct reader *d, uint32_t first, uint32_t n, struct reading *sums)
{
        for (uint32_t i = first; i < first + n; i++) {
                struct byte_reading now, then;
                float logits[MODEL_VOCAB];
                double lost;

                model_logits(d->model, i - first, logits);
                now = read_byte(logits, d->text->bytes[i]);
                then = d->text->reference ? d->text->reference[i] : now;
                lost = (double)now.nats - (double)then.nats;
                sums->nats += (double)now.nats;
                sums->lost += lost;
                sums->lost_error += lost * lost;
                sums->agreed += now.likeliest == then.likeliest;
                if (d->text->is_copy && d->text->is_copy[i]) {
                        sums->n_copies++;
                        sums->copied += now.likeliest == d->text->bytes[i];
                }
                if (d->ret_bytes)
                        d->ret_bytes[i] = now;
        }
}

/* From sums to means. */
static void finish(const struct reader *d, struct reading *sums)
{
        double n = d->text->n_bytes, variance;

        sums->nats /= n;
        sums->lost /= n;
        sums->agreed /= n;
        if (sums->n_copies > 0)
                sums->copied /= sums->n_copies;
        variance = sums->lost_error / n - sums->lost * sums->lost;
        sums->lost_error = sqrt(fmax(0, variance) / n);
        for (uint32_t i = 0; i < d->shape.n_layers; i++)
                sums->entropy[i] = scores_entropy(d->scores, i);
}

static void count_pages(const struct reader *d, uint32_t n_full, struct reading *sums)
{
        for (uint32_t i = 0; i < d->shape.n_layers; i++) {
                enum codec codec = d->plan->layers[i].codec;

                sums->bytes += count_kept(d, i) *
                               (uint64_t)plan_page_bytes(&d->shape, d->page_tokens, codec);
                sums->whole_bytes +=
                        n_full * (uint64_t)plan_page_bytes(&d->shape, d->page_tokens, CODEC_NONE);
        }
}

static int read_document(struct reader *d, uint32_t first, uint32_t n_bytes, struct reading *sums)
{
        begin_document(d, first, n_bytes);
        for (uint32_t n, at = 0; at < n_bytes; at += n) {
                int r;

                n = d->page_tokens < n_bytes - at ? d->page_tokens : n_bytes - at;
                r = model_forward(d->model, d->kv, d->tokens + at, n, at, NULL);
                if (r)
                        return r;
                count_bytes(d, first + at, n, sums);
                r = n == d->page_tokens ? end_page(d, at / n) : 0;
                if (r)
                        return r;
        }
        count_pages(d, n_bytes / d->page_tokens, sums);
        return 0;
}

static int read_text(struct reader *d, struct reading *sums)
{
        uint32_t n_bytes = d->text->n_bytes;
        int r = 0;

        for (uint32_t n, at = 0; !r && at < n_bytes; at += n) {
                n = d->document_bytes < n_bytes - at ? d->document_bytes : n_bytes - at;
                r = read_document(d, at, n, sums);
        }
        finish(d, sums);
        return r;
}

static bool goes_on_with_copy(const unsigned char *document, uint32_t at)
{
        const uint32_t n = TEXT_COPY_CONTEXT;

        for (uint32_t before = n; before < at; before++)
                if (document[before] == document[at] &&
                        memcmp(document + before - n, document + at - n, n) == 0)
                        return true;
        return false;
}

void text_find_copies(const struct text *text, bool *ret)
{
        uint32_t n = text->document_bytes ? text->document_bytes : text->n_bytes;

        for (uint32_t i = 0; i < text->n_bytes; i++)
                ret[i] = goes_on_with_copy(text->bytes + i / n * n, i % n);
}

int reading_measure(const struct text *text, uint32_t page_tokens, const struct plan *plan,
        struct reading *ret, struct byte_reading *ret_bytes)
{
        struct reader d = {
                .text = text,
                .plan = plan,
                .page_tokens = page_tokens,
                .ret_bytes = ret_bytes,
        };
        struct reading sums = {};
        int r;

        trained_shape(&d.shape);
        assert(plan->n_layers == d.shape.n_layers && d.shape.n_layers <= PLAN_LAYERS_MAX);
        r = open_reader(&d);
        if (!r)
                r = read_text(&d, &sums);
        if (!r)
                *ret = sums;
        close_reader(&d);
        return r;
}
