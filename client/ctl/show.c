#include "client/ctl/show.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <libsmartcols.h>

#include "base/parse.h"
#include "client/ctl/ctl.h"
#include "client/ctl/width.h"
#include "proto/figures.h"

struct show_list {
        const struct column_table *table;
        const struct show_format *format;
        json_t *array; /* JSON: owned */
        /* Text: the columns, and n_rows times as many cells; all owned. */
        const struct column **columns;
        char **cells;
        size_t n_columns, n_rows;
};

/* ---- values ---------------------------------------------------------------------------------- */

static void value_read(const struct column *c, const void *row, struct value *ret)
{
        const char *at = (const char *)row + c->offset;

        if (c->kind == COLUMN_TEXT) {
                ret->text = *(const char *const *)at;
                ret->present = ret->text && ret->text[0] != '\0';
        } else {
                ret->number = *(const uint64_t *)at;
                ret->present = ret->number != FIGURE_NONE && !(c->zero_is_none && ret->number == 0);
        }
}

static void value_get(
        const struct column *c, const void *row, const struct show_format *f, struct value *ret)
{
        *ret = (struct value){0};
        if (c->derive)
                c->derive(row, f, ret);
        else
                value_read(c, row, ret);
}

const char *show_bytes(const struct show_format *f, uint64_t bytes, char buf[32])
{
        static_assert(FORMAT_BYTES_MAX <= 32, "format_bytes() fits");

        if (!f->plain_numbers)
                return format_bytes(bytes, buf);
        snprintf(buf, 32, "%" PRIu64, bytes);
        return buf;
}

/* Formats the two largest units, as "3d 4h". parse_duration() reads each. */
static void format_seconds(uint64_t seconds, char *buf, size_t size)
{
        static const struct {
                const char *name;
                uint64_t seconds;
        } units[] = {{"d", 86400}, {"h", 3600}, {"min", 60}, {"s", 1}};
        size_t i = 0;
        uint64_t rest;

        while (i + 1 < ARRAY_SIZE(units) && seconds < units[i].seconds)
                i++;
        rest = seconds % units[i].seconds;
        if (i + 1 < ARRAY_SIZE(units) && rest >= units[i + 1].seconds)
                snprintf(buf, size, "%" PRIu64 "%s %" PRIu64 "%s", seconds / units[i].seconds,
                        units[i].name, rest / units[i + 1].seconds, units[i + 1].name);
        else
                snprintf(buf, size, "%" PRIu64 "%s", seconds / units[i].seconds, units[i].name);
}

const char *show_seconds(const struct show_format *f, uint64_t seconds, char buf[32])
{
        if (f->plain_numbers)
                snprintf(buf, 32, "%" PRIu64, seconds);
        else
                format_seconds(seconds, buf, 32);
        return buf;
}

/* Keeps milliseconds of small times, where they matter. */
static void format_msec(uint64_t msec, char *buf, size_t size)
{
        if (msec < 1000)
                snprintf(buf, size, "%" PRIu64 "ms", msec);
        else if (msec < 60 * 1000 && msec % 1000 != 0)
                snprintf(buf, size, "%" PRIu64 ".%" PRIu64 "s", msec / 1000, msec / 100 % 10);
        else
                format_seconds(msec / 1000, buf, size);
}

static const char *value_text(const struct column *c, const struct show_format *f, struct value *v)
{
        if (!v->present)
                return "-";
        switch (c->kind) {
        case COLUMN_TEXT:
                return v->text;
        case COLUMN_BYTES:
                return show_bytes(f, v->number, v->buf);
        case COLUMN_BOOL:
                return v->number ? "yes" : "no";
        case COLUMN_RATIO:
                snprintf(v->buf, sizeof(v->buf), "%.1f %%", v->ratio * 100);
                return v->buf;
        case COLUMN_SECONDS:
                if (!f->plain_numbers) {
                        format_seconds(v->number, v->buf, sizeof(v->buf));
                        return v->buf;
                }
                break;
        case COLUMN_MSEC:
                if (!f->plain_numbers) {
                        format_msec(v->number, v->buf, sizeof(v->buf));
                        return v->buf;
                }
                break;
        case COLUMN_COUNT:
                break;
        }
        snprintf(v->buf, sizeof(v->buf), "%" PRIu64, v->number);
        return v->buf;
}

json_t *show_json_text(const char *text)
{
        _cleanup_free_ char *safe = NULL;
        json_t *j = json_string(text);

        if (j)
                return j;
        safe = text_printable(text); /* not UTF-8 */
        return need(json_string(safe));
}

