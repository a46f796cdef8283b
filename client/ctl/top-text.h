/* The text of kvleasectl top, the same on a screen and in a file. Nothing unprintable. */
#ifndef KVL_CTL_TOP_TEXT_H
#define KVL_CTL_TOP_TEXT_H

#include "client/ctl/show.h"
#include "client/ctl/top-ask.h"

#define TOP_TEXT_HEAD_LINES 5

/* Makes a line each (owned) for the daemon, its hits, its pages, memory of devices, and of lower
 * tiers ("" if there are none). */
void top_head(const struct top_look *look, const struct show_format *f,
        char *ret_lines[TOP_TEXT_HEAD_LINES]);

/* Selected rows, as text. */
struct top_table {
        const struct top_view *view;
        char **cells; /* owned, as is each; by rows */
        size_t n_rows;
        unsigned widths[TOP_MAX_COLUMNS]; /* bytes, including headings */
};

void top_table_init(struct top_table *t, const struct top_view *v, const struct show_format *f,
        const struct top_row *const *rows, size_t n_rows);
void top_table_deinit(struct top_table *t);

/* Whether a column is aligned to the left: texts are. */
bool top_is_left(const struct top_view *v, unsigned column);

/* Makes one row, or the totals, for programs. Returns owned. */
json_t *top_row_json(const struct top_view *v, const struct top_row *row);

#endif
