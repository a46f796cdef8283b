/* The choices of the user of kvleasectl top, and the effects of keys. Pure: keys are numbers, which
 * the screen makes from the terminal's input. */
#ifndef KVL_CTL_TOP_UI_H
#define KVL_CTL_TOP_UI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/ctl/top-view.h"

#define TOP_FILTER_MAX        64
#define TOP_MIN_INTERVAL_NSEC (NSEC_PER_SEC / 10)
#define TOP_MAX_INTERVAL_NSEC (3600 * NSEC_PER_SEC)

/* Beyond all characters. */
enum top_key {
        TOP_KEY_UP = 0x1000,
        TOP_KEY_DOWN,
        TOP_KEY_LEFT,
        TOP_KEY_RIGHT,
        TOP_KEY_PAGE_UP,
        TOP_KEY_PAGE_DOWN,
        TOP_KEY_HOME,
        TOP_KEY_END,
        TOP_KEY_ENTER,
        TOP_KEY_ESCAPE,
        TOP_KEY_BACKSPACE,
};

struct top_ui {
        enum top_view_id view;
        unsigned sort[TOP_N_VIEWS]; /* column of each view */
        bool is_reversed[TOP_N_VIEWS];
        char filter[TOP_FILTER_MAX]; /* "": all */
        bool is_typing;              /* the filter is being typed */
        bool has_help, is_paused;
        uint64_t interval_nsec;
        /* Scroll positions; first_column counts columns after the names. The screen limits both. */
        size_t first_row;
        unsigned first_column;
};

enum top_effect {
        TOP_DRAW,    /* the display may have changed */
        TOP_ASK_NOW, /* another view: ask the daemon */
        TOP_TIMED,   /* the interval or the pause changed */
        TOP_QUIT,
};

void top_ui_init(struct top_ui *ui, enum top_view_id view, uint64_t interval_nsec);

/* page: lines of a page, for scrolling. Unknown keys do nothing. */
enum top_effect top_ui_key(struct top_ui *ui, int key, size_t page);

/* Lines of the help; ends with NULL. */
extern const char *const top_help[];

/* Returns the view by its name; TOP_N_VIEWS: none. */
enum top_view_id top_find_view(const char *name);

#endif
