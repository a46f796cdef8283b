/* Figures on the wire: what one side writes the other reads, also one that is older, newer or
 * hostile. */
#include <errno.h>
#include <string.h>

#include "proto/figures.h"
#include "proto/frame.h"
#include "tests/unit/test-support.h"

/* Generated messages have char * where they only read. */
#pragma GCC diagnostic ignored "-Wdiscarded-qualifiers"

struct scene {
        struct arena arena;
        struct figures_page page;
        Kvlease__V1__AdminRowsReply reply;
};

static void begin(struct scene *s, const struct figure_table *t)
{
        assert_int_equal(arena_init(&s->arena, ARENA_BUDGET_BYTES), 0);
        assert_int_equal(figures_page_init(&s->page, t, &s->arena), 0);
        kvlease__v1__admin_rows_reply__init(&s->reply);
}

/* Packs and unpacks the reply, and reads it. */
static int read_back(struct scene *s, const struct figure_table *t, const void **ret, size_t *ret_n)
{
        size_t len;
        uint8_t *bytes;
        Kvlease__V1__AdminRowsReply *m;

        figures_page_finish(&s->page, &s->reply);
        len = kvlease__v1__admin_rows_reply__get_packed_size(&s->reply);
        bytes = arena_alloc(&s->arena, len);
        assert_non_null(bytes);
        kvlease__v1__admin_rows_reply__pack(&s->reply, bytes);
        m = kvlease__v1__admin_rows_reply__unpack(&s->arena.allocator, len, bytes);
        assert_non_null(m);
        return figures_read(m, t, &s->arena, ret, ret_n);
}

static void end(struct scene *s)
{
        arena_deinit(&s->arena);
}

static const struct figure_table *const tables[] = {
#define LIST(scope, ...) &figures_table_##scope,
#define LIST_END(...)
#include "proto/figures.def"
};

TEST(test_names_are_unique)
{
        for (size_t k = 0; k < ARRAY_SIZE(tables); k++)
                for (size_t i = 0; i < tables[k]->n_figures; i++)
                        for (size_t j = 0; j < i; j++)
                                assert_string_not_equal(
                                        tables[k]->figures[i].name, tables[k]->figures[j].name);
}

TEST(test_values)
{
        const struct figure_table *t = &figures_table_namespace;
        struct figures_namespace row;
        const struct figures_namespace *got;
        const void *rows;
        struct scene s;
        size_t n;

        begin(&s, t);
        figures_init(t, &row);
        row.name = "n";
        row.model = NULL;
        row.version = "";
        row.keys = UINT64_MAX - 1;
        row.disk.charged_bytes = FIGURE_NONE;
        row.prefetch_warm.window = 7;
        assert_int_equal(figures_page_add(&s.page, &row), 0);
        row.name = "second";
        assert_int_equal(figures_page_add(&s.page, &row), 0);
        assert_int_equal(read_back(&s, t, &rows, &n), 0);
        got = rows;
        assert_int_equal(n, 2);
        assert_string_equal(got[0].name, "n");
        assert_string_equal(got[1].name, "second");
        assert_null(got[0].model);
        assert_string_equal(got[0].version, "");
        assert_string_equal(got[0].tenant, "");
        assert_true(got[0].keys == UINT64_MAX - 1);
        assert_true(got[0].disk.charged_bytes == FIGURE_NONE);
        assert_int_equal(got[0].prefetch_warm.window, 7);
        assert_int_equal(got[0].hits, 0);
        end(&s);
}

TEST(test_rows_of_rows)
{
        const struct figure_table *t = &figures_table_exchange;
        struct figures_drop drops[] = {{"late", 3, 4}, {"gone", 5, 6}};
        struct figures_exchange row;
        const struct figures_exchange *got;
        const void *rows;
        struct scene s;
        size_t n;

        begin(&s, t);
        figures_init(t, &row);
        assert_int_equal(figures_page_add(&s.page, &row), 0);
        row.drops = drops;
        row.n_drops = 2;
        assert_int_equal(figures_page_add(&s.page, &row), 0);
        row.n_drops = 1;
        assert_int_equal(figures_page_add(&s.page, &row), 0);
        assert_int_equal(read_back(&s, t, &rows, &n), 0);
        got = rows;
        assert_int_equal(n, 3);
        assert_int_equal(got[0].n_drops, 0);
        assert_int_equal(got[1].n_drops, 2);
        assert_string_equal(got[1].drops[1].reason, "gone");
        assert_int_equal(got[1].drops[1].not_exported, 6);
        assert_int_equal(got[2].n_drops, 1);
        assert_string_equal(got[2].drops[0].reason, "late");
        end(&s);
}

/* Adds a row until the page is full. The reply fits into a frame, and a reader's arena holds what
 * comes of it. */
