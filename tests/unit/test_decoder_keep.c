/* The decoder's attention over what is kept of a text, how it scores pages, and which go. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/examples/decoder/attention.h"
#include "client/examples/decoder/half.h"
#include "client/examples/decoder/keep.h"
#include "client/examples/decoder/kv-host.h"
#include "client/examples/decoder/scores.h"
#include "tests/unit/test-support.h"

enum { PAGE_TOKENS = 8, N_PAGES = 5, N_TOKENS = N_PAGES * PAGE_TOKENS, WIDTH = 32, HEADS = 4 };
enum { KV_HEADS = 2, HEAD = WIDTH / HEADS, KV_WIDTH = KV_HEADS * HEAD, LAYERS = 2 };

static const struct model_shape shape = {.n_layers = LAYERS,
        .width = WIDTH,
        .n_heads = HEADS,
        .n_kv_heads = KV_HEADS,
        .ffn_width = 8};

/* K and V of a text in both layers, and the queries of its last page. */
static struct {
        unsigned char memory[N_PAGES * 2 * LAYERS][KV_WIDTH * PAGE_TOKENS * 2];
        unsigned char *table[N_PAGES * 2 * LAYERS];
        float k[N_TOKENS * KV_WIDTH], v[N_TOKENS * KV_WIDTH];
        float q[PAGE_TOKENS * WIDTH], out[PAGE_TOKENS * WIDTH];
        struct model_kv *kv;
} text;

static void fill_random(float *x, size_t n)
{
        for (size_t i = 0; i < n; i++)
                x[i] = half_value(half_of((float)rand() / (float)RAND_MAX * 4 - 2));
}

static int setup(void **state)
{
        srand(1);
        fill_random(text.k, N_TOKENS * KV_WIDTH);
        fill_random(text.v, N_TOKENS * KV_WIDTH);
        fill_random(text.q, PAGE_TOKENS * WIDTH);
        for (int i = 0; i < N_PAGES * 2 * LAYERS; i++)
                text.table[i] = text.memory[i];
        if (kv_host_new(&shape, PAGE_TOKENS, N_PAGES, text.table, &text.kv))
                return -1;
        for (uint32_t layer = 0; layer < LAYERS; layer++)
                for (uint32_t at = 0; at < N_TOKENS; at += PAGE_TOKENS)
                        text.kv->ops->append(text.kv, layer, at, PAGE_TOKENS,
                                text.k + (size_t)at * KV_WIDTH, text.v + (size_t)at * KV_WIDTH);
        return 0;
}

static int teardown(void **state)
{
        text.kv->ops->free(text.kv);
        return 0;
}

/* ---- attention ------------------------------------------------------------------------------- */

static double score_of(uint32_t t, uint32_t head, uint32_t position)
{
        const float *q = text.q + (size_t)t * WIDTH + (size_t)head * HEAD;
        const float *k =
                text.k + (size_t)position * KV_WIDTH + (size_t)(head / (HEADS / KV_HEADS)) * HEAD;
        double sum = 0, distance = N_TOKENS - PAGE_TOKENS + t - position;

        for (uint32_t e = 0; e < HEAD; e++)
                sum += (double)q[e] * (double)k[e];
        return sum / sqrt(HEAD) - (double)attention_slope(head, HEADS) * distance;
}

/* An element of what token t of the last page gets from the pages that are kept. */
static double expected(const bool *is_kept, uint32_t t, uint32_t head, uint32_t element)
{
        uint32_t n = N_TOKENS - PAGE_TOKENS + t + 1;
        double sum = 0, weights = 0;

        for (uint32_t i = 0; i < n; i++) {
                double weight = is_kept[i / PAGE_TOKENS] ? exp(score_of(t, head, i)) : 0;
                uint32_t kv_head = head / (HEADS / KV_HEADS);

                weights += weight;
                sum += weight * (double)text.v[i * KV_WIDTH + kv_head * HEAD + element];
        }
        return sum / weights;
}

static void check_attention(const bool *is_kept, uint32_t layer)
{
        for (uint32_t page = 0; page < N_PAGES; page++)
                for (uint32_t i = 0; i < 2; i++) {
                        uint32_t at = page * 2 * LAYERS + 2 * layer + i;

                        text.table[at] = is_kept[page] ? text.memory[at] : NULL;
                }
        assert_int_equal(text.kv->ops->attend(text.kv, layer, N_TOKENS - PAGE_TOKENS, PAGE_TOKENS,
                                 text.q, text.out),
                0);
        for (uint32_t t = 0; t < PAGE_TOKENS; t++)
                for (uint32_t e = 0; e < WIDTH; e++)
                        assert_float_equal(text.out[t * WIDTH + e],
                                (float)expected(is_kept, t, e / HEAD, e % HEAD), 1e-5f);
        for (uint32_t i = 0; i < N_PAGES * 2 * LAYERS; i++)
                text.table[i] = text.memory[i];
}

