#include "client/trace/svg.h"

#include <math.h>
#include <stdint.h>

#include "base/macros.h"
#include "client/trace/report.h"

/* Units of the viewBox: pixels if the page is wide enough. */
enum {
        WIDTH = 720,
        HEIGHT = 320,
        LEFT = 64,
        RIGHT = 20,
        TOP = 12,
        BOTTOM = 48,
};

#define PLOT_WIDTH  (WIDTH - LEFT - RIGHT)
#define PLOT_HEIGHT (HEIGHT - TOP - BOTTOM)

/* ---- scales ---------------------------------------------------------------------------------- */

static double part_of(const struct axis *a, double value)
{
        double part = a->log ? log(MAX(value, a->min) / a->min) / log(a->max / a->min)
                             : (value - a->min) / (a->max - a->min);

        return MIN(MAX(part, 0.0), 1.0);
}

static double at_x(const struct plot *p, double value)
{
        return LEFT + part_of(&p->x, value) * PLOT_WIDTH;
}

static double at_y(const struct plot *p, double value)
{
        return TOP + (1 - part_of(&p->y, value)) * PLOT_HEIGHT;
}

/* Returns 1, 2 or 5 times a power of ten, so that at most n of them make max. */
static double round_step(double max, unsigned n)
{
        double power = pow(10, floor(log10(max / n)));

        while (max > n * power) {
                if (max <= n * power * 2)
                        return power * 2;
                if (max <= n * power * 5)
                        return power * 5;
                power *= 10;
        }
        return power;
}

struct axis axis_linear(const char *title, double max, double ticks[AXIS_TICKS])
{
        double step = round_step(MAX(max, 1e-3), AXIS_TICKS - 2);
        struct axis a = {.title = title, .label = label_number, .ticks = ticks};

        while (a.max < max || a.n_ticks < 2) {
                a.max = step * a.n_ticks;
                ticks[a.n_ticks++] = a.max;
        }
        return a;
}

char *label_number(double value, char buf[32])
{
        if (value >= 1000)
                return report_count((uint64_t)(value + 0.5), buf);
        snprintf(buf, 32, "%g", value);
        return buf;
}

char *label_tokens(double value, char buf[32])
{
        if (value >= 1 << 20)
                snprintf(buf, 32, "%g M", value / (1 << 20));
        else if (value >= 1 << 10)
                snprintf(buf, 32, "%g k", value / (1 << 10));
        else
                snprintf(buf, 32, "%g", value);
        return buf;
}

char *label_time(double msec, char buf[32])
{
        static const struct {
                double msec;
                const char *unit;
        } units[] = {{86400e3, "d"}, {3600e3, "h"}, {60e3, "min"}, {1e3, "s"}, {1, "ms"}};
        size_t i = 0;

        while (i + 1 < ARRAY_SIZE(units) && msec < units[i].msec)
                i++;
        snprintf(buf, 32, "%g %s", msec / units[i].msec, units[i].unit);
        return buf;
}

/* ---- axes ------------------------------------------------------------------------------------ */

static void draw_x(const struct plot *p)
{
        char text[32];

        for (unsigned i = 0; i < p->x.n_ticks; i++) {
                double value = p->x.ticks[i], x = at_x(p, value);

                if (value < p->x.min || value > p->x.max)
                        continue;
                fprintf(p->to,
                        "<line class=\"tick\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>"
                        "<text class=\"label\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                        x, TOP + PLOT_HEIGHT, x, TOP + PLOT_HEIGHT + 5, x, TOP + PLOT_HEIGHT + 19,
                        p->x.label(value, text));
        }
        fprintf(p->to,
                "<line class=\"axis\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>"
                "<text class=\"title\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                LEFT, TOP + PLOT_HEIGHT, LEFT + PLOT_WIDTH, TOP + PLOT_HEIGHT,
                LEFT + PLOT_WIDTH / 2, HEIGHT - 8, p->x.title);
}

static void draw_y(const struct plot *p)
{
        char text[32];

        for (unsigned i = 0; i < p->y.n_ticks; i++) {
                double y = at_y(p, p->y.ticks[i]);

                fprintf(p->to,
                        "<line class=\"grid\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>"
                        "<text class=\"label\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                        LEFT, y, LEFT + PLOT_WIDTH, y, LEFT - 8, y + 4,
                        p->y.label(p->y.ticks[i], text));
        }
        if (p->y.title)
                fprintf(p->to,
                        "<text class=\"title\" transform=\"translate(14 %d) rotate(-90)\" text-anchor=\"middle\">%s</text>\n",
                        TOP + PLOT_HEIGHT / 2, p->y.title);
}

void plot_begin(struct plot *p, const char *id, const char *title)
{
        fprintf(p->to, "<svg id=\"%s\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n", id,
                WIDTH, HEIGHT, title);
        draw_y(p);
        draw_x(p);
}

void plot_end(struct plot *p)
{
        fputs("</svg>\n", p->to);
}

/* ---- marks ----------------------------------------------------------------------------------- */

void plot_line(
        struct plot *p, unsigned series, const char *name, const struct point *points, unsigned n)
{
        fprintf(p->to, "<polyline class=\"line s%u\" points=\"", series);
        for (unsigned i = 0; i < n; i++)
                fprintf(p->to, "%s%.1f,%.1f", i > 0 ? " " : "", at_x(p, points[i].x),
                        at_y(p, points[i].y));
        fputs("\"/>\n", p->to);
        for (unsigned i = 0; i < n; i++) {
                char x[32];

                fprintf(p->to,
                        "<circle class=\"dot s%u\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"><title>%s at %s: %.2f</title></circle>\n",
                        series, at_x(p, points[i].x), at_y(p, points[i].y), name,
                        p->x.label(points[i].x, x), points[i].y);
        }
}

static void rectangle(
        struct plot *p, unsigned series, double x, double y, double w, double h, const char *name)
{
        fprintf(p->to,
                "<rect class=\"bar s%u\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"><title>%s</title></rect>\n",
                series, x, y, MAX(w, 1.0), h, name);
}

void plot_bar(struct plot *p, unsigned series, double from, double to, double y, const char *name)
{
        double x = at_x(p, from), top = at_y(p, y);

        rectangle(p, series, x + 1, top, at_x(p, to) - x - 2, TOP + PLOT_HEIGHT - top, name);
}

/* Returns the y of a row of n: the text above, the bar below. */
static double row_y(unsigned i, unsigned n, double part)
{
        return TOP + (double)PLOT_HEIGHT / n * (i + part);
}

void plot_row(struct plot *p, unsigned series, unsigned i, unsigned n, double part, double x,
        const char *name)
{
        double bar = MIN((double)PLOT_HEIGHT / n * 0.4, 32.0);

        rectangle(p, series, LEFT, row_y(i, n, 0.55) + bar * (1 - part) / 2, at_x(p, x) - LEFT,
                bar * part, name);
}

void plot_row_label(struct plot *p, unsigned i, unsigned n, const char *text)
{
        fprintf(p->to, "<text class=\"row\" x=\"%d\" y=\"%.1f\">%s</text>\n", LEFT,
                row_y(i, n, 0.55) - 4, text);
}
