/* kvleasectl top: figures from two samples, the rows that it shows, and its keys. */
#include <string.h>

#include "base/clock.h"
/* These declare fail(), which cmocka makes a macro. */
#include "client/ctl/top-text.h"
#include "client/ctl/top-ui.h"
#include "tests/unit/test-support.h"

enum { NAME, HITS, MISSES, RATIO, USED, N_COLUMNS };

static const struct top_column columns[] = {
        [NAME] = {"NAME", "name", TOP_TEXT},
        [HITS] = {"HIT/S", "hits_per_sec", TOP_RATE},
        [MISSES] = {"MISS/S", "misses_per_sec", TOP_RATE},
        [RATIO] = {"HIT%", "hit_ratio", TOP_RATIO},
        [USED] = {"USED", "used_bytes", TOP_BYTES},
};
static const struct top_view view = {"things", columns, N_COLUMNS, 1, HITS, NAME, HITS, MISSES};

static struct top_row *add(
        struct top_sample *s, const char *name, uint64_t hits, uint64_t misses, uint64_t used)
{
        struct top_row *row = top_sample_add(s, name);

        top_set_text(row, NAME, name);
        top_set_number(&view, row, HITS, hits);
        top_set_number(&view, row, MISSES, misses);
        top_set_number(&view, row, USED, used);
        return row;
}

static void begin(struct top_sample *s, double sec, uint64_t epoch)
{
        top_sample_init(s, &view, (uint64_t)(sec * NSEC_PER_SEC), epoch);
}

#define SCENE(fn, ...) TEST_ON(fn, struct top_sample, s, begin, top_sample_deinit, ##__VA_ARGS__)

static const struct top_cell *cell(const struct top_sample *s, const char *id, unsigned column)
{
        for (size_t i = 0; i < s->n_rows; i++)
                if (strcmp(s->rows[i].id, id) == 0)
                        return &s->rows[i].cells[column];
        fail_msg("there is no row %s", id);
        return NULL;
}

static void expect_rate(const struct top_sample *s, const char *id, unsigned column, double rate)
{
        assert_true(cell(s, id, column)->known);
        assert_true(cell(s, id, column)->rate == rate);
}

/* ---- rates ----------------------------------------------------------------------------------- */

TEST(test_rate_is_of_the_interval)
{
        struct top_sample before, now;

        begin(&before, 10, 1);
        add(&before, "b", 100, 50, 7);
        add(&before, "a", 0, 0, 7);
        top_rates(&before, NULL);
        assert_false(cell(&before, "a", HITS)->known);
        assert_true(cell(&before, "a", USED)->known);
        begin(&now, 12.5, 1);
        add(&now, "a", 0, 0, 7);
        add(&now, "b", 175, 75, 7);
        top_rates(&now, &before);
        top_ratios(&now);
        expect_rate(&now, "b", HITS, 30);
        expect_rate(&now, "b", MISSES, 10);
        expect_rate(&now, "b", RATIO, 0.75);
        expect_rate(&now, "a", HITS, 0);
        assert_false(cell(&now, "a", RATIO)->known); /* of nothing */
        top_sample_deinit(&before);
        top_sample_deinit(&now);
}

TEST(test_no_rates_over_a_restart)
{
        struct top_sample before, now, later;

        begin(&before, 1, 1);
        add(&before, "a", 1000, 0, 0);
        top_rates(&before, NULL);
        begin(&now, 2, 2);
        add(&now, "a", 2000, 0, 0);
        top_rates(&now, &before);
        assert_false(now.has_rates);
        assert_false(cell(&now, "a", HITS)->known);
        begin(&later, 3, 2);
        add(&later, "a", 2004, 0, 0);
        top_rates(&later, &now);
        expect_rate(&later, "a", HITS, 4);
        /* No time passed: no rate. */
        top_rates(&now, &later);
        assert_false(now.has_rates);
        top_sample_deinit(&before);
        top_sample_deinit(&now);
        top_sample_deinit(&later);
}

