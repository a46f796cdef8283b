#include "client/trace/line.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/parse.h"
#include "policy/evict.h"

/* 200 years: far from 2^63. */
#define TIME_NSEC_MAX 6.3e18

const struct trace_unit_row trace_units[TRACE_UNITS] = {
#define X(id, name, nsec, plural) [TRACE_UNIT_##id] = {name, plural, nsec},
        TRACE_UNIT_TABLE(X)
#undef X
};

struct sentence {
        char *buf;
        size_t size;
};

KVL_PRINTF(2, 3) static int refuse(const struct sentence *err, const char *format, ...)
{
        va_list ap;

        va_start(ap, format);
        vsnprintf(err->buf, err->size, format, ap);
        va_end(ap);
        return -EINVAL;
}

/* The JSON reader's message may quote the line: makes it printable and short. */
static int refuse_json(const struct sentence *err, const json_error_t *e)
{
        char shown[FORMAT_EXCERPT_MAX];

        return refuse(err, "no JSON object: %s (column %d)",
                format_excerpt(e->text, strlen(e->text), shown), e->column);
}

static int get_time(
        struct trace_line *l, const struct trace_unit_row *unit, const struct sentence *err)
{
        const json_t *value = json_object_get(l->object, "timestamp");
        double time, most = TIME_NSEC_MAX / (double)unit->nsec;

        l->has_time = value != NULL;
        if (!value)
                return 0;
        if (!json_is_number(value))
                return refuse(err,
                        "timestamp is not a number: for dates see docs/measure/TRACES.md, \"Other traces\"");
        time = json_number_value(value);
        if (!(time >= 0 && time <= most))
                return refuse(err,
                        "timestamp is not between 0 and %.0f %s: --time-unit names another unit",
                        most, unit->plural);
        l->has_fraction = time != trunc(time);
        l->time_nsec = json_is_integer(value) ? (uint64_t)json_integer_value(value) * unit->nsec
                                              : (uint64_t)llround(time * (double)unit->nsec);
        return 0;
}

static int get_tokens(
        const json_t *object, const char *key, uint32_t *ret, const struct sentence *err)
{
        const json_t *value = json_object_get(object, key);
        json_int_t number = json_integer_value(value);

        if (!json_is_integer(value))
                return refuse(err, "%s is %s", key, value ? "not a whole number" : "missing");
        if (number < 0 || number > UINT32_MAX)
                return refuse(err, "%s is not between 0 and %" PRIu32, key, UINT32_MAX);
        *ret = (uint32_t)number;
        return 0;
}

static int get_ids(const json_t *object, const json_t **ret, const struct sentence *err)
{
        const json_t *ids = json_object_get(object, "hash_ids"), *id;
        size_t i;

        if (!json_is_array(ids))
                return refuse(err, "hash_ids is %s", ids ? "not an array" : "missing");
        json_array_foreach(ids, i,
                id) if (!json_is_integer(id) || json_integer_value(id) < 0) return refuse(err,
                "hash_ids[%zu] is not a whole number of 0 to %" PRId64, i, INT64_MAX);
        *ret = ids;
        return 0;
}

static int get_tenant(const json_t *object, const char **ret, const struct sentence *err)
{
        const json_t *value = json_object_get(object, "tenant");

        *ret = "";
        if (!value)
                return 0;
        if (!json_is_string(value) || !name_is_valid(json_string_value(value), TENANT_NAME_MAX))
                return refuse(err,
                        "tenant is no name: 1 to %d letters, digits, '.', '_' or '-', which don't start with '.' or '-'",
                        TENANT_NAME_MAX);
        *ret = json_string_value(value);
        return 0;
}

static int get_hint(const json_t *object, uint8_t *ret, const struct sentence *err)
{
        static const char *const names[] = {
                [EVICT_HINT_UNKNOWN] = "unknown",
                [EVICT_HINT_CONTINUES] = "continues",
                [EVICT_HINT_DONE] = "done",
        };
        const json_t *value = json_object_get(object, "hint");

        *ret = EVICT_HINT_UNKNOWN;
        if (!value)
                return 0;
        for (uint8_t i = 0; json_is_string(value) && i < ARRAY_SIZE(names); i++)
                if (strcmp(json_string_value(value), names[i]) == 0) {
                        *ret = i;
                        return 0;
                }
        return refuse(err, "hint is none of unknown, continues, done");
}

static int get_ending(const json_t *object, uint32_t *ret, const struct sentence *err)
{
        const json_t *value = json_object_get(object, "ending");

        *ret = 0;
        if (!value)
                return 0;
        if (!json_is_integer(value) || json_integer_value(value) < 0 ||
                json_integer_value(value) > UINT32_MAX)
                return refuse(err, "ending is not a whole number of 0 to %" PRIu32, UINT32_MAX);
        *ret = (uint32_t)json_integer_value(value);
        return 0;
}

/* Whether it is a conversation, as in ShareGPT and in chat logs. */
static bool has_text(const json_t *object)
{
        return !json_object_get(object, "hash_ids") &&
               (json_object_get(object, "conversations") ||
                       json_object_get(object, "conversation") ||
                       json_object_get(object, "messages"));
}

static int get_fields(
        struct trace_line *l, const struct trace_unit_row *unit, const struct sentence *err)
{
        int r;

        if (!json_is_object(l->object))
                return refuse(err, "no JSON object");
        if (has_text(l->object))
                return refuse(err,
                        "it has text instead of hash_ids: docs/measure/TRACES.md, \"Other traces\", makes a trace of it");
        r = get_time(l, unit, err);
        if (r == 0)
                r = get_tokens(l->object, "input_length", &l->input_tokens, err);
        if (r == 0 && json_object_get(l->object, "output_length"))
                r = get_tokens(l->object, "output_length", &l->output_tokens, err);
        if (r == 0)
                r = get_ids(l->object, &l->ids, err);
        if (r == 0)
                r = get_tenant(l->object, &l->tenant, err);
        if (r == 0)
                r = get_hint(l->object, &l->hint, err);
        if (r == 0)
                r = get_ending(l->object, &l->ending, err);
        return r;
}

int line_parse(const char *text, size_t len, enum trace_unit unit, struct trace_line *ret,
        char *err_buf, size_t err_len)
{
        struct sentence err = {err_buf, err_len};
        struct trace_line line = {0};
        json_error_t e;
        int r;

        if (len > TRACE_LINE_MAX)
                return refuse(&err, "longer than %" PRIu32 " bytes", TRACE_LINE_MAX);
        line.object = json_loadb(text, len, JSON_REJECT_DUPLICATES, &e);
        if (!line.object && json_error_code(&e) == json_error_out_of_memory)
                return -ENOMEM;
        if (!line.object)
                return refuse_json(&err, &e);
        r = get_fields(&line, &trace_units[unit], &err);
        if (r < 0)
                line_done(&line);
        else
                *ret = line;
        return r;
}

void line_done(struct trace_line *line)
{
        json_decref(line->object);
        *line = (struct trace_line){0};
}
