/*
 * How a list is made to fit a terminal: which of its columns are left out, and how wide the others
 * may be. First texts are broken and cut as far as their columns allow; where that isn't enough,
 * columns without any value go, and then those to spare, one after the other. A list whose other
 * columns are too wide stays so: what would be cut off couldn't be copied.
 */
#ifndef KVL_CTL_LIST_WIDTH_H
#define KVL_CTL_LIST_WIDTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LIST_WRAP_LEAST 24 /* columns that a broken text has, at the least */

struct fit_column {
        uint8_t spare, shortest; /* as in struct column (show.h) */
        bool wraps;
        bool is_empty; /* no row has a value in it */
        size_t heading_width;
        size_t width;     /* in: of its widest cell; out: what it may have */
        bool is_left_out; /* out */
};

/* Makes the columns, with a blank between two of them, fit into `width`. */
void fit_columns(struct fit_column *columns, size_t n, size_t width);

/* What of `text` stands in the next line of its cell; *ret_rest is what is left of it. Returned
 * owned; NULL: no memory. */
char *fit_cell(const struct fit_column *c, const char *text, const char **ret_rest);

#endif
