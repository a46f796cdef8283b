/*
 * The terminal of kvleasectl top. While it is open the terminal isn't as it was: top_screen_close()
 * restores it, and so does the end of the process by exit(). One at a time.
 */
#ifndef KVL_CTL_TOP_SCREEN_H
#define KVL_CTL_TOP_SCREEN_H

#include "client/ctl/top-ask.h"
#include "client/ctl/top-ui.h"

/* CTL_OK; CTL_USAGE: it is no terminal, or one that isn't known, printed. */
int top_screen_open(void);
void top_screen_close(void);

/* The terminal has another size now. */
void top_screen_resize(void);

/* enum top_key or a character; -1: none is there. */
int top_screen_key(void);

struct top_shown {
        const struct top_look *look;
        const struct show_format *format;
        const char *tenant;  /* NULL: all */
        const char *trouble; /* a sentence instead of the last line; NULL: none */
};

/* Draws all of it; bounds what is scrolled. */
void top_screen_draw(struct top_ui *ui, const struct top_shown *shown);

/* Lines of a page of rows, as drawn last. */
size_t top_screen_page(void);

#endif