TEST(test_sums)
{
        static const unsigned both[] = {HITS, MISSES};
        struct top_sample parts_before, parts, sums;

        begin(&parts_before, 1, 1);
        top_rates(&parts_before, NULL);
        begin(&parts, 2, 1);
        top_set_text(add(&parts, "x/1", 1, 2, 0), NAME, "x");
        top_set_text(add(&parts, "x/2", 10, 20, 0), NAME, "x");
        top_set_text(add(&parts, "gone/1", 100, 200, 0), NAME, "gone");
        top_rates(&parts, &parts_before);
        begin(&sums, 2, 1);
        add(&sums, "x", 0, 0, 0);
        add(&sums, "y", 0, 0, 0);
        top_rates(&sums, NULL);
        top_add_rates(&sums, both, &parts, both, ARRAY_SIZE(both), NAME);
        top_ratios(&sums);
        expect_rate(&sums, "x", HITS, 11);
        expect_rate(&sums, "x", MISSES, 22);
        expect_rate(&sums, "x", RATIO, 11.0 / 33);
        expect_rate(&sums, "y", HITS, 0);
        top_sample_deinit(&parts_before);
        top_sample_deinit(&parts);
        top_sample_deinit(&sums);
}

/* ---- rows that are shown --------------------------------------------------------------------- */

static void expect_order(
        const struct top_sample *s, const struct top_order *order, const char *expected)
{
        const struct top_row *rows[8];
        char names[64] = "";
        size_t n = top_select(s, order, rows);

        for (size_t i = 0; i < n; i++)
                strcat(strcat(names, i ? " " : ""), rows[i]->id);
        assert_string_equal(names, expected);
}

SCENE(test_order_and_filter, 1, 1)
{
        add(s, "beta", 0, 0, 20);
        add(s, "alpha", 0, 0, 10);
        add(s, "delta", 0, 0, UINT64_MAX); /* no limit */
        add(s, "gamma", 0, 0, 20);
        top_rates(s, NULL);
        expect_order(s, &(struct top_order){USED}, "beta gamma alpha delta");
        expect_order(s, &(struct top_order){USED, true}, "alpha beta gamma delta");
        expect_order(s, &(struct top_order){NAME}, "alpha beta delta gamma");
        expect_order(s, &(struct top_order){NAME, true}, "gamma delta beta alpha");
        expect_order(s, &(struct top_order){HITS}, "alpha beta delta gamma"); /* none is known */
        expect_order(s, &(struct top_order){NAME, .filter = "LT"}, "delta");
        expect_order(s, &(struct top_order){NAME, .filter = "x"}, "");
        expect_order(s, &(struct top_order){NAME, .tenant = "beta"}, "beta");
        expect_order(s, &(struct top_order){NAME, .tenant = "beta", .filter = "l"}, "");
}

TEST(test_columns_by_name)
{
        assert_int_equal(top_find_column(&view, "hit%"), RATIO);
        assert_int_equal(top_find_column(&view, "Used"), USED);
        assert_int_equal(top_find_column(&view, "hit"), N_COLUMNS);
        for (size_t v = 0; v < TOP_N_VIEWS; v++) {
                assert_int_equal(top_find_view(top_views[v].name), v);
                assert_true(top_views[v].default_sort < top_views[v].n_columns);
                assert_true(top_views[v].n_names < top_views[v].n_columns);
                assert_string_equal(top_views[v].columns[top_views[v].tenant].heading, "TENANT");
        }
        assert_int_equal(top_find_view("things"), TOP_N_VIEWS);
}

