/*
 * Plans as text, the search for one, and the loss of plans for a text that the trained decoder
 * hasn't seen: 2 KiB of it, or 8 KiB with KVL_FULL=1.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/examples/decoder/trained.h"
#include "lab/tune/search.h"
#include "tests/unit/test-support.h"

enum { PAGE_TOKENS = 16, DOCUMENT_BYTES = 512, SHORT_BYTES = 2048, LONG_BYTES = 8192 };

/* The plan that the search finds for half of the bytes (docs/integrate/LONG.md). */
#define HALF_PLAN "0:100:int8,1:100:int4,2-3:100:int8"

#define LEARNT_BYTES 4096 /* from the first of them */

static unsigned char bytes[LONG_BYTES];
static struct text text = {.bytes = bytes, .document_bytes = DOCUMENT_BYTES};
static struct model_shape trained;

static int setup(void **state)
{
        const char *full = getenv("KVL_FULL");
        FILE *file = fopen(HELD_OUT_TEXT, "re");

        if (!file)
                return -1;
        text.n_bytes = full && strcmp(full, "1") == 0 ? LONG_BYTES : SHORT_BYTES;
        if (fseek(file, LEARNT_BYTES, SEEK_SET) != 0 ||
                fread(bytes, 1, text.n_bytes, file) != text.n_bytes)
                text.n_bytes = 0;
        fclose(file);
        trained_shape(&trained);
        return text.n_bytes ? 0 : -1;
}

/* ---- plans ----------------------------------------------------------------------------------- */

TEST(test_plans_are_texts)
{
        static const char *const good[] = {"0-3:100:none", "0:100:none,1-2:50:int8,3:1:int4",
                "0:40:fp8,1:30:fp8,2:30:int8,3:30:none"};
        struct plan plan = {.rule = KEEP_STRIDE};
        char printed[PLAN_TEXT_MAX];

        for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
                assert_null(plan_parse(good[i], 4, &plan));
                plan_print(&plan, printed);
                assert_string_equal(printed, good[i]);
                assert_int_equal(plan.rule, KEEP_STRIDE);
        }
        assert_null(plan_parse("0:7:none,1:7:none,2-3:7:none", 4, &plan));
        plan_print(&plan, printed);
        assert_string_equal(printed, "0-3:7:none");
}

TEST(test_what_is_no_plan)
{
        static const char *const bad[] = {"", "0", "0-", "0-3", "0-3:", "0-3:0:none",
                "0-3:101:none", "0-3:50", "0-3:50:", "0-3:50:int16", "0-3:50:int8x", "1-3:50:none",
                "0-4:50:none", "0-2:50:none", "0-1:50:none,1-3:50:none", "0-1:50:none,3:50:none",
                "0-3:50:none,", "2-1:50:none", "-1:50:none", "0-3:-5:none", "0000-3:50:none"};
        struct plan plan = plan_uniform(4, KEEP_LAST, 77, CODEC_FP8), before = plan;

        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                assert_non_null(plan_parse(bad[i], 4, &plan));
                assert_memory_equal(&plan, &before, sizeof(plan));
        }
}

TEST(test_the_longest_text_has_room)
{
        struct plan plan = plan_everything(PLAN_LAYERS_MAX), again = {.rule = KEEP_ATTENTION};
        char printed[PLAN_TEXT_MAX];

        for (uint32_t i = 0; i < PLAN_LAYERS_MAX; i++)
                plan.layers[i].codec = i % 2 ? CODEC_NONE : CODEC_INT8;
        plan_print(&plan, printed);
        assert_null(plan_parse(printed, PLAN_LAYERS_MAX, &again));
        assert_memory_equal(&plan, &again, sizeof(plan));
}

TEST(test_pages_and_bytes)
{
        struct plan plan = plan_everything(4);

        assert_int_equal(plan_pages(&(struct plan_layer){.percent = 50}, 0), 0);
        assert_int_equal(plan_pages(&(struct plan_layer){.percent = 50}, 1), 1);
        assert_int_equal(plan_pages(&(struct plan_layer){.percent = 50}, 7), 3);
        assert_int_equal(plan_pages(&(struct plan_layer){.percent = 1}, 99), 2);
        assert_float_equal((float)plan_part(&plan, &trained, 64), 1, 1e-6f);
        plan.layers[2].percent = plan.layers[3].percent = 50;
        assert_float_equal((float)plan_part(&plan, &trained, 64), 0.75f, 1e-6f);
        for (unsigned i = 0; i < 4; i++)
                plan.layers[i] = (struct plan_layer){100, CODEC_INT4};
        assert_float_equal((float)plan_part(&plan, &trained, 64), 4.5f / 16, 1e-6f);
}

/* ---- the search ------------------------------------------------------------------------------ */

/* A model whose last two layers lose almost nothing, and in which codecs cost a little. */
static struct search known_search(void)
{
        struct search s = {.shape = trained, .page_tokens = 64};

        for (uint32_t layer = 0; layer < s.shape.n_layers; layer++) {
                for (unsigned i = 1; i < SEARCH_N_SHARES; i++)
                        s.share_loss[layer][i] = layer < 2 ? 0.1 * i : 1e-5 * i;
                s.codec_loss[layer][CODEC_INT8] = 1e-3;
                s.codec_loss[layer][CODEC_FP8] = 2e-3;
                s.codec_loss[layer][CODEC_INT4] = 5e-3;
        }
        return s;
}

