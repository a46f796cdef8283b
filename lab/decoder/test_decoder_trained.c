/*
 * The decoder with the weights that are built in: it computes what the script that trained them
 * did, and codecs of cold pages hardly change what it expects of a text. KVL_FULL=1: of all of the
 * text that is kept for this, else of its first 2 KiB.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/examples/decoder/kv-host.h"
#include "client/examples/decoder/trained.h"
#include "lab/bench/perplexity.h"
#include "lab/decoder/recorded.h"
#include "tests/unit/test-support.h"

enum {
        PAGE_TOKENS = 64,
        SHORT_BYTES = 2048,
        TEXT_MAX = 1 << 20,
        TENSORS_MAX = 256,
        TENSOR_MAX = 8192
};

/* Sums of some hundred products in another order, and numbers next to a rounding of fp16. */
#define LOGIT_TOLERANCE 2e-3f
#define LOSS_TOLERANCE  2e-4
#define CODEC_TOLERANCE 0.005 /* of perplexity */
#define INT4_TOLERANCE  0.01  /* likewise */

static unsigned char text[TEXT_MAX];
static uint32_t n_bytes;
static double recorded_loss, exact;

static double measure(enum codec codec, uint32_t first_layer)
{
        const struct perplexity_options options = {
                .text = text,
                .n_bytes = n_bytes,
                .page_tokens = PAGE_TOKENS,
                .codec = codec,
                .first_layer = first_layer,
        };
        double nats = -1;

        assert_int_equal(perplexity_measure(&options, &nats), 0);
        return nats;
}

static int setup(void **state)
{
        const char *full = getenv("KVL_FULL");
        FILE *file = fopen(HELD_OUT_TEXT, "re");

        if (!file)
                return -1;
        n_bytes = (uint32_t)fread(text, 1, sizeof(text), file);
        fclose(file);
        recorded_loss = RECORDED_LOSS;
        if (!full || strcmp(full, "1") != 0) {
                n_bytes = SHORT_BYTES;
                recorded_loss = RECORDED_LOSS_SHORT;
        }
        exact = measure(CODEC_NONE, 0);
        return 0;
}

/* ---- the script ------------------------------------------------------------------------------ */

TEST(test_logits_are_those_of_the_script)
{
        static unsigned char memory[TENSORS_MAX * TENSOR_MAX], *tensors[TENSORS_MAX];
        uint32_t tokens[RECORDED_TOKENS] = {MODEL_BOS};
        uint32_t n_pages = (RECORDED_TOKENS + PAGE_TOKENS - 1) / PAGE_TOKENS;
        float logits[MODEL_VOCAB], worst = 0;
        struct model_shape shape;
        struct model_kv *kv;
        struct model *m;

        trained_shape(&shape);
        assert_true(n_pages * 2 * shape.n_layers <= TENSORS_MAX);
        assert_true(shape.n_kv_heads * model_head_size(&shape) * PAGE_TOKENS * 2 <= TENSOR_MAX);
        for (uint32_t i = 0; i < n_pages * 2 * shape.n_layers; i++)
                tensors[i] = memory + (size_t)i * TENSOR_MAX;
        for (uint32_t i = 1; i < RECORDED_TOKENS; i++)
                tokens[i] = text[i - 1];
        m = model_new(&shape, PAGE_TOKENS);
        assert_non_null(m);
        assert_int_equal(kv_host_new(&shape, PAGE_TOKENS, n_pages, tensors, &kv), 0);
        for (uint32_t n, at = 0; at < RECORDED_TOKENS; at += n) {
                n = PAGE_TOKENS < RECORDED_TOKENS - at ? PAGE_TOKENS : RECORDED_TOKENS - at;
                assert_int_equal(model_forward(m, kv, tokens + at, n, at, logits), 0);
        }
        for (uint32_t i = 0; i < MODEL_VOCAB; i++)
                worst = fmaxf(worst, fabsf(logits[i] - recorded_logits[i]));
        print_message("logits differ from the script's by at most %g\n", (double)worst);
        assert_true(worst < LOGIT_TOLERANCE);
        kv->ops->free(kv);
        model_free(m);
}

TEST(test_loss_is_that_of_the_script)
{
        print_message("%u bytes: %.5f nats a byte, recorded %.5f\n", n_bytes, exact, recorded_loss);
        assert_true(fabs(exact - recorded_loss) < LOSS_TOLERANCE);
}

TEST(test_the_model_has_learnt)
{
        assert_true(exact < 2.0); /* of 5.5 for bytes at random */
}

/* ---- codecs ---------------------------------------------------------------------------------- */

/* The change of perplexity, as a part of it. */
static double change(enum codec codec, uint32_t first_layer)
{
        double nats = measure(codec, first_layer), part = exp(nats - exact) - 1;

        print_message("%u bytes, %s from layer %u on: perplexity %.5f, %+.4f %%\n", n_bytes,
                codec_name(codec), first_layer, exp(nats), 100 * part);
        assert_true(nats != exact); /* it did go through the codec */
        return part;
}

TEST(test_int8)
{
        assert_true(fabs(change(CODEC_INT8, 0)) < CODEC_TOLERANCE);
}

TEST(test_fp8)
{
        assert_true(fabs(change(CODEC_FP8, 0)) < CODEC_TOLERANCE);
}

TEST(test_int4)
{
        assert_true(fabs(change(CODEC_INT4, 0)) < INT4_TOLERANCE);
}

TEST(test_deep_layers_only)
{
        struct model_shape shape;

        trained_shape(&shape);
        assert_true(fabs(change(CODEC_INT8, shape.n_layers / 2)) < CODEC_TOLERANCE);
        assert_true(measure(CODEC_INT8, shape.n_layers) == exact);
}

int main(void)
{
        return test_run_all(setup, NULL);
}
