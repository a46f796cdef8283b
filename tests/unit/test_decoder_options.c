/* How much deep layers keep, as the decoder's command line says it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <getopt.h>

#include "client/examples/decoder/deep.h"
#include "client/examples/decoder/options.h"
#include "tests/unit/test-support.h"

/* Output of a parse on stderr. */
static char said[1024];

/* Parses for the default shape, with these arguments (NULL: none) and a file. */
static int parse_args(
        const char *layers, const char *first, const char *second, struct options *ret)
{
        const char *argv[] = {"decoder", NULL, NULL, NULL, NULL, NULL};
        int argc = 1, r, saved = dup(STDERR_FILENO);
        FILE *file = tmpfile();
        size_t n;

        assert_non_null(file);
        if (layers)
                argv[argc++] = layers;
        if (first)
                argv[argc++] = first;
        if (second)
                argv[argc++] = second;
        argv[argc++] = "text";
        fflush(stderr);
        assert_int_equal(dup2(fileno(file), STDERR_FILENO), STDERR_FILENO);
        optind = 0; /* glibc's getopt begins anew */
        r = options_parse(argc, (char **)(uintptr_t)argv, ret);
        fflush(stderr);
        assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
        close(saved);
        rewind(file);
        n = fread(said, 1, sizeof(said) - 1, file);
        said[n] = 0;
        fclose(file);
        if (r == 0)
                free(ret->prefixes);
        return r;
}

static uint32_t pages_of(const char *first, const char *second)
{
        struct options o = {0};

        assert_int_equal(parse_args("--deep-layers=2", first, second, &o), 0);
        assert_string_equal(said, "");
        return o.n_deep_pages;
}

static void check_refused(const char *first, const char *second, const char *sentence)
{
        struct options o = {0};

        assert_true(parse_args("--deep-layers=2", first, second, &o) < 0);
        if (!strstr(said, sentence))
                fail_msg("said \"%s\", not \"%s\"", said, sentence);
}

/* Two of the four layers: a page has 2 * 2 tensors of 2 heads of 32, 64 tokens, fp16: 32 KiB. */
TEST(test_bytes_are_pages)
{
        assert_int_equal(pages_of(NULL, NULL), 32);
        assert_int_equal(pages_of("--deep-pages=8", NULL), 8);
        assert_int_equal(pages_of("--deep-bytes=128KiB", NULL), DEEP_MIN_PAGES);
        assert_int_equal(pages_of("--deep-bytes=131072", NULL), DEEP_MIN_PAGES);
        assert_int_equal(pages_of("--deep-bytes=163839", NULL), DEEP_MIN_PAGES); /* a byte less */
        assert_int_equal(pages_of("--deep-bytes=163840", NULL), DEEP_MIN_PAGES + 1);
        assert_int_equal(pages_of("--deep-bytes=1MiB", NULL), 32);
        assert_int_equal(pages_of("--deep-bytes=1MiB", "--page-tokens=128"), 16);
        assert_int_equal(pages_of("--deep-bytes=1MiB", "--deep-layers=1"), 64);
        assert_int_equal(pages_of("--deep-bytes=32MiB", NULL), DEEP_MAX_PAGES);
        assert_int_equal(pages_of("--deep-bytes=33587199", NULL), DEEP_MAX_PAGES);
}

TEST(test_bytes_that_are_refused)
{
        static const char *const wrong[] = {"", "0", "0KiB", "-1", "+1", " 1", "1 ", "KiB", "1kib",
                "1KB", "1KiBs", "0x100000", "1.5MiB", "18446744073709551616",
                "18014398509481984KiB"};

        check_refused("--deep-bytes=131071", NULL,
                "131071 bytes are 3 pages of 32768 bytes in 2 deep layers, which keep 4 to 1024: "
                "give 131072 to 33554432 bytes");
        check_refused("--deep-bytes=33587200", NULL, "are 1025 pages");
        check_refused("--deep-bytes=17179869183GiB", NULL, "give 131072 to 33554432 bytes");
        for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
                char argument[64];

                snprintf(argument, sizeof(argument), "--deep-bytes=%s", wrong[i]);
                check_refused(argument, NULL, "is not a size");
        }
}

TEST(test_one_of_both)
{
        check_refused("--deep-bytes=1MiB", "--deep-pages=8", "give one of them");
        check_refused("--deep-pages=32", "--deep-bytes=1MiB", "give one of them");
}

TEST(test_bytes_of_no_layer)
{
        struct options o = {0};

        assert_true(parse_args(NULL, "--deep-bytes=1MiB", NULL, &o) < 0);
        assert_non_null(strstr(said, "no layer is deep: give --deep-layers"));
        check_refused("--deep-bytes=1MiB", "--deep-layers=4", "must keep everything");
        check_refused("--deep-bytes=1MiB", "--device-pages=16", "not with --device-pages");
        check_refused(
                "--wait-ms=10", "--device-pages=16", "--wait-ms waits for pages on the device");
}