static json_t *value_json(const struct column *c, const struct value *v)
{
        if (!v->present)
                return c->kind == COLUMN_TEXT && v->text ? json_string("") : json_null();
        switch (c->kind) {
        case COLUMN_TEXT:
                return show_json_text(v->text);
        case COLUMN_BOOL:
                return json_boolean(v->number);
        case COLUMN_RATIO:
                return json_real(v->ratio);
        default:
                /* jansson's integers are signed; no count or size comes near 2^63. */
                return json_integer((json_int_t)MIN(v->number, (uint64_t)INT64_MAX));
        }
}

/* ---- one row --------------------------------------------------------------------------------- */

/* Returns owned. */
static json_t *column_json(const struct column *c, const void *row, const struct show_format *f)
{
        struct value v;

        if (c->derive_json)
                return need(c->derive_json(row));
        value_get(c, row, f, &v);
        return need(value_json(c, &v));
}

json_t *show_object_json(const struct column_table *t, const struct show_format *f, const void *row)
{
        json_t *object = need(json_object());

        for (size_t i = 0; i < t->n_columns; i++) {
                const struct column *c = &t->columns[i];

                if (c->key && json_object_set_new(object, c->key, column_json(c, row, f)) < 0)
                        need(NULL);
        }
        return object;
}

json_t *show_texts(size_t n, char *const *texts)
{
        json_t *list = need(json_array());

        for (size_t i = 0; i < n; i++) {
                char *text = text_printable(texts[i]);

                json_array_append_new(list, need(json_string(text)));
                free(text);
        }
        return list;
}

