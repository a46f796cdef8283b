/*
 * What somebody at kvleasectl top has chosen, and what keys change of it. Pure: keys are numbers,
 * the screen makes them out of what the terminal sends.
 */
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
        bool is_typing;              /* the filter */
        bool has_help, is_paused;
        uint64_t interval_nsec;
        /* Of what is scrolled; first_column counts those that aren't names. The screen bounds both.
         */
        size_t first_row;
        unsigned first_column;
};

enum top_effect {
        TOP_DRAW,    /* it may look different now */
        TOP_ASK_NOW, /* another view, for which the daemon is to be asked */
        TOP_TIMED,   /* another interval, or no pause any more */
        TOP_QUIT,
};

void top_ui_init(struct top_ui *ui, enum top_view_id view, uint64_t interval_nsec);

/* page: lines of a page, for scrolling by one. Keys that mean nothing do nothing. */
enum top_effect top_ui_key(struct top_ui *ui, int key, size_t page);

/* What the help says, a line each; ends with NULL. */
extern const char *const top_help[];

/* View by its name; TOP_N_VIEWS where there is none. */
enum top_view_id top_find_view(const char *name);

#endif
