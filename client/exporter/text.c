#include "client/exporter/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"

#define FIRST_SIZE 4096 /* bytes; doubles. Not tuned */

void text_init(struct text *t, enum text_format format)
{
        *t = (struct text){.format = format};
}

void text_deinit(struct text *t)
{
        free(TAKE(t->data));
}

const char *text_content_type(enum text_format format)
{
        return format == TEXT_OPENMETRICS
                       ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                       : "text/plain; version=0.0.4; charset=utf-8";
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Makes room for `more` bytes and a NUL. */
static bool reserve_bytes(struct text *t, size_t more)
{
        size_t size = t->size ? t->size : FIRST_SIZE;
        char *data;

        while (!t->failed && size < t->len + more + 1)
                size *= 2;
        if (t->failed || size == t->size)
                return !t->failed;
        data = realloc(t->data, size);
        t->failed = !data;
        if (!data)
                return false;
        t->data = data;
        t->size = size;
        return true;
}

void text_bytes(struct text *t, const char *bytes, size_t len)
{
        if (!reserve_bytes(t, len))
                return;
        memcpy(t->data + t->len, bytes, len);
        t->len += len;
        t->data[t->len] = '\0';
}

static void puts_to(struct text *t, const char *s)
{
        text_bytes(t, s, strlen(s));
}

void text_printf(struct text *t, const char *format, ...)
{
        _cleanup_free_ char *s = NULL;
        va_list args;
        int n;

        va_start(args, format);
        n = vasprintf(&s, format, args);
        va_end(args);
        if (n < 0) {
                s = NULL; /* vasprintf leaves it undefined */
                t->failed = true;
                return;
        }
        text_bytes(t, s, (size_t)n);
}

/* ---- UTF-8 ----------------------------------------------------------------------------------- */

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* Writes each character, or its replacement by `escape` (NULL: none). */
static void put_escaped(struct text *t, const char *value, const char *(*escape)(char c))
{
        const unsigned char *s = (const unsigned char *)value;

        while (*s) {
                size_t len = utf8_char_len((const char *)s, 4);
                const char *other = escape((char)*s);

                if (other)
                        puts_to(t, other);
                else if (len == 0 || *s < 0x20 || *s == 0x7f)
                        puts_to(t, REPLACEMENT);
                else
                        text_bytes(t, (const char *)s, len);
                s += len ? len : 1;
        }
}

static const char *escape_label(char c)
{
        switch (c) {
        case '\\':
                return "\\\\";
        case '"':
                return "\\\"";
        case '\n':
                return "\\n";
        default:
                return NULL;
        }
}

static const char *escape_html(char c)
{
        switch (c) {
        case '&':
                return "&amp;";
        case '<':
                return "&lt;";
        case '>':
                return "&gt;";
        case '"':
                return "&quot;";
        case '\'':
                return "&#39;";
        default:
                return NULL;
        }
}

static const char *escape_json(char c)
{
        return c == '"' ? "\\\"" : c == '\\' ? "\\\\" : NULL;
}

void text_json(struct text *t, const char *value)
{
        puts_to(t, "\"");
        put_escaped(t, value, escape_json);
        puts_to(t, "\"");
}

void text_html(struct text *t, const char *value)
{
        put_escaped(t, value, escape_html);
}

/* ---- families and samples -------------------------------------------------------------------- */

/* OpenMetrics requires the unit that a name ends in. */
static void put_unit(struct text *t)
{
        static const char *const units[] = {"bytes", "seconds", "ratio"};
        const char *name = t->name;
        size_t len = strlen(name);

        for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
                size_t unit_len = strlen(units[i]);

                if (len > unit_len && name[len - unit_len - 1] == '_' &&
                        strcmp(name + len - unit_len, units[i]) == 0)
                        text_printf(t, "# UNIT %s%s %s\n", t->prefix, name, units[i]);
        }
}

/* Returns the ending of each sample's name. */
static const char *suffix(enum text_type type)
{
        return type == TEXT_COUNTER ? "_total" : type == TEXT_INFO ? "_info" : "";
}

static void begin_family(
        struct text *t, const char *prefix, const char *name, enum text_type type, const char *help)
{
        static const char *const types[] = {"gauge", "counter", "info", "histogram"};
        bool open = t->format == TEXT_OPENMETRICS;
        /* The older format names the family like its samples, and has no infos. */
        const char *end = open ? "" : suffix(type);
        const char *word = !open && type == TEXT_INFO ? "gauge" : types[type];

        t->prefix = prefix;
        t->name = name;
        t->type = type;
        text_printf(t, "# HELP %s%s%s %s\n# TYPE %s%s%s %s\n", prefix, name, end, help, prefix,
                name, end, word);
        if (open)
                put_unit(t);
}

void text_family(struct text *t, const char *name, enum text_type type, const char *help)
{
        begin_family(t, TEXT_PREFIX, name, type, help);
}

void text_family_of_process(struct text *t, const char *name, enum text_type type, const char *help)
{
        begin_family(t, TEXT_PROCESS_PREFIX, name, type, help);
}

static void put_labels(struct text *t, const struct text_labels *labels, const char *le)
{
        const char *before = "{";

        for (size_t i = 0; i < labels->n; i++) {
                text_printf(t, "%s%s=\"", before, labels->at[i].name);
                put_escaped(t, labels->at[i].value, escape_label);
                puts_to(t, "\"");
                before = ",";
        }
        if (le) {
                text_printf(t, "%sle=\"%s\"", before, le);
                before = ",";
        }
        if (before[0] == ',')
                puts_to(t, "}");
}

#define NUMBER_MAX 32

/* Formats as short as it reads back the same. Returns buf. */
static char *format_number(double value, char buf[NUMBER_MAX])
{
        if (isnan(value))
                return strcpy(buf, "NaN");
        if (isinf(value))
                return strcpy(buf, value < 0 ? "-Inf" : "+Inf");
        snprintf(buf, NUMBER_MAX, "%.15g", value);
        if (strtod(buf, NULL) != value)
                snprintf(buf, NUMBER_MAX, "%.17g", value);
        return buf;
}

static void put_sample(struct text *t, const char *end, const struct text_labels *labels,
        const char *le, double value)
{
        char number[NUMBER_MAX];

        text_printf(t, "%s%s%s", t->prefix, t->name, end);
        put_labels(t, labels, le);
        text_printf(t, " %s\n", format_number(value, number));
}

void text_sample(struct text *t, const struct text_labels *labels, double value)
{
        assert(t->type != TEXT_HISTOGRAM);
        put_sample(t, suffix(t->type), labels, NULL, value);
}

void text_histogram(struct text *t, const struct text_labels *labels, const double *bounds,
        const uint64_t *counts, size_t n, double sum)
{
        char number[NUMBER_MAX];
        uint64_t upto = 0;

        assert(t->type == TEXT_HISTOGRAM);
        for (size_t i = 0; i <= n; i++) {
                upto += counts[i];
                put_sample(t, "_bucket", labels,
                        format_number(i < n ? bounds[i] : (double)INFINITY, number), (double)upto);
        }
        put_sample(t, "_sum", labels, NULL, sum);
        put_sample(t, "_count", labels, NULL, (double)upto);
}

void text_end(struct text *t)
{
        if (t->format == TEXT_OPENMETRICS)
                puts_to(t, "# EOF\n");
}
