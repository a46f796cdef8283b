/* Width of output. Text for a terminal is laid out for its width. Other output has one line for
 * each thing, of any length, so that programs can read it. */
#ifndef KVL_CTL_WIDTH_H
#define KVL_CTL_WIDTH_H

#include <stddef.h>
#include <stdio.h>

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
