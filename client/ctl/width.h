/*
 * How wide what is printed may be. Text that goes to a terminal is laid out for its width; text
 * that goes anywhere else has a line for each thing, however long, so that programs can read it.
 */
#ifndef KVL_CTL_WIDTH_H
#define KVL_CTL_WIDTH_H

#include <stddef.h>
#include <stdio.h>

#define WIDTH_UNKNOWN 80 /* of prose, and of terminals that don't say */

/*
 * Columns that a line on stdout may have: $KVLEASE_COLUMNS where that is a number from 20 on. Else,
 * where stdout is a terminal, $COLUMNS likewise, or the terminal's own. 0: it is none, and lines
 * may be as long as they like.
 */
size_t output_width(void);

/* The same for prose, which no program takes apart: WIDTH_UNKNOWN where stdout is no terminal. */
size_t prose_width(void);

/* Columns that a terminal shows `text` in, with what can't be printed as \xHH. */
size_t text_columns(const char *text);

/* Bytes of the beginning of `text` that fits into `width` columns: one character at least. */
size_t text_prefix(const char *text, size_t width);

/*
 * The beginning of `text` that fits into `width` columns, cut at a space where there is one: its
 * length in bytes, and in *ret_next what comes after the space; at least one character is taken.
 */
size_t text_line(const char *text, size_t width, const char **ret_next);

/* Prints `left` and the text behind it, broken at spaces; what is broken starts below the text.
 * Unprintable bytes stand as \xHH. */
void print_wrapped(FILE *to, const char *left, const char *text, size_t width);

#endif
