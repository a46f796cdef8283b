/* Figures of tests as text: "name=value|name=value". */
#ifndef KVL_TESTS_FIGURE_TEXT_H
#define KVL_TESTS_FIGURE_TEXT_H

#include <string.h>

#include "base/parse.h"
#include "proto/figures.h"
#include "tests/unit/test-support.h"

/* Sets a figure; `value` is borrowed. */
static inline void set_figure(const struct figure *f, char *row, const char *value)
{
        uint64_t *number = (uint64_t *)(void *)(row + f->offset);

        if (f->is_text)
                *(const char **)(void *)(row + f->offset) = value;
        else if (strcmp(value, "none") == 0)
                *number = FIGURE_NONE;
        else
                assert_int_equal(parse_bytes(value, number), 0);
}

/* Sets the figures that the text names. `named` (may be NULL) gets true for each of them. Texts
 * live in the arena. */
static inline void set_figures(
        struct arena *a, const struct figure_table *t, const char *text, void *row, bool *named)
{
        char *rest = arena_strdup(a, text), *name, *value;

        assert_non_null(rest);
        while ((value = strsep(&rest, "|")) && *value) {
                size_t i = 0;

                name = strsep(&value, "=");
                while (i < t->n_figures && strcmp(t->figures[i].name, name) != 0)
                        i++;
                if (i == t->n_figures)
                        fail_msg("%s has no %s", t->name, name);
                set_figure(&t->figures[i], row, value);
                if (named)
                        named[i] = true;
        }
}

#endif
