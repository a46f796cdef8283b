#include "client/trace/store-model.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "base/parse.h"
#include "policy/hosts/hosts.h"

enum kind { BYTES, TIME, NUMBER, EVICT, EXPORT };

static const struct row {
        const char *key, *otherwise;
        enum kind kind;
        size_t at;
        uint64_t least, most; /* nanoseconds, of times */
} rows[] = {
#define X(key, kind, field, otherwise, least, most, meaning) \
        {key, otherwise, kind, offsetof(struct store_model, field), least, most},
        STORE_MODEL_TABLE(X)
#undef X
};

/* Reads one of two words as 0 or 1; -EINVAL: it is neither. */
static int parse_word(const char *text, const char *first, const char *second, uint32_t *ret)
{
        if (strcmp(text, first) != 0 && strcmp(text, second) != 0)
                return -EINVAL;
        *ret = strcmp(text, second) == 0;
        return 0;
}

static int parse_value(struct store_model *m, const struct row *row, const char *text)
{
        void *field = (char *)m + row->at;
        uint64_t value = 0;
        int r;

        static_assert(VALUES_LRU == 0 && VALUES_LFU == 1, "the words' numbers");
        static_assert(HOSTS_EXPORT_FOUND == 0 && HOSTS_EXPORT_DEMOTION == 1, "likewise");
        switch (row->kind) {
        case EVICT:
                return parse_word(text, "lru", "lfu", field);
        case EXPORT:
                return parse_word(text, "found", "demotion", field);
        case BYTES:
                r = parse_bytes(text, &value);
                break;
        case TIME:
                r = parse_duration(text, &value);
                break;
        default:
                r = parse_u64(text, &value);
        }
        if (r < 0 || value < row->least || value > row->most)
                return -EINVAL;
        *(uint64_t *)field = value;
        return 0;
}

void store_model_init(struct store_model *m)
{
        *m = (struct store_model){0};
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                int r = parse_value(m, &rows[i], rows[i].otherwise);

                assert(r == 0);
                (void)r;
        }
}

static int refuse_key(const char *text, char *err, size_t err_len)
{
        char shown[FORMAT_EXCERPT_MAX];
        int len = snprintf(err, err_len, "a store has no '%s': it has",
                format_excerpt(text, strlen(text), shown));

        for (size_t i = 0; i < ARRAY_SIZE(rows) && len > 0 && (size_t)len < err_len; i++)
                len += snprintf(
                        err + len, err_len - (size_t)len, "%s %s=", i > 0 ? "," : "", rows[i].key);
        return -EINVAL;
}

static void describe_range(const struct row *row, char *buf, size_t size)
{
        char least[FORMAT_DURATION_MAX], most[FORMAT_DURATION_MAX];

        switch (row->kind) {
        case EVICT:
                snprintf(buf, size, "lru or lfu");
                break;
        case EXPORT:
                snprintf(buf, size, "found or demotion");
                break;
        case BYTES:
                snprintf(buf, size, "a size of %s to %s", format_bytes(row->least, least),
                        format_bytes(row->most, most));
                break;
        case TIME:
                snprintf(buf, size, "a time of up to %" PRIu64 " s, such as 250ms or 30min",
                        row->most / 1000000000);
                break;
        default:
                snprintf(buf, size, "a number of %" PRIu64 " to %" PRIu64, row->least, row->most);
        }
}

static int parse_setting(struct store_model *m, char *text, char *err, size_t err_len)
{
        char *value = strchr(text, '='), shown[FORMAT_EXCERPT_MAX], range[96];

        if (!value)
                return refuse_key(text, err, err_len);
        *value++ = '\0';
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                if (strcmp(rows[i].key, text) != 0)
                        continue;
                if (parse_value(m, &rows[i], value) == 0)
                        return 0;
                describe_range(&rows[i], range, sizeof(range));
                snprintf(err, err_len, "'%s' is no %s of a store: that is %s",
                        format_excerpt(value, strlen(value), shown), rows[i].key, range);
                return -EINVAL;
        }
        return refuse_key(text, err, err_len);
}

int store_model_parse(struct store_model *m, const char *list, char *err, size_t err_len)
{
        _cleanup_free_ char *copy = strdup(list);
        char *rest = copy, *text;
        int r = copy ? 0 : -ENOMEM;

        while (r == 0 && rest && (text = strsep(&rest, ",")))
                r = parse_setting(m, text, err, err_len);
        return r;
}
