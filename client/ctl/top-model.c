#include "client/ctl/top-model.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/macros.h"
#include "client/ctl/ctl.h"

/* ---- samples --------------------------------------------------------------------------------- */

void top_sample_init(
        struct top_sample *s, const struct top_view *v, uint64_t taken_nsec, uint64_t epoch)
{
        *s = (struct top_sample){.view = v, .taken_nsec = taken_nsec, .epoch = epoch};
}

void top_sample_deinit(struct top_sample *s)
{
        for (size_t i = 0; i < s->n_rows; i++) {
                free(s->rows[i].id);
                for (size_t c = 0; c < TOP_MAX_COLUMNS; c++)
                        free(s->rows[i].cells[c].text);
        }
        free(s->rows);
        *s = (struct top_sample){0};
}

struct top_row *top_sample_add(struct top_sample *s, const char *id)
{
        struct top_row *row;

        if (s->n_rows == s->n_allocated) {
                s->n_allocated = s->n_allocated ? 2 * s->n_allocated : 16;
                s->rows = need(reallocarray(s->rows, s->n_allocated, sizeof(*s->rows)));
        }
        row = &s->rows[s->n_rows++];
        *row = (struct top_row){.id = need(strdup(id))};
        return row;
}

void top_set_text(struct top_row *row, unsigned column, const char *text)
{
        free(row->cells[column].text);
        row->cells[column].text = need(strdup(text));
        row->cells[column].known = text[0] != '\0';
}

static bool is_rate(enum top_kind kind)
{
        return kind == TOP_RATE || kind == TOP_BYTE_RATE;
}

void top_set_number(const struct top_view *v, struct top_row *row, unsigned column, uint64_t number)
{
        enum top_kind kind = v->columns[column].kind;

        row->cells[column].number = number;
        row->cells[column].known = !is_rate(kind) && (kind != TOP_BYTES || number != UINT64_MAX);
}

/* ---- rates ----------------------------------------------------------------------------------- */

static int compare_ids(const void *a, const void *b)
{
        return strcmp(((const struct top_row *)a)->id, ((const struct top_row *)b)->id);
}

/* Finds a row in a sorted sample. */
static struct top_row *find_row(const struct top_sample *s, const char *id)
{
        struct top_row key = {.id = (char *)id};

        return s->n_rows ? bsearch(&key, s->rows, s->n_rows, sizeof(key), compare_ids) : NULL;
}

static void rate_cell(struct top_cell *now, const struct top_cell *before, double seconds)
{
        uint64_t was = before && before->number <= now->number ? before->number : 0;

        now->known = true;
        now->rate = (double)(now->number - was) / seconds;
}

void top_rates(struct top_sample *now, const struct top_sample *before)
{
        const struct top_view *v = now->view;
        double seconds;

        if (now->n_rows)
                qsort(now->rows, now->n_rows, sizeof(*now->rows), compare_ids);
        now->has_rates = before && before->view == v && before->epoch == now->epoch &&
                         before->taken_nsec < now->taken_nsec;
        if (!now->has_rates)
                return;
        seconds = (double)(now->taken_nsec - before->taken_nsec) / NSEC_PER_SEC;
        for (size_t i = 0; i < now->n_rows; i++) {
                const struct top_row *was = find_row(before, now->rows[i].id);

                for (unsigned c = 0; c < v->n_columns; c++)
                        if (is_rate(v->columns[c].kind))
                                rate_cell(&now->rows[i].cells[c], was ? &was->cells[c] : NULL,
                                        seconds);
        }
}

void top_add_rates(struct top_sample *to, const unsigned *to_columns, const struct top_sample *from,
        const unsigned *from_columns, size_t n_columns, unsigned by)
{
        for (size_t i = 0; i < to->n_rows; i++)
                for (size_t c = 0; c < n_columns; c++)
                        to->rows[i].cells[to_columns[c]].known = from->has_rates;
        if (!from->has_rates)
                return;
        for (size_t i = 0; i < from->n_rows; i++) {
                const struct top_row *row = &from->rows[i];
                struct top_row *sum =
                        by == TOP_ALL_ROWS ? to->rows : find_row(to, row->cells[by].text);

                for (size_t c = 0; sum && c < n_columns; c++)
                        sum->cells[to_columns[c]].rate += row->cells[from_columns[c]].rate;
        }
}

void top_ratios(struct top_sample *s)
{
        const struct top_view *v = s->view;

        for (unsigned c = 0; c < v->n_columns; c++) {
                if (v->columns[c].kind != TOP_RATIO)
                        continue;
                for (size_t i = 0; i < s->n_rows; i++) {
                        struct top_cell *cells = s->rows[i].cells;
                        double hits = cells[v->hits].rate, misses = cells[v->misses].rate;

                        cells[c].known = hits + misses > 0;
                        cells[c].rate = cells[c].known ? hits / (hits + misses) : 0;
                }
        }
}

/* ---- what is shown --------------------------------------------------------------------------- */

unsigned top_find_column(const struct top_view *v, const char *name)
{
        unsigned c = 0;

        while (c < v->n_columns && strcasecmp(v->columns[c].heading, name) != 0)
                c++;
        return c;
}

static bool has_text(const struct top_view *v, const struct top_row *row, const char *text)
{
        for (unsigned c = 0; c < v->n_columns; c++)
                if (row->cells[c].text && strcasestr(row->cells[c].text, text))
                        return true;
        return false;
}

static bool is_shown(
        const struct top_view *v, const struct top_row *row, const struct top_order *order)
{
        const char *tenant = row->cells[v->tenant].text;

        if (order->tenant && (!tenant || strcmp(tenant, order->tenant) != 0))
                return false;
        return !order->filter || has_text(v, row, order->filter);
}

struct sorting {
        const struct top_order *order;
        enum top_kind kind;
};

static double cell_value(const struct top_cell *cell, enum top_kind kind)
{
        return kind == TOP_RATIO || is_rate(kind) ? cell->rate : (double)cell->number;
}

/* Returns < 0 if x comes first. Both are known. */
static int compare_cells(const struct top_cell *x, const struct top_cell *y, enum top_kind kind)
{
        double m = cell_value(x, kind), n = cell_value(y, kind);

        return x->text ? strcmp(x->text, y->text) : (m < n) - (m > n);
}

static int compare_rows(const void *a, const void *b, void *data)
{
        const struct sorting *s = data;
        const struct top_row *row_a = *(const struct top_row *const *)a;
        const struct top_row *row_b = *(const struct top_row *const *)b;
        const struct top_cell *x = &row_a->cells[s->order->column];
        const struct top_cell *y = &row_b->cells[s->order->column];
        int r = 0;

        if (x->known != y->known)
                return x->known ? -1 : 1;
        if (x->known)
                r = compare_cells(x, y, s->kind);
        if (r == 0)
                return strcmp(row_a->id, row_b->id);
        return s->order->is_reversed ? -r : r;
}

size_t top_select(
        const struct top_sample *s, const struct top_order *order, const struct top_row **ret_rows)
{
        struct sorting sorting = {order, s->view->columns[order->column].kind};
        size_t n = 0;

        assert(order->column < s->view->n_columns);
        for (size_t i = 0; i < s->n_rows; i++)
                if (is_shown(s->view, &s->rows[i], order))
                        ret_rows[n++] = &s->rows[i];
        if (n)
                qsort_r(ret_rows, n, sizeof(*ret_rows), compare_rows, &sorting);
        return n;
}
