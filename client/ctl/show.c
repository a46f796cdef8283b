#include "client/ctl/show.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <libsmartcols.h>

#include "base/parse.h"
#include "client/ctl/ctl.h"

struct show_list {
        const struct column_table *table;
        const struct show_format *format;
        json_t *array;                /* JSON: owned */
        struct libscols_table *scols; /* text: owned */
        size_t n_rows;
};

/* ---- values ---------------------------------------------------------------------------------- */

static void value_read(const struct column *c, const void *row, struct value *ret)
{
        const char *base = row;

        if (c->inner_offset)
                base = *(const char *const *)(base + c->inner_offset);
        if (!base)
                return; /* a message the daemon left out */
        base += c->offset;
        ret->present = true;
        if (c->kind == COLUMN_TEXT) {
                ret->text = *(const char *const *)base;
                ret->present = ret->text[0] != '\0';
        } else if (c->width == sizeof(uint64_t)) {
                ret->number = *(const uint64_t *)base;
        } else {
                assert(c->width == sizeof(uint32_t));
                ret->number = *(const uint32_t *)base;
        }
        if (c->kind == COLUMN_BYTES && ret->number == UINT64_MAX)
                ret->present = false;
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

/* The two largest units: a reader of "3 d 4 h" does not want the seconds. */
static void format_seconds(uint64_t seconds, char *buf, size_t size)
{
        if (seconds < 60)
                snprintf(buf, size, "%" PRIu64 " s", seconds);
        else if (seconds < 3600)
                snprintf(buf, size, "%" PRIu64 " min %" PRIu64 " s", seconds / 60, seconds % 60);
        else if (seconds < 86400)
                snprintf(buf, size, "%" PRIu64 " h %" PRIu64 " min", seconds / 3600,
                        seconds / 60 % 60);
        else
                snprintf(buf, size, "%" PRIu64 " d %" PRIu64 " h", seconds / 86400,
                        seconds / 3600 % 24);
}

const char *show_seconds(const struct show_format *f, uint64_t seconds, char buf[32])
{
        if (f->plain_numbers)
                snprintf(buf, 32, "%" PRIu64, seconds);
        else
                format_seconds(seconds, buf, 32);
        return buf;
}

/* Small ones are about waiting: there the milliseconds matter. */
static void format_msec(uint64_t msec, char *buf, size_t size)
{
        if (msec < 1000)
                snprintf(buf, size, "%" PRIu64 " ms", msec);
        else if (msec < 60 * 1000 && msec % 1000 != 0)
                snprintf(buf, size, "%" PRIu64 ".%" PRIu64 " s", msec / 1000, msec / 100 % 10);
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
                /* jansson's integers are signed; no count or size gets near 2^63. */
                return json_integer((json_int_t)MIN(v->number, (uint64_t)INT64_MAX));
        }
}

/* ---- one row --------------------------------------------------------------------------------- */

static json_t *row_json(const struct column_table *t, const struct show_format *f, const void *row)
{
        json_t *object = need(json_object());

        for (size_t i = 0; i < t->n_columns; i++) {
                const struct column *c = &t->columns[i];
                struct value v;

                if (!c->key)
                        continue;
                value_get(c, row, f, &v);
                if (json_object_set_new(object, c->key, need(value_json(c, &v))) < 0)
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
        /* Escaping everything but ASCII also keeps a peer's control sequences off the terminal. */
        json_dumpf(object, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(6));
        putchar('\n');
        json_decref(object);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static struct libscols_table *table_new(void)
{
        struct libscols_table *t = need(scols_new_table());

        /* A line per thing whatever the width: what is cut off can't be copied. */
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

static void table_print(struct libscols_table *t)
{
        scols_print_table(t);
        scols_unref_table(t);
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
        l->scols = table_new();
        scols_table_enable_noheadings(l->scols, !f->headings);
        for (size_t i = 0; i < t->n_columns; i++)
                if (in_list(&t->columns[i]))
                        table_add_column(
                                l->scols, t->columns[i].heading, t->columns[i].kind != COLUMN_TEXT);
        return l;
}

void show_list_add(struct show_list *l, const void *row)
{
        const struct column_table *t = l->table;
        struct libscols_line *line;
        size_t cell = 0;

        l->n_rows++;
        if (l->array) {
                if (json_array_append_new(l->array, row_json(t, l->format, row)) < 0)
                        need(NULL);
                return;
        }
        line = need(scols_table_new_line(l->scols, NULL));
        for (size_t i = 0; i < t->n_columns; i++) {
                struct value v;

                if (!in_list(&t->columns[i]))
                        continue;
                value_get(&t->columns[i], row, l->format, &v);
                line_set(line, cell++, value_text(&t->columns[i], l->format, &v));
        }
}

size_t show_list_count(const struct show_list *l)
{
        return l->n_rows;
}

void show_list_print(struct show_list *l)
{
        if (l->array)
                show_json(json_pack("{s:O}", l->table->plural, l->array));
        else if (l->n_rows > 0)
                scols_print_table(l->scols);
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
        scols_unref_table(l->scols);
        free(l);
}

/* "MAX CLIENTS" -> "max clients:" */
static void label_from_heading(const char *heading, char *buf, size_t size)
{
        size_t i;

        for (i = 0; heading[i] && i + 2 < size; i++)
                buf[i] = (char)tolower((unsigned char)heading[i]);
        buf[i++] = ':';
        buf[i] = '\0';
}

void show_object(const struct column_table *t, const struct show_format *f, const void *row)
{
        struct libscols_table *block;

        if (f->json) {
                show_json(row_json(t, f, row));
                return;
        }
        block = table_new();
        scols_table_enable_noheadings(block, true);
        table_add_column(block, "", false);
        table_add_column(block, "", false);
        for (size_t i = 0; i < t->n_columns; i++) {
                const struct column *c = &t->columns[i];
                struct libscols_line *line;
                char label[32];
                struct value v;

                if (!c->heading || c->brief)
                        continue;
                value_get(c, row, f, &v);
                label_from_heading(c->heading, label, sizeof(label));
                line = need(scols_table_new_line(block, NULL));
                line_set(line, 0, label);
                line_set(line, 1, value_text(c, f, &v));
        }
        table_print(block);
}
