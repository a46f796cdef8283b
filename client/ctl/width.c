#include "client/ctl/width.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>
#include <wctype.h>

#include "base/macros.h"
#include "base/parse.h"
#include "client/ctl/ctl.h"

#define WIDTH_LEAST  20
#define ESCAPE_WIDTH 4 /* "\xHH" */

/* Returns a width set in the environment; 0: none. */
static size_t width_of_environment(const char *name)
{
        const char *text = getenv(name);
        uint64_t columns;

        if (!text || parse_u64(text, &columns) < 0 || columns < WIDTH_LEAST || columns > UINT16_MAX)
                return 0;
        return (size_t)columns;
}

/* KVLEASE_COLUMNS is always set on purpose. COLUMNS isn't (GNU readline sets it in processes that
 * use it), so it must not cut lines that a program reads from a pipe. */
size_t output_width(void)
{
        size_t columns = width_of_environment("KVLEASE_COLUMNS");
        struct winsize size;

        if (columns > 0)
                return columns;
        if (!isatty(STDOUT_FILENO))
                return 0;
        columns = width_of_environment("COLUMNS");
        if (columns > 0)
                return columns;
        if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col == 0)
                return WIDTH_UNKNOWN;
        return MAX(size.ws_col, WIDTH_LEAST);
}

size_t prose_width(void)
{
        size_t width = output_width();

        return width > 0 ? width : WIDTH_UNKNOWN;
}

/* Returns the bytes, and in *ret_columns the columns, of the character that `text` starts with. */
static size_t first_character(const char *text, size_t *ret_columns)
{
        mbstate_t state = {0};
        wchar_t c;
        size_t n = mbrtowc(&c, text, strlen(text), &state);
        int columns = n == 0 || n > strlen(text) || !iswprint((wint_t)c) ? -1 : wcwidth(c);

        if (columns >= 0) {
                *ret_columns = (size_t)columns;
                return n;
        }
        *ret_columns = ESCAPE_WIDTH;
        return 1;
}

size_t text_columns(const char *text)
{
        size_t sum = 0, columns;

        while (*text) {
                text += first_character(text, &columns);
                sum += columns;
        }
        return sum;
}

size_t text_prefix(const char *text, size_t width)
{
        const char *at = text;
        size_t sum = 0, columns;

        while (*at) {
                size_t n = first_character(at, &columns);

                sum += columns;
                if (sum > width && at > text)
                        break;
                at += n;
        }
        return (size_t)(at - text);
}

size_t text_line(const char *text, size_t width, const char **ret_next)
{
        size_t len = text_prefix(text, width), space = len;

        if (text[len])
                while (space > 0 && text[space] != ' ')
                        space--;
        if (text[len] == '\0' || space == 0) {
                *ret_next = text + len;
                return len;
        }
        *ret_next = text + space + 1;
        return space;
}

/* Prints with `left` between two sequences for the terminal. */
static void print_between(FILE *to, const char *before, const char *left, const char *after,
        const char *text, size_t width)
{
        _cleanup_free_ char *safe = text_printable(text);
        size_t indent = text_columns(left),
               room = width > indent + WIDTH_LEAST ? width - indent : WIDTH_LEAST;
        const char *at = safe;

        do {
                const char *next;
                size_t n = text_line(at, room, &next);

                if (at == safe)
                        fprintf(to, "%s%s%s", before, left, after);
                else
                        fprintf(to, "%*s", (int)indent, "");
                fprintf(to, "%.*s\n", (int)n, at);
                at = next;
        } while (*at);
}

void print_wrapped(FILE *to, const char *left, const char *text, size_t width)
{
        print_between(to, "", left, "", text, width);
}

static bool output_has_colors(void)
{
        const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");

        return (!no_color || !no_color[0]) && term && strcmp(term, "dumb") != 0 &&
               isatty(STDOUT_FILENO);
}

void print_colored(enum text_color color, const char *left, const char *text, size_t width)
{
        static const char *const begin[] = {
                [TEXT_RED] = "\033[1;31m", [TEXT_YELLOW] = "\033[33m", [TEXT_CYAN] = "\033[36m"};

        if (color == TEXT_PLAIN || !output_has_colors())
                print_wrapped(stdout, left, text, width);
        else
                print_between(stdout, begin[color], left, "\033[0m", text, width);
}
