/* The lists of proto/figures.def as tables of columns. */
#include "client/ctl/columns.h"

#include "proto/msg.h"

#define MSG_NONE 0 /* a list that comes with rows of another one */

#define COLUMN_TEXT_OR_NONE COLUMN_TEXT

/* Words behind a figure's kind. */
#define SHOWN(title)  .heading = (title),
#define DETAIL(title) .heading = (title), .detail = true,
#define KEY(name)     .key = (name),
#define SPARE(n)      .spare = (n),
#define SHORTEST(n)   .shortest = (n),
#define WHAT(text)    .what = (text),
#define WRAPS         .wraps = true,
#define BRIEF         .brief = true,
#define OPTIONAL      .optional = true,
#define UNLESS_0      .zero_is_none = true,
#define GAUGE(...)
#define COUNTER(...)
#define MORE_GAUGE(...)
#define MORE_COUNTER(...)
#define BY(...)
#define IN(...)
#define MILLI
#define SINGLE
#define OR_0
#define OR_INF

/* Columns call these with rows of any list. */
#define SHOW(function, ...)                                                                        \
        static void of_##function(const void *row, const struct show_format *f, struct value *ret) \
        {                                                                                          \
                function(row, f, ret);                                                             \
        }
#define JSON(key, function, ...)                      \
        static json_t *of_##function(const void *row) \
        {                                             \
                return function(row);                 \
        }
#include "proto/figures.def"

#define LIST(scope, plural, ...) static const struct column plural##_columns[] = {
#define LIST_END(scope, plural, message)                                                  \
        }                                                                                 \
        ;                                                                                 \
        const struct noun noun_##plural = {                                               \
                {#plural, plural##_columns, ARRAY_SIZE(plural##_columns)}, MSG_##message, \
                &figures_table_##scope};
#define FIGURE(name, what, ...) \
        {.key = #name, .kind = COLUMN_##what, .offset = offsetof(ROW, name), __VA_ARGS__},
#define PART(part, name, what, ...)                 \
        {.key = #part "_" #name,                    \
                .kind = COLUMN_##what,              \
                .offset = offsetof(ROW, part.name), \
                __VA_ARGS__},
#define SHOW(function, what, ...) {.kind = COLUMN_##what, .derive = of_##function, __VA_ARGS__},
#define JSON(name, function, ...) {.key = (name), .derive_json = of_##function, __VA_ARGS__},
#define GROUP(title)              {.group = (title)},
#include "proto/figures.def"