TEST(test_attention_is_exact_over_what_is_kept)
{
        static const bool kept[][N_PAGES] = {
                {true, true, true, true, true},
                {false, true, true, true, true},
                {true, false, true, false, true},
                {false, false, false, false, true},
        };

        for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
                for (uint32_t layer = 0; layer < LAYERS; layer++)
                        check_attention(kept[i], layer);
}

/* ---- scores ---------------------------------------------------------------------------------- */

TEST(test_attention_counts_what_pages_get)
{
        struct scores *scores = scores_new(LAYERS, N_PAGES);
        bool kept[N_PAGES] = {true, false, true, true, true};
        float sum = 0;

        assert_non_null(scores);
        text.kv->scores = scores;
        check_attention(kept, 1);
        text.kv->scores = NULL;
        for (uint32_t page = 0; page < N_PAGES; page++) {
                assert_float_equal(scores_mass(scores, 0, page), 0, 0);
                sum += scores_mass(scores, 1, page);
        }
        assert_float_equal(sum, PAGE_TOKENS * HEADS, 1e-3f); /* each row's weights add up to 1 */
        assert_float_equal(scores_mass(scores, 1, 1), 0, 1e-20f);
        assert_true(scores_mass(scores, 1, 0) > 0);
        assert_true(scores_entropy(scores, 1) > 0 && scores_entropy(scores, 1) < log(4));
        scores_free(scores);
}

TEST(test_mass_and_entropy)
{
        static const float even[6] = {0.25f, 0.25f, 0.25f, 0.25f}, one[6] = {0, 0, 0, 0, 1, 0};
        struct scores *scores = scores_new(1, 3);

        assert_non_null(scores);
        assert_float_equal(scores_entropy(scores, 0), 0, 0);
        scores_add(scores, 0, even, 6, 2); /* two pages of three get a half each */
        assert_float_equal((float)scores_entropy(scores, 0), logf(2), 1e-6f);
        assert_float_equal(scores_mass(scores, 0, 0), 0.5f, 1e-6f);
        scores_add(scores, 0, one, 5, 2); /* the last page has one token yet */
        assert_float_equal((float)scores_entropy(scores, 0), logf(2) / 2, 1e-6f);
        assert_float_equal(scores_mass(scores, 0, 2), 1, 1e-6f);
        scores_fade(scores, 0.5f);
        assert_float_equal(scores_mass(scores, 0, 1), 0.25f, 1e-6f);
        assert_float_equal(scores_mass(scores, 0, 2), 0.5f, 1e-6f);
        scores_free(scores);
        scores_free(NULL);
}

/* ---- rules ----------------------------------------------------------------------------------- */

enum { N = 8 };

/* Which pages of N are left, as digits, once all but n_left have gone. */
static void check_rule(
        enum keep_rule rule, struct scores *scores, uint32_t n_left, const char *expected_left)
{
        bool is_kept[N];
        char left[N + 1];
        uint32_t n = 0;

        memset(is_kept, true, sizeof(is_kept));
        for (uint32_t i = N; i > n_left; i--) {
                uint32_t page = keep_next_to_go(rule, is_kept, N, scores, 0);

                assert_true(page < N && is_kept[page]);
                is_kept[page] = false;
        }
        for (uint32_t i = 0; i < N; i++)
                if (is_kept[i])
                        left[n++] = (char)('0' + i);
        left[n] = 0;
        assert_string_equal(left, expected_left);
}

TEST(test_rules)
{
        /* Pages 1 and 4 get most; 6 and 7 are new, and get little yet. */
        static const float weights[N] = {0.05f, 0.3f, 0.1f, 0.02f, 0.4f, 0.08f, 0.01f, 0.04f};
        struct scores *scores = scores_new(1, N);

        assert_non_null(scores);
        scores_add(scores, 0, weights, N, 1);
        check_rule(KEEP_LAST, NULL, 3, "567");
        check_rule(KEEP_WINDOW, NULL, 3, "067");
        check_rule(KEEP_WINDOW, NULL, 1, "7");
        check_rule(KEEP_STRIDE, NULL, 5, "02467");
        check_rule(KEEP_STRIDE, NULL, 2, "07");
        check_rule(KEEP_ATTENTION, scores, 7, "0124567");
        check_rule(KEEP_ATTENTION, scores, 4, "1247");
        check_rule(KEEP_ATTENTION, scores, 1, "7");
        scores_free(scores);
}

TEST(test_the_last_one_stays)
{
        bool one[N] = {[3] = true}, none[N] = {false};

        for (unsigned rule = 0; rule < N_KEEP_RULES; rule++) {
                assert_int_equal(keep_next_to_go((enum keep_rule)rule, one, N, NULL, 0), KEEP_NONE);
                assert_int_equal(
                        keep_next_to_go((enum keep_rule)rule, none, N, NULL, 0), KEEP_NONE);
        }
}

int main(void)
{
        return test_run_all(setup, teardown);
}
