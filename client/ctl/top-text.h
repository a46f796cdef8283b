/* What kvleasectl top shows, as text: the same on a screen and in a file. Nothing unprintable. */
#ifndef KVL_CTL_TOP_TEXT_H
#define KVL_CTL_TOP_TEXT_H

#include "client/ctl/show.h"
#include "client/ctl/top-ask.h"

#define TOP_TEXT_HEAD_LINES 5

/* A line each (owned): the daemon, its hits, its pages, memory of devices, and below them ("" where
 * there is nothing). */
void top_head(const struct top_look *look, const struct show_format *f,
        char *ret_lines[TOP_TEXT_HEAD_LINES]);

/* Rows that were selected, as text. */
struct top_table {
        const struct top_view *view;
        char **cells; /* owned, and so is each; by rows */
        size_t n_rows;
        unsigned widths[TOP_MAX_COLUMNS]; /* bytes, of headings, too */
};

void top_table_init(struct top_table *t, const struct top_view *v, const struct show_format *f,
        const struct top_row *const *rows, size_t n_rows);
void top_table_deinit(struct top_table *t);

/* Texts are aligned to the left, all else to the right. */
bool top_is_left(const struct top_view *v, unsigned column);

/* One row, or the totals, for programs. Returns owned. */
json_t *top_row_json(const struct top_view *v, const struct top_row *row);

#endif
