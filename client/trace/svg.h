/* Plots as inline SVG: one pair of axes each, with lines or bars. The page (report-html.c) has the
 * colours and fonts; classes are s0, s1, ... of the series. */
#ifndef KVL_TRACE_SVG_H
#define KVL_TRACE_SVG_H

#include <stdbool.h>
#include <stdio.h>

struct axis {
        const char *title; /* with its unit */
        double min, max;   /* min < max; log: min > 0 */
        bool log;
        /* Formats a tick without the unit of the title. */
        char *(*label)(double value, char buf[32]);
        const double *ticks; /* borrowed; ticks outside are left out */
        unsigned n_ticks;
};

struct plot {
        FILE *to;
        struct axis x, y;
};

struct point {
        double x, y;
};

/* `id`: of the figure; `title`: for screen readers. */
void plot_begin(struct plot *p, const char *id, const char *title);
void plot_end(struct plot *p);

/* Draws a line through n points with a dot at each; hovering over one shows `name`, x and y. */
void plot_line(
        struct plot *p, unsigned series, const char *name, const struct point *points, unsigned n);

/* Draws a bar from x `from` to x `to`, as high as y. */
void plot_bar(struct plot *p, unsigned series, double from, double to, double y, const char *name);

/* Draws horizontal bars: row i of n, from 0 to x; `part` (0..1) of a bar's height. */
void plot_row(struct plot *p, unsigned series, unsigned i, unsigned n, double part, double x,
        const char *name);
void plot_row_label(struct plot *p, unsigned i, unsigned n, const char *text);

/* Makes a y axis from 0 for values to `max`, with at most AXIS_TICKS round ticks, in `ticks`. */
#define AXIS_TICKS 8
struct axis axis_linear(const char *title, double max, double ticks[AXIS_TICKS]);

char *label_number(double value, char buf[32]); /* 0.5, 20 */
char *label_tokens(double value, char buf[32]); /* 512, 4 k, 1 M */
char *label_time(double msec, char buf[32]);    /* 100 ms, 10 s, 1 h */

#endif
