#include "client/ctl/top-screen.h"

#include <curses.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "client/ctl/ctl.h"
#include "client/ctl/width.h"
#include "client/ctl/top-text.h"

/* Least useful size: names and a rate, and three rows. */
#define MIN_COLUMNS 40
#define MIN_LINES   10

#define HEAD_INDENT 8 /* as wide as "memory  " */

#define PAIR_TROUBLE 1

static SCREEN *screen; /* NULL: not open */
static bool has_colour;
static size_t page_lines = 1;

/* ---- the terminal ---------------------------------------------------------------------------- */

static void use_colours(void)
{
        const char *no_color = getenv("NO_COLOR"); /* https://no-color.org */

        has_colour = !(no_color && no_color[0]) && has_colors() && start_color() == OK &&
                     use_default_colors() == OK && init_pair(PAIR_TROUBLE, COLOR_RED, -1) == OK;
}

int top_screen_open(void)
{
        static bool is_registered;
        const char *term = getenv("TERM");

        if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
                return fail(CTL_USAGE,
                        "top needs a terminal for its screen and its keys: --batch prints text");
        set_escdelay(25); /* ms, until Esc is a key and not a sequence's start. Not tuned */
        screen = newterm(NULL, stdout, stdin);
        if (!screen)
                return fail(CTL_USAGE,
                        "the terminal '%s' isn't known: set TERM, or --batch prints text",
                        term ? term : "");
        set_term(screen);
        if (!is_registered && atexit(top_screen_close) == 0)
                is_registered = true; /* exit() is called if memory runs out */
        use_colours();
        cbreak();
        noecho();
        nonl();
        keypad(stdscr, TRUE);
        nodelay(stdscr, TRUE);
        curs_set(0);
        return CTL_OK;
}

void top_screen_close(void)
{
        if (!screen)
                return;
        endwin();
        delscreen(screen);
        screen = NULL;
}

void top_screen_resize(void)
{
        struct winsize size;

        if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0)
                resizeterm(size.ws_row, size.ws_col);
}

int top_screen_key(void)
{
        static const struct {
                int curses, key;
        } keys[] = {
                {KEY_UP, TOP_KEY_UP},
                {KEY_DOWN, TOP_KEY_DOWN},
                {KEY_LEFT, TOP_KEY_LEFT},
                {KEY_RIGHT, TOP_KEY_RIGHT},
                {KEY_PPAGE, TOP_KEY_PAGE_UP},
                {KEY_NPAGE, TOP_KEY_PAGE_DOWN},
                {KEY_HOME, TOP_KEY_HOME},
                {KEY_END, TOP_KEY_END},
                {KEY_ENTER, TOP_KEY_ENTER},
                {'\r', TOP_KEY_ENTER},
                {'\n', TOP_KEY_ENTER},
                {27, TOP_KEY_ESCAPE},
                {KEY_BACKSPACE, TOP_KEY_BACKSPACE},
                {0x7f, TOP_KEY_BACKSPACE},
                {'\b', TOP_KEY_BACKSPACE},
        };
        int c = getch();

        if (c == ERR)
                return -1;
        for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
                if (keys[i].curses == c)
                        return keys[i].key;
        return c < 0x100 ? c : 0; /* another key of curses: ignored */
}

