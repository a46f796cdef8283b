#include "proto/figures.h"

#include <errno.h>
#include <string.h>

#include "base/macros.h"

/* ---- tables ---------------------------------------------------------------------------------- */

#define IS_COUNT        false, false
#define IS_BYTES        false, false
#define IS_SECONDS      false, false
#define IS_MSEC         false, false
#define IS_BOOL         false, false
#define IS_TEXT         true, false
#define IS_TEXT_OR_NONE true, true

#define LIST(scope, ...) static const struct figure scope##_figures[] = {
#define LIST_END(...) \
        }             \
        ;
#define FIGURE(name, kind, ...)     {#name, offsetof(ROW, name), IS_##kind},
#define PART(part, name, kind, ...) {#part "_" #name, offsetof(ROW, part.name), IS_##kind},
#define HIDDEN                      FIGURE
#define HIDDEN_PART                 PART
#include "proto/figures.def"

#define LIST(scope, ...) static const struct figure_rows scope##_rows[] = {
#define LIST_END(...) \
        {             \
                NULL  \
        }             \
        }             \
        ;
#define ROWS(of, name) {#name, &figures_table_##of, offsetof(ROW, name), offsetof(ROW, n_##name)},
#include "proto/figures.def"

#define LIST(scope, plural, ...)                                                     \
        const struct figure_table figures_table_##scope = {#plural, scope##_figures, \
                ARRAY_SIZE(scope##_figures), sizeof(struct figures_##scope), scope##_rows};
#define LIST_END(...)
#include "proto/figures.def"

static uint64_t *number_at(void *row, const struct figure *f)
{
        return (uint64_t *)(void *)((char *)row + f->offset);
}

static const char **text_at(void *row, const struct figure *f)
{
        return (const char **)(void *)((char *)row + f->offset);
}

void figures_init(const struct figure_table *t, void *row)
{
        memset(row, 0, t->size);
        for (size_t i = 0; i < t->n_figures; i++)
                if (t->figures[i].is_text)
                        *text_at(row, &t->figures[i]) = "";
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Bytes of rows in one reply: three quarters of a frame, so that the last row always fits. */
#define PAGE_BYTES (48 * 1024)

/* Largest overhead of a row besides its message; it bounds the rows of a page. */
#define ROW_HEAD_BYTES 8
#define PAGE_ROWS      (PAGE_BYTES / ROW_HEAD_BYTES)
#define PART_ROWS      1024 /* of a part of the list */

/* A row counts as this part of its struct at least, so that a reader's arena holds a page. */
#define ROW_MEMORY_PART 4

static size_t count_texts(const struct figure_table *t)
{
        size_t n = 0;

        for (size_t i = 0; i < t->n_figures; i++)
                n += t->figures[i].is_text;
        return n;
}

/* Names the columns, and has room for rows. NULL: no memory. */
static Kvlease__V1__AdminTable *table_new(
        struct arena *a, const char *name, const struct figure_table *t, size_t max_rows)
{
        Kvlease__V1__AdminTable *m = arena_alloc(a, sizeof(*m));
        char **names = arena_alloc(a, t->n_figures * sizeof(*names));

        if (!m || !names)
                return NULL;
        kvlease__v1__admin_table__init(m);
        m->name = (char *)name;
        m->numbers = names;
        m->texts = names + t->n_figures - count_texts(t);
        for (size_t i = 0; i < t->n_figures; i++) {
                const struct figure *f = &t->figures[i];

                if (f->is_text)
                        m->texts[m->n_texts++] = (char *)f->name;
                else
                        m->numbers[m->n_numbers++] = (char *)f->name;
        }
        m->rows = arena_alloc(a, max_rows * sizeof(*m->rows));
        return m->rows ? m : NULL;
}

int figures_page_init(struct figures_page *p, const struct figure_table *t, struct arena *a)
{
        size_t n_parts = 0;

        while (t->parts[n_parts].name)
                n_parts++;
        *p = (struct figures_page){.table = t,
                .arena = a,
                .tables = arena_alloc(a, (1 + n_parts) * sizeof(*p->tables)),
                .n_tables = 1 + n_parts};
        if (!p->tables)
                return -ENOMEM;
        p->tables[0] = table_new(a, t->name, t, PAGE_ROWS);
        for (size_t i = 0; i < n_parts; i++)
                p->tables[1 + i] = table_new(a, t->parts[i].name, t->parts[i].table, PART_ROWS);
        for (size_t i = 0; i < p->n_tables; i++)
                if (!p->tables[i])
                        return -ENOMEM;
        return 0;
}

/* NULL: no memory. */
static Kvlease__V1__AdminRow *row_new(
        struct arena *a, const struct figure_table *t, void *row, size_t of)
{
        size_t n_texts = count_texts(t);
        Kvlease__V1__AdminRow *m = arena_alloc(a, sizeof(*m));
        int64_t *numbers = arena_alloc(a, (t->n_figures - n_texts) * sizeof(*numbers));
        char **texts = arena_alloc(a, n_texts * sizeof(*texts));
        uint32_t *none = arena_alloc(a, n_texts * sizeof(*none));

        if (!m || !numbers || !texts || !none)
                return NULL;
        kvlease__v1__admin_row__init(m);
        *m = (Kvlease__V1__AdminRow){.base = m->base,
                .of = (uint32_t)of,
                .numbers = numbers,
                .texts = texts,
                .no_texts = none};
        for (size_t i = 0; i < t->n_figures; i++) {
                const struct figure *f = &t->figures[i];

                if (!f->is_text) {
                        numbers[m->n_numbers++] = (int64_t)*number_at(row, f);
                        continue;
                }
                if (!*text_at(row, f))
                        none[m->n_no_texts++] = (uint32_t)m->n_texts;
                texts[m->n_texts++] = (char *)(*text_at(row, f) ? *text_at(row, f) : "");
        }
        return m;
}

static int add_row(struct figures_page *p, size_t table, const struct figure_table *t, void *row)
{
        Kvlease__V1__AdminTable *m = p->tables[table];
        Kvlease__V1__AdminRow *r;
        size_t bytes;

        if (m->n_rows == (table > 0 ? PART_ROWS : PAGE_ROWS))
                return -ENOSPC;
        r = row_new(p->arena, t, row, table > 0 ? p->tables[0]->n_rows : 0);
        if (!r)
                return p->tables[0]->n_rows > 0 ? -ENOSPC : -ENOMEM;
        bytes = protobuf_c_message_get_packed_size(&r->base) + ROW_HEAD_BYTES;
        bytes = MAX(bytes, t->size / ROW_MEMORY_PART);
        if (p->bytes + bytes > PAGE_BYTES)
                return -ENOSPC;
        m->rows[m->n_rows++] = r;
        p->bytes += bytes;
        return 0;
}

/* Adds the rows of a part that belong to a row. */
static int add_part(struct figures_page *p, size_t table, const void *row)
{
        const struct figure_rows *part = &p->table->parts[table - 1];
        char *rows = *(char *const *)(const void *)((const char *)row + part->rows_offset);
        size_t n = *(const size_t *)(const void *)((const char *)row + part->n_offset);
        int r = 0;

        for (size_t i = 0; r == 0 && i < n; i++)
                r = add_row(p, table, part->table, rows + i * part->table->size);
        return r;
}

/* Takes back what was added for a row that had no room. */
static void take_back(struct figures_page *p)
{
        for (size_t i = 1; i < p->n_tables; i++) {
                Kvlease__V1__AdminTable *m = p->tables[i];

                while (m->n_rows > 0 && m->rows[m->n_rows - 1]->of == p->tables[0]->n_rows)
                        m->n_rows--;
        }
}

int figures_page_add(struct figures_page *p, const void *row)
{
        int r = 0;

        for (size_t i = 1; r == 0 && i < p->n_tables; i++)
                r = add_part(p, i, row);
        if (r == 0)
                r = add_row(p, 0, p->table, (void *)row);
        if (r < 0)
                take_back(p);
        return r;
}

void figures_page_finish(struct figures_page *p, Kvlease__V1__AdminRowsReply *reply)
{
        reply->tables = p->tables;
        reply->n_tables = p->n_tables;
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* A table of a reply, and the column of each figure in it. */
struct reading {
        const Kvlease__V1__AdminTable *m; /* NULL: the reply has none */
        const struct figure_table *table;
        size_t *columns; /* of each figure; SIZE_MAX: the peer doesn't know it */
};

static size_t find_name(const char *name, char *const *names, size_t n)
{
        for (size_t i = 0; i < n; i++)
                if (strcmp(names[i], name) == 0)
                        return i;
        return SIZE_MAX;
}

static int reading_init(struct reading *r, const Kvlease__V1__AdminRowsReply *reply,
        const char *name, const struct figure_table *t, struct arena *a)
{
        *r = (struct reading){
                .table = t, .columns = arena_alloc(a, t->n_figures * sizeof(*r->columns))};
        for (size_t i = 0; !r->m && i < reply->n_tables; i++)
                if (strcmp(reply->tables[i]->name, name) == 0)
                        r->m = reply->tables[i];
        if (!r->columns)
                return -ENOMEM;
        for (size_t i = 0; r->m && i < t->n_figures; i++)
                r->columns[i] =
                        t->figures[i].is_text
                                ? find_name(t->figures[i].name, r->m->texts, r->m->n_texts)
                                : find_name(t->figures[i].name, r->m->numbers, r->m->n_numbers);
        return 0;
}

static bool is_none(const Kvlease__V1__AdminRow *m, size_t column)
{
        for (size_t i = 0; i < m->n_no_texts; i++)
                if (m->no_texts[i] == column)
                        return true;
        return false;
}

static int read_row(const struct reading *r, const Kvlease__V1__AdminRow *m, void *ret)
{
        if (m->n_numbers != r->m->n_numbers || m->n_texts != r->m->n_texts)
                return -EPROTO;
        figures_init(r->table, ret);
        for (size_t i = 0; i < r->table->n_figures; i++) {
                const struct figure *f = &r->table->figures[i];
                size_t column = r->columns[i];

                if (column == SIZE_MAX)
                        continue;
                if (!f->is_text)
                        *number_at(ret, f) = (uint64_t)m->numbers[column];
                else if (!f->may_be_none || !is_none(m, column))
                        *text_at(ret, f) = m->texts[column];
                else
                        *text_at(ret, f) = NULL;
        }
        return 0;
}

static int read_all(const struct reading *r, struct arena *a, char **ret)
{
        size_t n = r->m ? r->m->n_rows : 0;
        int e = 0;

        *ret = n < ARENA_BUDGET_BYTES / r->table->size ? arena_alloc(a, n * r->table->size) : NULL;
        if (!*ret)
                return -ENOMEM;
        for (size_t i = 0; e == 0 && i < n; i++)
                e = read_row(r, r->m->rows[i], *ret + i * r->table->size);
        return e;
}

/* Gives `n` rows their rows of a part, which are in the same order. */
static int read_part(const Kvlease__V1__AdminRowsReply *reply, const struct figure_rows *part,
        const struct figure_table *t, struct arena *a, char *rows, size_t n)
{
        struct reading r;
        char *own;
        size_t at = 0;
        int e = reading_init(&r, reply, part->name, part->table, a);

        if (e == 0)
                e = read_all(&r, a, &own);
        if (e < 0)
                return e;
        for (size_t i = 0; i < n; i++) {
                char *row = rows + i * t->size;
                size_t first = at;

                while (r.m && at < r.m->n_rows && r.m->rows[at]->of == i)
                        at++;
                *(char **)(void *)(row + part->rows_offset) = own + first * part->table->size;
                *(size_t *)(void *)(row + part->n_offset) = at - first;
        }
        return r.m && at < r.m->n_rows ? -EPROTO : 0;
}

int figures_read(const Kvlease__V1__AdminRowsReply *reply, const struct figure_table *t,
        struct arena *a, const void **ret_rows, size_t *ret_n)
{
        struct reading r;
        char *rows = NULL;
        int e = reading_init(&r, reply, t->name, t, a);

        if (e == 0)
                e = r.m ? read_all(&r, a, &rows) : -EPROTO;
        for (const struct figure_rows *part = t->parts; e == 0 && part->name; part++)
                e = read_part(reply, part, t, a, rows, r.m->n_rows);
        if (e < 0)
                return e;
        *ret_rows = rows;
        *ret_n = r.m->n_rows;
        return 0;
}
