/* Width of output. Text for a terminal is laid out for its width. Other output has one line for
 * each thing, of any length, so that programs can read it. */
#ifndef KVL_CTL_WIDTH_H
#define KVL_CTL_WIDTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/*
 * Fits a list to a terminal: which columns are left out, and how wide the others may be. First
 * cells are wrapped and cut as far as their columns allow. If that isn't enough, empty columns are
 * left out, then spare ones, one after the other. A list whose other columns are too wide stays so:
 * values that are cut off couldn't be copied.
 */
#define LIST_WRAP_LEAST 24 /* least width of a wrapped text */

struct fit_column {
        uint8_t spare, shortest; /* as in struct column (show.h) */
        bool wraps;
        bool is_empty; /* no row has a value in it */
        size_t heading_width;
        size_t width;     /* in: of its widest cell; out: its limit */
        bool is_left_out; /* out */
};

/* Makes the columns, with a blank between any two, fit into `width`. */
void fit_columns(struct fit_column *columns, size_t n, size_t width);

/* Returns the part of `text` for the next line of its cell, owned; *ret_rest is the rest. NULL: no
 * memory. */
char *fit_cell(const struct fit_column *c, const char *text, const char **ret_rest);

#define WIDTH_UNKNOWN 80 /* for prose, and for terminals of unknown width */

/* Returns the columns of a line on stdout: $KVLEASE_COLUMNS if that is a number from 20 on. Else,
 * for a terminal, $COLUMNS likewise, or the terminal's own. 0: no terminal, and lines may have any
 * length. */
size_t output_width(void);

/* Does output_width() for prose, which no program parses: WIDTH_UNKNOWN without a terminal. */
size_t prose_width(void);

/* Returns the columns of `text` on a terminal, with unprintable bytes as \xHH. */
size_t text_columns(const char *text);

/* Returns the bytes of the start of `text` that fits `width` columns: at least one character. */
size_t text_prefix(const char *text, size_t width);

/* Returns the bytes of the start of `text` that fits into `width` columns, cut at a space if there
 * is one. *ret_next: the text after the space. Takes at least one character. */
size_t text_line(const char *text, size_t width, const char **ret_next);

/* Prints `left` and then the text, wrapped at spaces and aligned. Unprintable bytes are shown as
 * \xHH. */
void print_wrapped(FILE *to, const char *left, const char *text, size_t width);

enum text_color { TEXT_PLAIN, TEXT_RED, TEXT_YELLOW, TEXT_CYAN };

/* Does print_wrapped() to stdout, with `left` in a colour. Exceptions, without colours: stdout is
 * no terminal or a TERM=dumb, or NO_COLOR is set and not empty (https://no-color.org). */
void print_colored(enum text_color color, const char *left, const char *text, size_t width);

#endif
