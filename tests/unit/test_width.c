/* How text and lists are made to fit terminals. */
#include "client/ctl/ctl.h" /* before cmocka makes a macro of fail() */

#include "tests/unit/test-support.h"

#include <locale.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/width.h"

TEST(test_output_width)
{
        setenv("KVLEASE_COLUMNS", "132", 1);
        assert_int_equal(output_width(), 132);
        assert_int_equal(prose_width(), 132);
        setenv("KVLEASE_COLUMNS", "wide", 1); /* no number: as if it weren't there */
        assert_int_equal(output_width(), 0);
        assert_int_equal(prose_width(), WIDTH_UNKNOWN);
        setenv("KVLEASE_COLUMNS", "19", 1);
        assert_int_equal(output_width(), 0);
        unsetenv("KVLEASE_COLUMNS");
        assert_int_equal(output_width(), 0); /* the tests' output is a pipe */
        setenv("COLUMNS", "132", 1);         /* says something of terminals alone */
        assert_int_equal(output_width(), 0);
        assert_int_equal(prose_width(), WIDTH_UNKNOWN);
        unsetenv("COLUMNS");
}

/* The terminal's own width, or COLUMNS; without either 80 columns. */
TEST(test_terminal)
{
        struct winsize sizes[] = {{.ws_col = 67}, {.ws_col = 0}, {.ws_col = 67}};
        size_t widths[ARRAY_SIZE(sizes)];

        unsetenv("KVLEASE_COLUMNS");
        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
                int terminal, other, saved = dup(STDOUT_FILENO);

                assert_int_equal(openpty(&other, &terminal, NULL, NULL, &sizes[i]), 0);
                fflush(stdout);
                dup2(terminal, STDOUT_FILENO);
                if (i == 2)
                        setenv("COLUMNS", "50", 1);
                widths[i] = output_width();
                unsetenv("COLUMNS");
                dup2(saved, STDOUT_FILENO);
                close(saved);
                close(terminal);
                close(other);
        }
        assert_int_equal(widths[0], 67);
        assert_int_equal(widths[1], WIDTH_UNKNOWN);
        assert_int_equal(widths[2], 50);
}

/* Text that a terminal of this locale can show is unchanged. */
/* ret: the bytes that a terminal gets from print_colored(). */
static void colored(const char *term, const char *no_color, char *ret, size_t size)
{
        int terminal, other, saved = dup(STDOUT_FILENO);
        ssize_t n;

        assert_int_equal(openpty(&other, &terminal, NULL, NULL, NULL), 0);
        setenv("TERM", term, 1);
        setenv("NO_COLOR", no_color, 1);
        fflush(stdout);
        dup2(terminal, STDOUT_FILENO);
        print_colored(TEXT_RED, "error  ", "one two", 80);
        fflush(stdout);
        dup2(saved, STDOUT_FILENO);
        n = read(other, ret, size - 1);
        assert_true(n > 0);
        ret[n] = '\0';
        close(other);
        close(terminal);
        close(saved);
}

/* Colours are for terminals, without NO_COLOR. */
TEST(test_colors)
{
        char text[128];

        colored("xterm", "", text, sizeof(text));
        assert_string_equal(text, "\033[1;31merror  \033[0mone two\r\n");
        colored("xterm", "1", text, sizeof(text));
        assert_string_equal(text, "error  one two\r\n");
        colored("dumb", "", text, sizeof(text));
        assert_string_equal(text, "error  one two\r\n");
        unsetenv("TERM");
        unsetenv("NO_COLOR");
}

static void check_printable(const char *locale, const char *text, const char *shown)
{
        _cleanup_free_ char *got = NULL;

        assert_non_null(setlocale(LC_CTYPE, locale));
        got = text_printable(text);
        assert_string_equal(got, shown);
        assert_non_null(setlocale(LC_CTYPE, "C.UTF-8"));
}

TEST(test_text_printable)
{
        check_printable("C.UTF-8", "/d\xc3\xa9/\xe4\xb8\xad", "/d\xc3\xa9/\xe4\xb8\xad");
        check_printable("C.UTF-8", "\x1b[m \xff \xe2\x80\xae \xc2\x9b",
                "\\x1b[m \\xff \\xe2\\x80\\xae \\xc2\\x9b");
        check_printable("C", "d\xc3\xa9", "d\\xc3\\xa9");
}

/* The width that is left for each column, 0 for one that is left out. */
static void expect_fit(size_t width, const size_t want[4])
{
        struct fit_column columns[] = {
                {.heading_width = 4, .width = 10},                 /* stays as it is */
                {.heading_width = 4, .width = 40, .shortest = 12}, /* cut in the middle */
                {.heading_width = 4, .width = 8, .spare = 1},
                {.heading_width = 4, .width = 60, .wraps = true},
        };

        fit_columns(columns, ARRAY_SIZE(columns), width);
        for (size_t i = 0; i < ARRAY_SIZE(columns); i++)
                if ((columns[i].is_left_out ? 0 : columns[i].width) != want[i])
                        fail_msg("width %zu: column %zu has %zu", width, i, columns[i].width);
}

TEST(test_fit_columns)
{
        struct fit_column empty[] = {{.heading_width = 9, .width = 9, .is_empty = true},
                {.heading_width = 4, .width = 9, .spare = 9}};

        expect_fit(121, (size_t[]){10, 40, 8, 60}); /* just enough: 118 and three blanks */
        expect_fit(120, (size_t[]){10, 40, 8, 59});
        expect_fit(80, (size_t[]){10, 35, 8, 24}); /* the first gets what room there is */
        expect_fit(57, (size_t[]){10, 12, 8, 24});
        expect_fit(56, (size_t[]){10, 20, 0, 24});
        expect_fit(20, (size_t[]){10, 12, 0, 24}); /* no column is cut that may not be */
        fit_columns(empty, 2, 12);                 /* what says nothing goes first */
        assert_true(empty[0].is_left_out);
        assert_false(empty[1].is_left_out);
}

static void expect_cell(struct fit_column c, const char *text, const char *first, const char *rest)
{
        const char *left;
        char *cell = fit_cell(&c, text, &left);

        assert_string_equal(cell, first);
        assert_string_equal(left, rest);
        free(cell);
}

TEST(test_fit_cell)
{
        expect_cell((struct fit_column){.width = 3}, "one two", "one two", "");
        expect_cell((struct fit_column){.width = 3, .wraps = true}, "one two", "one", "two");
        expect_cell((struct fit_column){.width = 7, .shortest = 3}, "0123456789", "012..89", "");
        expect_cell(
                (struct fit_column){.width = 10, .shortest = 3}, "0123456789", "0123456789", "");
        expect_cell((struct fit_column){.width = 6, .shortest = 3}, "a\x1b\x1b\x1b", "a..", "");
}

int main(void)
{
        setlocale(LC_CTYPE, "C.UTF-8");
        return test_run_all(NULL, NULL);
}
