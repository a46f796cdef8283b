/* The terminal of kvleasectl top. Opening changes the terminal; top_screen_close() restores it, as
 * does exit(). One at a time. */
#ifndef KVL_CTL_TOP_SCREEN_H
#define KVL_CTL_TOP_SCREEN_H

#include "client/ctl/top-ask.h"
#include "client/ctl/top-ui.h"

/* Returns CTL_OK; CTL_USAGE: no terminal, or an unknown one, printed. */
int top_screen_open(void);
void top_screen_close(void);

/* The terminal's size has changed. */
void top_screen_resize(void);

/* Returns enum top_key or a character; -1: none. */
int top_screen_key(void);

struct top_shown {
        const struct top_look *look;
        const struct show_format *format;
        const char *tenant;  /* NULL: all */
        const char *trouble; /* a sentence instead of the last line; NULL: none */
};

/* Draws all; limits the scroll positions. */
void top_screen_draw(struct top_ui *ui, const struct top_shown *shown);

/* Returns the lines of a page of rows, as last drawn. */
size_t top_screen_page(void);

#endif
