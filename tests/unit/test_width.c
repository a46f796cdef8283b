/* How text is broken for terminals. */
#include "tests/unit/test-support.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/width.h"

static void test_output_width(void **state)
{
        setenv("COLUMNS", "132", 1);
        assert_int_equal(output_width(), 132);
        assert_int_equal(prose_width(), 132);
        setenv("COLUMNS", "wide", 1); /* no number: as if it weren't there */
        assert_int_equal(output_width(), 0);
        assert_int_equal(prose_width(), WIDTH_UNKNOWN);
        setenv("COLUMNS", "19", 1);
        assert_int_equal(output_width(), 0);
        unsetenv("COLUMNS");
        assert_int_equal(output_width(), 0); /* the tests' output is a pipe */
}

static void test_text_columns(void **state)
{
        assert_int_equal(text_columns(""), 0);
        assert_int_equal(text_columns("host"), 4);
        assert_int_equal(text_columns("\x1b[0m"), 7); /* "\x1b[0m", as it is shown */
        assert_int_equal(text_columns("\xff"), 4);
        assert_int_equal(text_columns("d\xc3\xa9mo"), 4);
        assert_int_equal(text_columns("\xe4\xb8\xad"), 2); /* two columns wide */
}

static void expect_line(const char *text, size_t width, const char *line, const char *rest)
{
        const char *next;
        size_t len = text_line(text, width, &next);

        assert_int_equal(len, strlen(line));
        assert_memory_equal(text, line, len);
        assert_string_equal(next, rest);
}

static void test_text_line(void **state)
{
        expect_line("", 10, "", "");
        expect_line("one two", 7, "one two", "");
        expect_line("one two", 6, "one", "two");
        expect_line("one two", 3, "one", "two"); /* the space itself needn't fit */
        expect_line("onetwo", 3, "one", "two");  /* no space: anywhere */
        expect_line(" onetwo", 3, " on", "etwo");
        expect_line("one", 0, "o", "ne"); /* it always goes on */
        expect_line("d\xc3\xa9mo", 2, "d\xc3\xa9", "mo");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_output_width),
                TEST(test_text_columns),
                TEST(test_text_line),
        };

        setlocale(LC_CTYPE, "C.UTF-8");
        return RUN_TESTS(tests);
}