static void check_found(const struct search *s, bool with_codecs, double part, const char *expected)
{
        char printed[PLAN_TEXT_MAX];
        struct plan plan;
        double loss;

        assert_true(search_by_bytes(s, with_codecs, part, &plan, &loss));
        plan_print(&plan, printed);
        assert_string_equal(printed, expected);
        assert_true(plan_part(&plan, &s->shape, s->page_tokens) <= part);
        assert_true(loss >= 0);
}

TEST(test_search_finds_the_least_loss)
{
        struct search s = known_search();
        struct plan plan;
        double loss;

        assert_int_equal(s.shape.n_layers, 4);
        check_found(&s, true, 1, "0-3:100:none");
        check_found(&s, false, 0.56, "0-1:100:none,2-3:10:none");
        check_found(&s, true, 0.56, "0-1:100:none,2-3:10:none");
        check_found(&s, true, 0.35, "0-1:100:int8,2:10:none,3:20:none");
        assert_false(search_by_bytes(&s, false, 0.05, &plan, NULL));
        assert_false(search_by_bytes(&s, true, 1.5, &plan, NULL));

        assert_true(search_by_loss(&s, true, 0, &plan, &loss));
        assert_true(plan_part(&plan, &s.shape, 64) == 1);
        assert_true(search_by_loss(&s, true, 0.0022, &plan, &loss));
        assert_true(loss <= 0.0022 && plan_part(&plan, &s.shape, 64) < 0.35);
        assert_true(search_by_loss(&s, true, 100, &plan, &loss));
        assert_true(plan_part(&plan, &s.shape, 64) < 0.04);
}

/* ---- the trained decoder --------------------------------------------------------------------- */

static struct byte_reading reference[LONG_BYTES];

/* Under the plan; with everything kept it becomes the reference of the others. */
static struct reading measure(const struct plan *plan)
{
        struct reading reading;

        assert_int_equal(reading_measure(&text, PAGE_TOKENS, plan, &reading,
                                 text.reference ? NULL : reference),
                0);
        text.reference = reference;
        return reading;
}

static void check_bytes(const struct reading *r, const struct plan *plan)
{
        assert_true((double)r->bytes <=
                    plan_part(plan, &trained, PAGE_TOKENS) * (double)r->whole_bytes + 1);
        assert_int_equal(r->whole_bytes, (uint64_t)text.n_bytes * trained.n_layers * 2 * 2 *
                                                 trained.n_kv_heads * model_head_size(&trained));
}

static double change(const char *name, const struct plan *plan)
{
        struct reading r = measure(plan);

        check_bytes(&r, plan);
        print_message("%u bytes, %s: %+.3f (standard error %.3f) %%, %.1f %% of the bytes\n",
                text.n_bytes, name, 100 * expm1(r.lost), 100 * r.lost_error,
                100 * (double)r.bytes / (double)r.whole_bytes);
        return expm1(r.lost);
}

/* At half of the bytes layers and codecs lose at most 0.5 %; window and stride lose more than that,
 * of documents that are as long as what the model was trained on. */
TEST(test_half_of_the_bytes)
{
        struct plan plan = plan_everything(trained.n_layers);
        struct reading exact = measure(&plan);

        check_bytes(&exact, &plan);
        assert_int_equal(exact.bytes, exact.whole_bytes);
        assert_true(exact.lost == 0 && exact.lost_error == 0 && exact.agreed == 1);
        assert_null(plan_parse(HALF_PLAN, trained.n_layers, &plan));
        assert_true(plan_part(&plan, &trained, PAGE_TOKENS) <= 0.5);
        assert_true(change("layers and codecs", &plan) <= 0.005);
        plan = plan_uniform(trained.n_layers, KEEP_WINDOW, 50, CODEC_NONE);
        assert_true(change("window", &plan) > 0.005);
        plan.rule = KEEP_STRIDE;
        assert_true(change("stride", &plan) > 0.005);
}

TEST(test_agreement)
{
        static struct byte_reading first[200];
        struct plan plan = plan_everything(trained.n_layers);
        struct text known = {.bytes = bytes, .n_bytes = 200, .document_bytes = 64};
        struct reading r;

        assert_int_equal(reading_measure(&known, PAGE_TOKENS, &plan, &r, first), 0);
        assert_true(r.agreed == 1 && r.lost == 0);
        known.reference = first;
        first[3].likeliest ^= 1;
        first[7].nats -= 1;
        assert_int_equal(reading_measure(&known, PAGE_TOKENS, &plan, &r, NULL), 0);
        assert_float_equal((float)r.agreed, 199.0f / 200, 1e-6f);
        assert_float_equal((float)r.lost, 1.0f / 200, 1e-5f);
        assert_float_equal(
                (float)r.lost_error, 1.0f / 200, 1e-4f); /* sqrt(1/200 - 1/200^2) / sqrt(200) */
}

/* A document knows nothing of the one before. */
TEST(test_documents_are_read_alone)
{
        static struct byte_reading all[256], second[128];
        struct plan plan = plan_uniform(trained.n_layers, KEEP_ATTENTION, 40, CODEC_INT8);
        struct text two = {.bytes = bytes, .n_bytes = 256, .document_bytes = 128};
        struct text one = {.bytes = bytes + 128, .n_bytes = 128};
        struct reading r;

        assert_int_equal(reading_measure(&two, 16, &plan, &r, all), 0);
        assert_int_equal(reading_measure(&one, 16, &plan, &r, second), 0);
        for (int i = 0; i < 128; i++) {
                assert_true(all[128 + i].nats == second[i].nats);
                assert_int_equal(all[128 + i].likeliest, second[i].likeliest);
        }
}

int main(void)
{
        return test_run_all(setup, NULL);
}
