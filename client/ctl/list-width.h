/*
 * Fits a list to a terminal: which columns are left out, and how wide the others may be. First
 * cells are wrapped and cut as far as their columns allow. If that isn't enough, empty columns are
 * left out, then spare ones, one after the other. A list whose other columns are too wide stays so:
 * values that are cut off couldn't be copied.
 */
#ifndef KVL_CTL_LIST_WIDTH_H
#define KVL_CTL_LIST_WIDTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

#endif
