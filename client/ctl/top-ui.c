#include "client/ctl/top-ui.h"

#include <string.h>

#include "base/clock.h"
#include "base/macros.h"

const char *const top_help[] = {
        "t n c g   tenants, namespaces, clients, regions; Tab: the next one",
        "< >       sort by the column to the left, to the right; s: to the right",
        "r         the other way round",
        "/         only lines with a text in a name: Enter takes it, Esc clears it",
        "space     pause, and go on",
        "+ -       look less often, more often",
        "arrows    scroll lines and columns; Page Up, Page Down, Home, End",
        "h ?       this help",
        "q         end",
        "",
        "Rates (/S) are of the last interval. TOKEN are tokens of pages that were",
        "found, HIT and MISS pages, EVICT evicted pages. UP, HOST and DISK are pages",
        "that moved to the device, to host memory, to disk. LEASE are requests to",
        "kvleased; pages that a worker takes from those granted in advance don't",
        "count.",
        NULL,
};

void top_ui_init(struct top_ui *ui, enum top_view_id view, uint64_t interval_nsec)
{
        *ui = (struct top_ui){.view = view, .interval_nsec = interval_nsec};
        for (size_t v = 0; v < TOP_N_VIEWS; v++)
                ui->sort[v] = top_views[v].default_sort;
}

enum top_view_id top_find_view(const char *name)
{
        unsigned v = 0;

        while (v < TOP_N_VIEWS && strcmp(top_views[v].name, name) != 0)
                v++;
        return (enum top_view_id)v;
}

/* ---- typing a filter ------------------------------------------------------------------------- */

static void type(struct top_ui *ui, int key)
{
        size_t len = strlen(ui->filter);

        switch (key) {
        case TOP_KEY_ENTER:
                ui->is_typing = false;
                return;
        case TOP_KEY_ESCAPE:
                ui->is_typing = false;
                ui->filter[0] = '\0';
                break;
        case TOP_KEY_BACKSPACE:
                ui->filter[len ? len - 1 : 0] = '\0';
                break;
        default:
                /* Only models' names may have more than ASCII. */
                if (key < 0x20 || key > 0x7e || len + 1 >= sizeof(ui->filter))
                        return;
                ui->filter[len] = (char)key;
                ui->filter[len + 1] = '\0';
        }
        ui->first_row = 0;
}

/* ---- the keys -------------------------------------------------------------------------------- */

static enum top_effect choose_view(struct top_ui *ui, enum top_view_id v)
{
        if (v == ui->view)
                return TOP_DRAW;
        ui->view = v;
        ui->first_row = 0;
        ui->first_column = 0;
        return TOP_ASK_NOW;
}

static void choose_sort(struct top_ui *ui, int step)
{
        unsigned n = top_views[ui->view].n_columns, *column = &ui->sort[ui->view];

        *column = (unsigned)((int)(*column + n) + step) % n;
        ui->first_row = 0;
}

/* Moves the interval by one of 1, 2, 5, 10 and so on, or to the nearest on that side. */
static enum top_effect choose_interval(struct top_ui *ui, bool longer)
{
        static const uint64_t msec[] = {
                100, 200, 500, 1000, 2000, 5000, 10000, 30000, 60000, 300000, 900000, 3600000};
        size_t i = 0, last = ARRAY_SIZE(msec) - 1;

        if (longer) {
                while (i < last && msec[i] * NSEC_PER_MSEC <= ui->interval_nsec)
                        i++;
        } else {
                i = last;
                while (i > 0 && msec[i] * NSEC_PER_MSEC >= ui->interval_nsec)
                        i--;
        }
        ui->interval_nsec = msec[i] * NSEC_PER_MSEC;
        return TOP_TIMED;
}

static void scroll_up(size_t *at, size_t n)
{
        *at -= MIN(*at, n);
}

/* Returns true if it was one of these keys. */
static bool scroll(struct top_ui *ui, int key, size_t page)
{
        switch (key) {
        case TOP_KEY_UP:
                scroll_up(&ui->first_row, 1);
                return true;
        case TOP_KEY_PAGE_UP:
                scroll_up(&ui->first_row, page);
                return true;
        case TOP_KEY_HOME:
                ui->first_row = 0;
                return true;
        case TOP_KEY_DOWN:
                ui->first_row++;
                return true;
        case TOP_KEY_PAGE_DOWN:
                ui->first_row += page;
                return true;
        case TOP_KEY_END:
                ui->first_row = SIZE_MAX / 2;
                return true;
        case TOP_KEY_LEFT:
                ui->first_column -= ui->first_column > 0;
                return true;
        case TOP_KEY_RIGHT:
                ui->first_column++;
                return true;
        default:
                return false;
        }
}

static enum top_effect choose_by_key(struct top_ui *ui, int key)
{
        switch (key) {
        case 't':
                return choose_view(ui, TOP_TENANTS);
        case 'n':
                return choose_view(ui, TOP_NAMESPACES);
        case 'c':
                return choose_view(ui, TOP_CLIENTS);
        case 'g':
                return choose_view(ui, TOP_REGIONS);
        case '\t':
                return choose_view(ui, (ui->view + 1) % TOP_N_VIEWS);
        case '<':
                choose_sort(ui, -1);
                return TOP_DRAW;
        case '>':
        case 's':
                choose_sort(ui, 1);
                return TOP_DRAW;
        case 'r':
                ui->is_reversed[ui->view] = !ui->is_reversed[ui->view];
                return TOP_DRAW;
        case '/':
                ui->is_typing = true;
                return TOP_DRAW;
        case TOP_KEY_ESCAPE:
                ui->filter[0] = '\0';
                return TOP_DRAW;
        case ' ':
                ui->is_paused = !ui->is_paused;
                return TOP_TIMED;
        case '+':
                return choose_interval(ui, true);
        case '-':
                return choose_interval(ui, false);
        case 'h':
        case '?':
                ui->has_help = true;
                return TOP_DRAW;
        case 'q':
                return TOP_QUIT;
        default:
                return TOP_DRAW;
        }
}

enum top_effect top_ui_key(struct top_ui *ui, int key, size_t page)
{
        if (ui->is_typing) {
                type(ui, key);
                return TOP_DRAW;
        }
        /* Any key closes the help; keys for actions also act. */
        if (ui->has_help) {
                ui->has_help = false;
                if (key == 'h' || key == '?' || key == TOP_KEY_ESCAPE)
                        return TOP_DRAW;
        }
        return scroll(ui, key, page) ? TOP_DRAW : choose_by_key(ui, key);
}
