/*
 * Weights of a file, and what they say again of a text: copying.bin copies what stood far
 * before, where a layer that does so keeps it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/examples/decoder/trained.h"
#include "lab/tune/reading.h"
#include "lab/tune/weights.h"
#include "tests/integration/pattern.h"
#include "tests/unit/test-support.h"

enum { PAGE_TOKENS = 16, DOCUMENT_BYTES = 1024, N_BYTES = 2 * DOCUMENT_BYTES, COPY_BYTES = 64 };

static unsigned char bytes[N_BYTES];
static bool is_copy[N_BYTES];
static struct text text = {
        .bytes = bytes, .n_bytes = N_BYTES, .document_bytes = DOCUMENT_BYTES, .is_copy = is_copy};

static size_t read_file(const char *path, unsigned char *ret, size_t n_max)
{
        FILE *file = fopen(path, "re");
        size_t n;

        assert_non_null(file);
        n = fread(ret, 1, n_max, file);
        fclose(file);
        return n;
}

static void write_file(const char *path, const unsigned char *data, size_t n)
{
        FILE *file = fopen(path, "we");

        assert_non_null(file);
        assert_int_equal(fwrite(data, 1, n, file), n);
        assert_int_equal(fclose(file), 0);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void test_what_are_no_weights(void **state)
{
        const size_t n_max = 1 << 22;
        unsigned char *good = malloc(n_max), *bad = malloc(n_max + 1);
        uint64_t before = trained_version();
        const char *dir = test_dir_make();
        char *path = test_path(dir, "weights.bin");
        size_t n;

        assert_non_null(good);
        assert_non_null(bad);
        n = read_file(COPYING_WEIGHTS, good, n_max);
        assert_true(n > 32 && n < n_max);
        assert_int_equal(weights_read(path), -ENOENT);
        for (size_t cut = 0; cut < n; cut += cut < 40 ? 1 : 99991) {
                write_file(path, good, cut);
                assert_int_equal(weights_read(path), -EINVAL);
        }
        memcpy(bad, good, n);
        bad[n] = 0;
        write_file(path, bad, n + 1);
        assert_int_equal(weights_read(path), -EINVAL);
        for (unsigned at = 0; at < 28; at++) { /* the magic word and the shape */
                memcpy(bad, good, n);
                bad[at] ^= 0x80;
                write_file(path, bad, n);
                assert_int_equal(weights_read(path), -EINVAL);
        }
        memset(bad + 8, 0xff, 20);
        write_file(path, bad, n);
        assert_int_equal(weights_read(path), -EINVAL);
        assert_int_equal(trained_version(), before);
        assert_int_equal(weights_read(COPYING_WEIGHTS), 0);
        assert_int_not_equal(trained_version(), before);
        test_dir_remove(dir);
        free(path);
        free(good);
        free(bad);
}

/* ---- copies ---------------------------------------------------------------------------------- */

static void test_finds_copies(void **state)
{
        static const char letters[] = "abcdefghijklmnopqrst...abcdefghijklmnopqrsxabcdefghijklmnop";
        struct text t = {.bytes = (const unsigned char *)letters, .n_bytes = sizeof(letters) - 1};
        bool found[sizeof(letters)];

        text_find_copies(&t, found);
        /* Sixteen letters, and then q, r and s; x is none. */
        for (uint32_t i = 0; i < t.n_bytes; i++)
                assert_int_equal(found[i], i >= 23 + TEXT_COPY_CONTEXT && i < 23 + 19);
        t.document_bytes = 23;
        text_find_copies(&t, found);
        for (uint32_t i = 0; i < t.n_bytes; i++)
                assert_false(found[i]);
}

/* Copies of random bytes, in a text that wasn't trained on: the model can't know them. */
static void make_text(void)
{
        uint64_t random = 26;

        assert_int_equal(read_file(HELD_OUT_TEXT, bytes, sizeof(bytes)), sizeof(bytes));
        for (uint32_t at = 0; at < N_BYTES; at += DOCUMENT_BYTES) {
                for (uint32_t i = 0; i < COPY_BYTES; i++)
                        bytes[at + 64 + i] =
                                (unsigned char)('!' + pattern_next(&random) % ('z' - '!' + 1));
                memcpy(bytes + at + DOCUMENT_BYTES - COPY_BYTES, bytes + at + 64, COPY_BYTES);
        }
        text_find_copies(&text, is_copy);
}

static double part_copied(const struct plan *plan)
{
        struct reading r;

        assert_int_equal(reading_measure(&text, PAGE_TOKENS, plan, &r, NULL), 0);
        assert_in_range(r.n_copies, 2 * (COPY_BYTES - TEXT_COPY_CONTEXT), N_BYTES / 4);
        print_message("of %u bytes of copies %.1f %% are right\n", r.n_copies, 100 * r.copied);
        return r.copied;
}

static void test_copies_what_the_last_layer_keeps(void **state)
{
        struct plan plan = plan_everything(4);

        make_text();
        assert_true(part_copied(&plan) > 0.8);
        assert_null(plan_parse("0-2:30:none,3:100:none", 4, &plan));
        assert_true(part_copied(&plan) > 0.75);
        plan = plan_uniform(4, KEEP_WINDOW, 50, CODEC_NONE);
        assert_true(part_copied(&plan) < 0.5);
        assert_null(plan_parse("0-2:100:none,3:30:none", 4, &plan));
        assert_true(part_copied(&plan) < 0.5);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST_ROW(test_what_are_no_weights), /* the weights are those of the file after it */
                TEST_ROW(test_finds_copies),
                TEST_ROW(test_copies_what_the_last_layer_keeps),
        };

        return RUN_TESTS(tests);
}