void show_json(json_t *object)
{
        need(object);
        /* Escaping all but ASCII also keeps a peer's control sequences off the terminal. */
        json_dumpf(object, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(6));
        putchar('\n');
        json_decref(object);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static struct libscols_table *table_new(void)
{
        struct libscols_table *t = need(scols_new_table());

        /* fit_columns() decides the width of lines, not libsmartcols. */
        scols_table_set_termforce(t, SCOLS_TERMFORCE_NEVER);
        return t;
}

static void table_add_column(struct libscols_table *t, const char *heading, bool right)
{
        need(scols_table_new_column(t, heading, 0, right ? SCOLS_FL_RIGHT : 0));
}

static void line_set(struct libscols_line *line, size_t i, const char *text)
{
        if (scols_line_set_data(line, i, text) < 0)
                need(NULL);
}

static bool in_list(const struct column *c)
{
        return c->heading && !c->detail;
}

struct show_list *show_list_new(const struct column_table *t, const struct show_format *f)
{
        struct show_list *l = need(calloc(1, sizeof(*l)));

        l->table = t;
        l->format = f;
        if (f->json) {
                l->array = need(json_array());
                return l;
        }
        l->columns = need(calloc(t->n_columns, sizeof(struct column *)));
        for (size_t i = 0; i < t->n_columns; i++)
                if (in_list(&t->columns[i]))
                        l->columns[l->n_columns++] = &t->columns[i];
        return l;
}

void show_list_add(struct show_list *l, const void *row)
{
        size_t at = l->n_rows * l->n_columns;

        l->n_rows++;
        if (l->array) {
                if (json_array_append_new(l->array, show_object_json(l->table, l->format, row)) < 0)
                        need(NULL);
                return;
        }
        l->cells = need(reallocarray(l->cells, l->n_rows * l->n_columns, sizeof(char *)));
        for (size_t i = 0; i < l->n_columns; i++) {
                struct value v;

                value_get(l->columns[i], row, l->format, &v);
                l->cells[at + i] = need(strdup(value_text(l->columns[i], l->format, &v)));
        }
}

/* Returns each column's data for fit_columns(), owned. */
static struct fit_column *list_measure(const struct show_list *l)
{
        struct fit_column *fit = need(calloc(l->n_columns, sizeof(*fit)));

        for (size_t i = 0; i < l->n_columns; i++) {
                const struct column *c = l->columns[i];

                fit[i] = (struct fit_column){.spare = c->spare,
                        .shortest = c->shortest,
                        .wraps = c->wraps,
                        .is_empty = true,
                        .heading_width = text_columns(c->heading)};
                fit[i].width = fit[i].heading_width;
                for (size_t row = 0; row < l->n_rows; row++) {
                        const char *cell = l->cells[row * l->n_columns + i];

                        fit[i].width = MAX(fit[i].width, text_columns(cell));
                        fit[i].is_empty &= strcmp(cell, "-") == 0;
                }
        }
        return fit;
}

/* Prints one row, in as many lines as its longest wrapped cell. */
static void list_print_row(const struct show_list *l, struct libscols_table *scols,
        const struct fit_column *fit, size_t row)
{
        const char **rest = need(calloc(l->n_columns, sizeof(char *)));
        bool is_more = true;

        for (size_t i = 0; i < l->n_columns; i++)
                rest[i] = l->cells[row * l->n_columns + i];
        while (is_more) {
                struct libscols_line *line = need(scols_table_new_line(scols, NULL));
                size_t at = 0;

                is_more = false;
                for (size_t i = 0; i < l->n_columns; i++) {
                        _cleanup_free_ char *part = NULL;

                        if (fit[i].is_left_out)
                                continue;
                        part = need(fit_cell(&fit[i], rest[i], &rest[i]));
                        line_set(line, at++, part);
                        is_more |= rest[i][0] != '\0';
                }
        }
        free(rest);
}

/* "(not shown: SINCE, PID; a wider terminal has them, and --json everything)" */
static void list_print_left_out(
        const struct show_list *l, const struct fit_column *fit, size_t width)
{
        char *text = NULL;
        size_t len = 0, n = 0;
        FILE *to = need(open_memstream(&text, &len));

        for (size_t i = 0; i < l->n_columns; i++)
                if (fit[i].is_left_out)
                        fprintf(to, "%s%s",
                                n++ > 0 ? ", " : "(not shown: ", l->columns[i]->heading);
        fputs("; a wider terminal has them, and --json everything)", to);
        fclose(to);
        if (n > 0)
                print_wrapped(stdout, "", text, width);
        free(text);
}

static void list_print_text(struct show_list *l)
{
        size_t width = output_width();
        struct libscols_table *scols = table_new();
        struct fit_column *fit = list_measure(l);

        if (width > 0)
                fit_columns(fit, l->n_columns, width);
        scols_table_enable_noheadings(scols, !l->format->headings);
        for (size_t i = 0; i < l->n_columns; i++)
                if (!fit[i].is_left_out)
                        table_add_column(
                                scols, l->columns[i]->heading, l->columns[i]->kind != COLUMN_TEXT);
        for (size_t row = 0; row < l->n_rows; row++)
                list_print_row(l, scols, fit, row);
        scols_print_table(scols);
        if (width > 0 && l->format->headings)
                list_print_left_out(l, fit, width);
        scols_unref_table(scols);
        free(fit);
}

void show_list_print(struct show_list *l)
{
        if (l->array)
                show_json(json_pack("{s:O}", l->table->plural, l->array));
        else if (l->n_rows > 0)
                list_print_text(l);
        else if (l->format->headings)
                printf("no %s\n", l->table->plural);
        show_list_free(l);
}

json_t *show_list_take_array(struct show_list *l)
{
        json_t *array = TAKE(l->array);

        assert(array);
        show_list_free(l);
        return array;
}

void show_list_free(struct show_list *l)
{
        if (!l)
                return;
        json_decref(l->array);
        for (size_t i = 0; l->cells && i < l->n_rows * l->n_columns; i++)
                free(l->cells[i]);
        free(l->cells);
        free(l->columns);
        free(l);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

#define LABEL_MAX  48
#define LEAST_ROOM 20 /* columns for values, even on a narrower terminal */

/* "MAX CLIENTS" -> "max clients:", indented if the block has groups. */
static void label_from_heading(const char *heading, bool indented, char buf[LABEL_MAX])
{
        size_t at = indented ? 2 : 0;

        memset(buf, ' ', at);
        for (size_t i = 0; heading[i] && at + 2 < LABEL_MAX; i++)
                buf[at++] = (char)tolower((unsigned char)heading[i]);
        buf[at++] = ':';
        buf[at] = '\0';
}

static bool in_block(const struct column *c)
{
        return c->heading && !c->brief;
}

static size_t widest_label(const struct column_table *t, bool indented)
{
        size_t widest = 0;

        for (size_t i = 0; i < t->n_columns; i++)
                if (in_block(&t->columns[i]))
                        widest = MAX(widest, strlen(t->columns[i].heading) + 1);
        return widest + (indented ? 2 : 0);
}

#define MAX_GROUPS 16

/* A block while it is filled. */
struct block {
        struct libscols_table *scols; /* owned */
        size_t n_lines, n_groups;
        struct {
                const char *title;
                size_t first_line;
        } groups[MAX_GROUPS]; /* none: the block has no titles */
};

/* Adds a row, in as many lines as it takes with `room` columns for the value; 0: in one. */
static void block_add_row(struct block *b, const char *label, const char *value, size_t room)
{
        do {
                const char *next = "";
                size_t len = room > 0 ? text_line(value, room, &next) : strlen(value);
                _cleanup_free_ char *part = need(strndup(value, len));
                struct libscols_line *line = need(scols_table_new_line(b->scols, NULL));

                line_set(line, 0, label);
                line_set(line, 1, part);
                b->n_lines++;
                value = next;
                label = "";
        } while (*value);
}

static void block_begin_group(struct block *b, const char *title)
{
        assert(b->n_groups < MAX_GROUPS);
        b->groups[b->n_groups].title = title;
        b->groups[b->n_groups++].first_line = b->n_lines;
}

static void block_print_lines(struct block *b, size_t first, size_t end)
{
        char *text = NULL;

        if (scols_table_print_range_to_string(b->scols, scols_table_get_line(b->scols, first),
                    scols_table_get_line(b->scols, end - 1), &text) < 0)
                need(NULL);
        /* The table's last line has no newline, the others have. */
        fputs(text, stdout);
        if (text[0] && text[strlen(text) - 1] != '\n')
                putchar('\n');
        free(text);
}

static void block_print(struct block *b)
{
        if (b->n_groups == 0 && b->n_lines > 0)
                block_print_lines(b, 0, b->n_lines);
        for (size_t i = 0; i < b->n_groups; i++) {
                size_t first = b->groups[i].first_line;
                size_t end = i + 1 < b->n_groups ? b->groups[i + 1].first_line : b->n_lines;

                if (first == end)
                        continue;
                printf("%s%s\n", i > 0 ? "\n" : "", b->groups[i].title);
                block_print_lines(b, first, end);
        }
}

static bool has_groups(const struct column_table *t)
{
        for (size_t i = 0; i < t->n_columns; i++)
                if (t->columns[i].group)
                        return true;
        return false;
}

/* Returns the columns for a block's values; 0: unlimited. */
static size_t room_for_values(const struct column_table *t, bool indented)
{
        size_t width = output_width(), label = widest_label(t, indented) + 1;

        return width == 0 ? 0 : width > label + LEAST_ROOM ? width - label : LEAST_ROOM;
}

static void block_init(struct block *b)
{
        *b = (struct block){.scols = table_new()};
        scols_table_enable_noheadings(b->scols, true);
        table_add_column(b->scols, "", false);
        table_add_column(b->scols, "", false);
}

/* Switches are on or off there, as in the configuration. */
static void block_add_column(struct block *b, const struct column *c, const struct show_format *f,
        const void *row, bool indented, size_t room)
{
        char label[LABEL_MAX];
        struct value v;

        value_get(c, row, f, &v);
        if (c->optional && !v.present)
                return;
        label_from_heading(c->heading, indented, label);
        block_add_row(b, label,
                c->kind == COLUMN_BOOL && v.present ? (v.number ? "on" : "off")
                                                    : value_text(c, f, &v),
                room);
}

void show_rows(const struct column_table *t, const struct show_format *f, const void *row,
        const char *const *headings, size_t n, size_t max_lines)
{
        size_t room = room_for_values(t, false), end = 0;
        struct block b;

        block_init(&b);
        for (size_t i = 0; i < n; i++) {
                size_t c = 0;

                while (!t->columns[c].heading || strcmp(t->columns[c].heading, headings[i]) != 0)
                        c++;
                block_add_column(&b, &t->columns[c], f, row, false, room);
                if (b.n_lines <= max_lines)
                        end = b.n_lines;
        }
        if (end > 0)
                block_print_lines(&b, 0, end);
        scols_unref_table(b.scols);
}

void show_object(const struct column_table *t, const struct show_format *f, const void *row)
{
        bool indented = has_groups(t);
        size_t room = room_for_values(t, indented);
        struct block b;

        if (f->json) {
                show_json(show_object_json(t, f, row));
                return;
        }
        block_init(&b);
        for (size_t i = 0; i < t->n_columns; i++) {
                const struct column *c = &t->columns[i];

                if (c->group)
                        block_begin_group(&b, c->group);
                if (in_block(c))
                        block_add_column(&b, c, f, row, indented, room);
        }
        block_print(&b);
        scols_unref_table(b.scols);
}