size_t top_screen_page(void)
{
        return page_lines;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void put_line(int y, const char *text)
{
        mvaddnstr(y, 0, text, COLS);
}

/* Writes from line y on, wrapped, but not beyond y_end: with little room rows matter more. `taken`:
 * columns at the right of the first line. Further lines are indented. Returns the line after it. */
static int put_wrapped(int y, int y_end, const char *text, size_t taken)
{
        for (size_t indent = 0; *text && y < y_end; indent = HEAD_INDENT, taken = 0) {
                size_t room = minus_u64((size_t)COLS, indent + taken);
                const char *next;
                size_t len = text_line(text, MAX(room, (size_t)1), &next);

                mvaddnstr(y++, (int)indent, text, (int)len);
                text = next;
        }
        return y;
}

/* Draws a bar of the whole width. */
static void put_bar(int y, const char *text, attr_t attributes)
{
        attron(attributes);
        mvhline(y, 0, ' ', COLS);
        put_line(y, text);
        attroff(attributes);
}

static void draw_too_small(void)
{
        char text[96];

        snprintf(text, sizeof(text), "The terminal has %d x %d; top needs %d x %d.", COLS, LINES,
                MIN_COLUMNS, MIN_LINES);
        put_line(0, text);
}

static void draw_help(void)
{
        for (int y = 0; top_help[y] && y < LINES - 1; y++)
                put_line(y, top_help[y]);
        put_bar(LINES - 1, "any key: back", A_REVERSE);
}

/* Draws the head. Returns the first free line. */
static int draw_head(const struct top_ui *ui, const struct top_shown *shown)
{
        char *lines[TOP_TEXT_HEAD_LINES], right[32];
        int y = 0, x;

        snprintf(right, sizeof(right), " %s %gs", ui->is_paused ? "paused," : "every",
                (double)ui->interval_nsec / NSEC_PER_SEC);
        top_head(shown->look, shown->format, lines);
        for (size_t i = 0; i < TOP_TEXT_HEAD_LINES; i++) {
                if (lines[i][0])
                        y = put_wrapped(y, LINES - 5, lines[i], y == 0 ? strlen(right) : 0);
                free(lines[i]);
        }
        x = COLS - (int)strlen(right);
        if (x > 0)
                mvaddstr(0, x, right);
        return y;
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Whether the column is drawn: names, and those from first_column on. */
static bool is_drawn(const struct top_ui *ui, const struct top_view *v, unsigned column)
{
        return column < v->n_names || column >= v->n_names + ui->first_column;
}

/* Draws a cell on an empty place. */
static void draw_cell(int y, int x, int width, bool is_left, const char *text)
{
        int len = (int)text_prefix(text, (size_t)width);
        int columns = (int)MIN(text_columns(text), (size_t)width);

        mvaddnstr(y, is_left ? x : x + width - columns, text, len);
}

/* Draws one line of cells, in the columns that fit. */
static void draw_cells(int y, const struct top_ui *ui, const struct top_table *t,
        const char *(*text)(const void *data, unsigned column), const void *data)
{
        const struct top_view *v = t->view;
        int x = 0;

        for (unsigned c = 0; c < v->n_columns; c++) {
                int width = (int)t->widths[c];

                if (!is_drawn(ui, v, c))
                        continue;
                /* Names are cut rather than left out. */
                if (x >= COLS || (c >= v->n_names && x + width > COLS))
                        break;
                width = MIN(width, COLS - x);
                draw_cell(y, x, width, top_is_left(v, c), text(data, c));
                x += width + 2;
        }
}

static const char *heading_text(const void *data, unsigned column)
{
        return ((const struct top_view *)data)->columns[column].heading;
}

static const char *cell_of_row(const void *data, unsigned column)
{
        return ((char *const *)data)[column];
}

static void draw_table(struct top_ui *ui, const struct top_table *t, int y)
{
        const struct top_view *v = t->view;
        size_t room = (size_t)MAX(LINES - y - 2, 1);

        page_lines = room;
        ui->first_row = MIN(ui->first_row, t->n_rows > room ? t->n_rows - room : 0);
        ui->first_column = MIN(ui->first_column, v->n_columns - v->n_names - 1);
        put_bar(y, "", A_REVERSE);
        attron(A_REVERSE);
        draw_cells(y, ui, t, heading_text, v);
        attroff(A_REVERSE);
        for (size_t i = 0; i < room && ui->first_row + i < t->n_rows; i++)
                draw_cells(y + 1 + (int)i, ui, t, cell_of_row,
                        t->cells + (ui->first_row + i) * v->n_columns);
}

/* Draws the choices, and the number of rows shown of all. */
static void draw_foot(const struct top_ui *ui, const struct top_shown *shown, size_t n_rows)
{
        const struct top_view *v = &top_views[ui->view];
        char text[512];
        int n;

        if (ui->is_typing) {
                snprintf(text, sizeof(text), "filter: %s_", ui->filter);
                put_bar(LINES - 1, text, A_BOLD);
                return;
        }
        if (shown->trouble) {
                put_bar(LINES - 1, shown->trouble,
                        A_BOLD | (has_colour ? (attr_t)COLOR_PAIR(PAIR_TROUBLE) : 0));
                return;
        }
        n = snprintf(text, sizeof(text), "%zu %s by %s%s", n_rows, v->name,
                v->columns[ui->sort[ui->view]].heading,
                ui->is_reversed[ui->view] ? " reversed" : "");
        if (ui->filter[0])
                n += snprintf(text + n, sizeof(text) - (size_t)n, ", filter '%s'", ui->filter);
        snprintf(text + n, sizeof(text) - (size_t)n,
                "   t n c g: views  < > r: sort  /: filter  h: help  q: end");
        put_bar(LINES - 1, text, A_DIM);
}

void top_screen_draw(struct top_ui *ui, const struct top_shown *shown)
{
        const struct top_sample *s = &shown->look->views[ui->view];
        struct top_order order = {ui->sort[ui->view], ui->is_reversed[ui->view], shown->tenant,
                ui->filter[0] ? ui->filter : NULL};
        const struct top_row **rows;
        struct top_table table;
        size_t n_rows = 0;

        erase();
        if (COLS < MIN_COLUMNS || LINES < MIN_LINES) {
                draw_too_small();
        } else if (ui->has_help) {
                draw_help();
        } else {
                rows = need(calloc(s->n_rows + 1, sizeof(struct top_row *)));
                if (shown->look->has[ui->view])
                        n_rows = top_select(s, &order, rows);
                top_table_init(&table, &top_views[ui->view], shown->format, rows, n_rows);
                draw_table(ui, &table, draw_head(ui, shown));
                draw_foot(ui, shown, n_rows);
                top_table_deinit(&table);
                free(rows);
        }
        refresh();
}