/* Names come from clients. */
SCENE(test_text_is_printable, 1, 1)
{
        struct show_format f = {0};
        const struct top_row *row;
        struct top_table t;

        row = add(s, "a\x1b[2J\xff", 0, 0, 2048);
        top_rates(s, NULL);
        top_table_init(&t, &view, &f, &row, 1);
        assert_string_equal(t.cells[NAME], "a\\x1b[2J\\xff");
        assert_string_equal(t.cells[USED], "2 KiB");
        assert_string_equal(t.cells[HITS], "-");
        assert_int_equal(t.widths[NAME], strlen("a\\x1b[2J\\xff"));
        assert_int_equal(t.widths[USED], strlen("2 KiB"));
        top_table_deinit(&t);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static enum top_effect press(struct top_ui *ui, const char *keys)
{
        enum top_effect last = TOP_DRAW;

        for (; *keys; keys++)
                last = top_ui_key(ui, *keys, 10);
        return last;
}

TEST(test_views_and_sort)
{
        struct top_ui ui;

        top_ui_init(&ui, TOP_TENANTS, NSEC_PER_SEC);
        assert_int_equal(ui.sort[TOP_TENANTS], top_views[TOP_TENANTS].default_sort);
        assert_int_equal(press(&ui, "n"), TOP_ASK_NOW);
        assert_int_equal(ui.view, TOP_NAMESPACES);
        assert_int_equal(press(&ui, "n"), TOP_DRAW); /* it is that one */
        ui.sort[TOP_NAMESPACES] = 0;
        press(&ui, "<");
        assert_int_equal(ui.sort[TOP_NAMESPACES], top_views[TOP_NAMESPACES].n_columns - 1);
        press(&ui, "s>r");
        assert_int_equal(ui.sort[TOP_NAMESPACES], 1);
        assert_true(ui.is_reversed[TOP_NAMESPACES]);
        assert_int_equal(press(&ui, "g\t"), TOP_ASK_NOW);
        assert_int_equal(ui.view, TOP_TENANTS); /* after the last one */
        assert_false(ui.is_reversed[TOP_TENANTS]);
        assert_int_equal(press(&ui, "c"), TOP_ASK_NOW);
        assert_int_equal(press(&ui, "\x01z"), TOP_DRAW);
        assert_int_equal(press(&ui, "q"), TOP_QUIT);
}

TEST(test_filter_is_typed)
{
        struct top_ui ui;

        top_ui_init(&ui, TOP_TENANTS, NSEC_PER_SEC);
        assert_int_equal(press(&ui, "/qn"), TOP_DRAW); /* letters, and no keys */
        assert_int_equal(ui.view, TOP_TENANTS);
        assert_string_equal(ui.filter, "qn");
        top_ui_key(&ui, TOP_KEY_BACKSPACE, 10);
        assert_string_equal(ui.filter, "q");
        top_ui_key(&ui, 0x7f, 10); /* unprintable */
        top_ui_key(&ui, TOP_KEY_UP, 10);
        assert_string_equal(ui.filter, "q");
        top_ui_key(&ui, TOP_KEY_ENTER, 10);
        assert_false(ui.is_typing);
        assert_string_equal(ui.filter, "q");
        press(&ui, "/");
        for (int i = 0; i < 2 * TOP_FILTER_MAX; i++)
                press(&ui, "x");
        assert_int_equal(strlen(ui.filter), TOP_FILTER_MAX - 1);
        top_ui_key(&ui, TOP_KEY_ESCAPE, 10);
        assert_string_equal(ui.filter, "");
        press(&ui, "/");
        top_ui_key(&ui, TOP_KEY_BACKSPACE, 10);
        top_ui_key(&ui, TOP_KEY_ENTER, 10);
        assert_string_equal(ui.filter, "");
}

TEST(test_interval_and_pause)
{
        struct top_ui ui;

        top_ui_init(&ui, TOP_TENANTS, 700 * NSEC_PER_MSEC);
        assert_int_equal(press(&ui, "+"), TOP_TIMED);
        assert_int_equal(ui.interval_nsec, NSEC_PER_SEC);
        press(&ui, "-");
        assert_int_equal(ui.interval_nsec, NSEC_PER_SEC / 2);
        press(&ui, "-----");
        assert_int_equal(ui.interval_nsec, TOP_MIN_INTERVAL_NSEC);
        press(&ui, "+++++++++++++++");
        assert_int_equal(ui.interval_nsec, TOP_MAX_INTERVAL_NSEC);
        assert_int_equal(press(&ui, " "), TOP_TIMED);
        assert_true(ui.is_paused);
        press(&ui, " ");
        assert_false(ui.is_paused);
}

TEST(test_help_and_scrolling)
{
        struct top_ui ui;

        top_ui_init(&ui, TOP_TENANTS, NSEC_PER_SEC);
        press(&ui, "hh");
        assert_false(ui.has_help);
        assert_int_equal(press(&ui, "?q"), TOP_QUIT);
        top_ui_key(&ui, TOP_KEY_PAGE_DOWN, 10);
        top_ui_key(&ui, TOP_KEY_DOWN, 10);
        assert_int_equal(ui.first_row, 11);
        top_ui_key(&ui, TOP_KEY_UP, 10);
        top_ui_key(&ui, TOP_KEY_PAGE_UP, 20);
        assert_int_equal(ui.first_row, 0);
        top_ui_key(&ui, TOP_KEY_UP, 10);
        assert_int_equal(ui.first_row, 0);
        top_ui_key(&ui, TOP_KEY_LEFT, 10);
        assert_int_equal(ui.first_column, 0);
        top_ui_key(&ui, TOP_KEY_RIGHT, 10);
        top_ui_key(&ui, TOP_KEY_END, 10);
        assert_int_equal(ui.first_column, 1);
        assert_true(ui.first_row > 1000000); /* the screen bounds it */
        press(&ui, "n");
        assert_int_equal(ui.first_row + ui.first_column, 0);
}
