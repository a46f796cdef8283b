#include "client/ctl/list-width.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "client/ctl/width.h"

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
