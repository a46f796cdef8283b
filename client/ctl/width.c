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

#define ELLIPSIS ".."

/* Returns the least width of the column. */
static size_t least_width(const struct fit_column *c)
{
        size_t least = c->width;

        if (c->wraps)
                least = MIN(least, (size_t)LIST_WRAP_LEAST);
        else if (c->shortest > 0)
                least = MIN(least, (size_t)c->shortest);
        return MAX(least, c->heading_width);
}

static size_t least_sum(const struct fit_column *columns, size_t n)
{
        size_t sum = 0, n_shown = 0;

        for (size_t i = 0; i < n; i++)
                if (!columns[i].is_left_out) {
                        sum += least_width(&columns[i]);
                        n_shown++;
                }
        return sum + (n_shown > 0 ? n_shown - 1 : 0);
}

/* Returns the column to leave out next; NULL: none may be. */
static struct fit_column *column_to_spare(struct fit_column *columns, size_t n)
{
        struct fit_column *chosen = NULL;
        unsigned most = 0;

        for (size_t i = 0; i < n; i++) {
                /* Empty columns are left out first. */
                unsigned rank = columns[i].spare + (columns[i].is_empty ? UINT8_MAX + 1u : 0);

                if (!columns[i].is_left_out && rank > 0 && rank >= most) {
                        chosen = &columns[i];
                        most = rank;
                }
        }
        return chosen;
}

/* Gives shrinkable columns the remaining room, from the left. */
static void share_room(struct fit_column *columns, size_t n, size_t room)
{
        for (size_t i = 0; i < n; i++) {
                size_t least = least_width(&columns[i]);
                size_t wanted = MAX(columns[i].width, least) - least;

                if (columns[i].is_left_out)
                        continue;
                columns[i].width = least + MIN(wanted, room);
                room -= MIN(wanted, room);
        }
}

void fit_columns(struct fit_column *columns, size_t n, size_t width)
{
        struct fit_column *gone;

        while (least_sum(columns, n) > width && (gone = column_to_spare(columns, n)))
                gone->is_left_out = true;
        share_room(columns, n, width - MIN(width, least_sum(columns, n)));
}

/* Makes "GPU-6a3d1f..8d0e1f": at most `columns` wide, if possible. */
static char *cut_middle(const char *text, size_t columns)
{
        size_t keep = columns > strlen(ELLIPSIS) ? columns - strlen(ELLIPSIS) : 1;
        size_t head = (keep + 1) / 2, tail = keep - head;
        const char *end = text;
        char *cut;

        while (text_columns(end) > tail) {
                const char *next;

                end += text_line(end, 0, &next);
        }
        if (asprintf(&cut, "%.*s" ELLIPSIS "%s", (int)text_prefix(text, head), text, end) < 0)
                return NULL;
        return cut;
}

char *fit_cell(const struct fit_column *c, const char *text, const char **ret_rest)
{
        size_t len;

        if (c->wraps) {
                len = text_line(text, c->width, ret_rest);
                return strndup(text, len);
        }
        *ret_rest = "";
        if (c->shortest > 0 && text_columns(text) > c->width)
                return cut_middle(text, c->width);
        return strdup(text);
}

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
