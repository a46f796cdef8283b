/*
 * Plots as inline SVG: one pair of axes each, lines or bars on it. Colours and fonts are the page's
 * (report-html.c); classes are s0, s1, ... of the series.
 */
#ifndef KVL_TRACE_SVG_H
#define KVL_TRACE_SVG_H

#include <stdbool.h>
#include <stdio.h>

struct axis {
        const char *title; /* with its unit */
        double min, max;   /* min < max; log: min > 0 */
        bool log;
        /* Text of a tick: what stands there, without the unit of the title. */
        char *(*label)(double value, char buf[32]);
        const double *ticks; /* borrowed; those outside are left out */
        unsigned n_ticks;
};

struct plot {
        FILE *to;
        struct axis x, y;
};

struct point {
        double x, y;
};

/* `id`: of the figure; `title`: for who can't see it. */
void plot_begin(struct plot *p, const char *id, const char *title);
void plot_end(struct plot *p);

/* A line through n points with a dot at each; hovering over one says `name`, x and y. */
void plot_line(
        struct plot *p, unsigned series, const char *name, const struct point *points, unsigned n);

/* A bar from x `from` to x `to`, as high as y. */
void plot_bar(struct plot *p, unsigned series, double from, double to, double y, const char *name);

/* Bars that lie, one below the other: row i of n, from 0 to x; `part` (0..1) of a bar's height. */
void plot_row(struct plot *p, unsigned series, unsigned i, unsigned n, double part, double x,
        const char *name);
void plot_row_label(struct plot *p, unsigned i, unsigned n, const char *text);

/* A y axis from 0 for values to `max`, with round ticks; at most AXIS_TICKS of them, in ticks. */
#define AXIS_TICKS 8
struct axis axis_linear(const char *title, double max, double ticks[AXIS_TICKS]);

char *label_number(double value, char buf[32]); /* 0.5, 20 */
char *label_tokens(double value, char buf[32]); /* 512, 4 k, 1 M */
char *label_time(double msec, char buf[32]);    /* 100 ms, 10 s, 1 h */

#endif