static void fill_page(const struct figure_table *t, const void *row, size_t min_rows)
{
        static uint8_t payload[FRAME_MAX_PAYLOAD];
        const void *rows, *m;
        struct arena arena;
        struct scene s;
        size_t n_added = 0, n, len;
        int r;

        begin(&s, t);
        while ((r = figures_page_add(&s.page, row)) == 0)
                n_added++;
        assert_int_equal(r, -ENOSPC);
        assert_true(n_added >= min_rows);
        figures_page_finish(&s.page, &s.reply);
        len = kvlease__v1__admin_rows_reply__get_packed_size(&s.reply);
        assert_in_range(len, 1, sizeof(payload));
        kvlease__v1__admin_rows_reply__pack(&s.reply, payload);
        end(&s);
        assert_int_equal(arena_init(&arena, ARENA_BUDGET_BYTES), 0);
        m = kvlease__v1__admin_rows_reply__unpack(&arena.allocator, len, payload);
        assert_non_null(m);
        assert_int_equal(figures_read(m, t, &arena, &rows, &n), 0);
        assert_int_equal(n, n_added);
        arena_deinit(&arena);
}

TEST(test_full_pages)
{
        struct figures_drop drops[11];
        struct figures_exchange exchange;
        struct figures_option option;
        _Alignas(max_align_t) char row[2048];
        char text[1000];

        for (size_t i = 0; i < ARRAY_SIZE(tables); i++) { /* few bytes, large structs */
                assert_true(tables[i]->size <= sizeof(row));
                figures_init(tables[i], row);
                fill_page(tables[i], row, 100);
        }
        figures_init(&figures_table_option, &option);
        memset(text, 'x', sizeof(text) - 1);
        text[sizeof(text) - 1] = '\0';
        option.value = option.default_value = text;
        fill_page(&figures_table_option, &option, 20);
        /* The last row has no room for all of its rows. */
        figures_init(&figures_table_exchange, &exchange);
        for (size_t i = 0; i < ARRAY_SIZE(drops); i++)
                drops[i] = (struct figures_drop){"called-off", i, i};
        exchange.drops = drops;
        exchange.n_drops = ARRAY_SIZE(drops);
        fill_page(&figures_table_exchange, &exchange, 50);
}

/* Columns in another order, one that this side doesn't know, and most of its own left out. */
TEST(test_other_version)
{
        char *numbers[] = {"sets", "of_tomorrow", "pages"}, *texts[] = {"victim"};
        char *values[] = {"not a column", "v", "not a column"};
        int64_t row_numbers[] = {1, 2, 3};
        Kvlease__V1__AdminRow row = KVLEASE__V1__ADMIN_ROW__INIT, *rows[] = {&row};
        Kvlease__V1__AdminTable table = KVLEASE__V1__ADMIN_TABLE__INIT, *of_reply[] = {&table};
        Kvlease__V1__AdminRowsReply reply = KVLEASE__V1__ADMIN_ROWS_REPLY__INIT;
        const struct figures_eviction *got;
        struct arena arena;
        const void *first;
        size_t n;

        assert_int_equal(arena_init(&arena, ARENA_BUDGET_BYTES), 0);
        table.name = "evictions";
        table.numbers = numbers;
        table.n_numbers = row.n_numbers = 3;
        table.texts = texts;
        table.n_texts = row.n_texts = 1;
        table.rows = rows;
        table.n_rows = reply.n_tables = 1;
        reply.tables = of_reply;
        row.numbers = row_numbers;
        row.texts = &values[1];
        assert_int_equal(figures_read(&reply, &figures_table_eviction, &arena, &first, &n), 0);
        got = first;
        assert_int_equal(n, 1);
        assert_string_equal(got->victim, "v");
        assert_string_equal(got->by, "");
        assert_int_equal(got->sets, 1);
        assert_int_equal(got->pages, 3);
        /* A text that must be there is there, whatever the peer says. */
        row.no_texts = (uint32_t[]){0};
        row.n_no_texts = 1;
        assert_int_equal(figures_read(&reply, &figures_table_eviction, &arena, &first, &n), 0);
        assert_non_null(((const struct figures_eviction *)first)->victim);
        row.n_numbers = 2;
        assert_int_equal(
                figures_read(&reply, &figures_table_eviction, &arena, &first, &n), -EPROTO);
        row.n_numbers = 3;
        row.n_texts = 0;
        assert_int_equal(
                figures_read(&reply, &figures_table_eviction, &arena, &first, &n), -EPROTO);
        assert_int_equal(figures_read(&reply, &figures_table_tenant, &arena, &first, &n), -EPROTO);
        arena_deinit(&arena);
}

/* Rows of rows that the list doesn't have, or in another order. */
TEST(test_hostile_parts)
{
        const struct figure_table *t = &figures_table_exchange;
        struct figures_drop drops[] = {{"late", 3, 4}, {"gone", 5, 6}};
        struct figures_exchange row;
        const void *rows;
        struct scene s;
        size_t n;

        begin(&s, t);
        figures_init(t, &row);
        row.drops = drops;
        row.n_drops = 2;
        assert_int_equal(figures_page_add(&s.page, &row), 0);
        s.page.tables[1]->rows[1]->of = 1;
        assert_int_equal(read_back(&s, t, &rows, &n), -EPROTO);
        s.page.tables[1]->rows[1]->of = 0;
        s.page.tables[1]->rows[0]->of = UINT32_MAX;
        assert_int_equal(read_back(&s, t, &rows, &n), -EPROTO);
        end(&s);
}
