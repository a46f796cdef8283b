#include "daemon/server/config/options.h"

#include <assert.h>
#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "base/parse.h"

#define ID_SEPARATORS ", \t"

bool id_list_has(const struct id_list *l, uint32_t id)
{
        for (uint32_t i = 0; i < l->n; i++)
                if (l->ids[i] == id)
                        return true;
        return false;
}

static char *allowed_choices(const struct option *o, char *buf)
{
        size_t len = 0;

        buf[0] = '\0';
        for (const char *const *c = o->choices; *c; c++)
                len += (size_t)snprintf(
                        buf + len, OPTION_VALUE_MAX - len, "%s%s", len > 0 ? ", " : "", *c);
        return buf;
}

static char *allowed_range(const struct option *o, char *buf)
{
        char low[FORMAT_DURATION_MAX], high[FORMAT_DURATION_MAX];
        int len;

        switch (o->type) {
        case OPTION_BYTES:
                len = snprintf(buf, OPTION_VALUE_MAX, "%s to %s", format_bytes(o->min, low),
                        format_bytes(o->max, high));
                break;
        case OPTION_DURATION:
                len = snprintf(buf, OPTION_VALUE_MAX, "%s to %s", format_duration(o->min, low),
                        format_duration(o->max, high));
                break;
        default:
                len = snprintf(buf, OPTION_VALUE_MAX, "%" PRIu64 " to %" PRIu64, o->min, o->max);
        }
        if (o->word)
                snprintf(buf + len, OPTION_VALUE_MAX - (size_t)len, ", or '%s'", o->word);
        return buf;
}

char *option_allowed(const struct option *o, char buf[OPTION_VALUE_MAX])
{
        switch (o->type) {
        case OPTION_BYTES:
        case OPTION_DURATION:
        case OPTION_UINT:
                return allowed_range(o, buf);
        case OPTION_BOOL:
                return strcpy(buf, "yes, no, on, off, true, false");
        case OPTION_ENUM:
                return allowed_choices(o, buf);
        case OPTION_TEXT:
                snprintf(buf, OPTION_VALUE_MAX,
                        "%" PRIu64 " to %" PRIu64 " printable ASCII characters", o->min, o->max);
                return buf;
        case OPTION_PATH:
                snprintf(buf, OPTION_VALUE_MAX, "absolute paths of at most %" PRIu64 " bytes",
                        o->max);
                return buf;
        case OPTION_UIDS:
        case OPTION_GIDS:
                snprintf(buf, OPTION_VALUE_MAX,
                        "at most %d names or numbers of %s, separated by commas", ID_LIST_MAX,
                        o->type == OPTION_UIDS ? "users" : "groups");
                return buf;
        }
        return buf;
}

/* Writes the sentence of an invalid value; returns -EINVAL. */
static int refuse_value(
        const struct option *o, const char *value, const char *what, char *err, size_t err_len)
{
        char shown[FORMAT_EXCERPT_MAX], allowed[OPTION_VALUE_MAX];

        snprintf(err, err_len, "%s: '%s' is %s, allowed are %s", o->key,
                format_excerpt(value, strlen(value), shown), what, option_allowed(o, allowed));
        return -EINVAL;
}

static const char *not_a(enum option_type type)
{
        switch (type) {
        case OPTION_BYTES:
                return "not a size such as 4GiB";
        case OPTION_DURATION:
                return "not a time such as 250ms or 30s";
        default:
                return "not a whole number";
        }
}

static int parse_number(
        const struct option *o, const char *value, uint64_t *ret, char *err, size_t err_len)
{
        uint64_t number = 0;
        int r;

        if (o->word && strcmp(value, o->word) == 0) {
                *ret = o->word_value;
                return 0;
        }
        if (o->type == OPTION_BYTES)
                r = parse_bytes(value, &number);
        else if (o->type == OPTION_DURATION)
                r = parse_duration(value, &number);
        else
                r = parse_u64(value, &number);
        if (r == -EINVAL)
                return refuse_value(o, value, not_a(o->type), err, err_len);
        if (r < 0 || number < o->min || number > o->max)
                return refuse_value(o, value, "out of range", err, err_len);
        *ret = number;
        return 0;
}

static int find_choice(const struct option *o, const char *value, unsigned *ret)
{
        for (unsigned i = 0; o->choices[i]; i++)
                if (strcmp(o->choices[i], value) == 0) {
                        *ret = i;
                        return 0;
                }
        return -EINVAL;
}

static int set_text(
        const struct option *o, char *text, const char *value, char *err, size_t err_len)
{
        size_t len = strlen(value);

        if (o->type == OPTION_PATH && value[0] != '/' && (len > 0 || o->min > 0))
                return refuse_value(o, value, "not an absolute path", err, err_len);
        if (!text_is_plain(value))
                return refuse_value(o, value, "not UTF-8 without control characters", err, err_len);
        for (size_t i = 0; o->type == OPTION_TEXT && i < len; i++)
                if (value[i] < ' ' || value[i] > '~')
                        return refuse_value(o, value, "not printable ASCII", err, err_len);
        if (len < o->min || len > o->max)
                return refuse_value(
                        o, value, len < o->min ? "too short" : "too long", err, err_len);
        memcpy(text, value, len + 1);
        return 0;
}

/* Parses one user or group: a number, or a name of this machine. */
static int parse_id(enum option_type type, const char *word, uint32_t *ret_id)
{
        uint64_t number;

        if (parse_u64(word, &number) == 0) {
                if (number >= UINT32_MAX)
                        return -ERANGE;
                *ret_id = (uint32_t)number;
                return 0;
        }
        if (type == OPTION_UIDS) {
                const struct passwd *pw = getpwnam(word);

                if (!pw)
                        return -ENOENT;
                *ret_id = pw->pw_uid;
        } else {
                const struct group *gr = getgrnam(word);

                if (!gr)
                        return -ENOENT;
                *ret_id = gr->gr_gid;
        }
        return 0;
}

static int set_ids(
        const struct option *o, struct id_list *list, const char *value, char *err, size_t err_len)
{
        struct id_list parsed = {0};
        char words[ID_LIST_TEXT_MAX + 1], *save = NULL;

        if (strlen(value) > ID_LIST_TEXT_MAX)
                return refuse_value(o, value, "too long", err, err_len);
        strcpy(words, value);
        strcpy(parsed.text, value);
        for (char *w = strtok_r(words, ID_SEPARATORS, &save); w;
                w = strtok_r(NULL, ID_SEPARATORS, &save)) {
                if (parsed.n == ID_LIST_MAX)
                        return refuse_value(o, value, "too long", err, err_len);
                if (parse_id(o->type, w, &parsed.ids[parsed.n]) < 0)
                        return refuse_value(o, w,
                                o->type == OPTION_UIDS ? "no user of this machine"
                                                       : "no group of this machine",
                                err, err_len);
                parsed.n++;
        }
        *list = parsed;
        return 0;
}

bool id_list_append(char text[ID_LIST_TEXT_MAX + 1], const char *word)
{
        size_t len = strlen(text);

        if (len + strlen(word) + 2 > ID_LIST_TEXT_MAX)
                return false;
        snprintf(text + len, ID_LIST_TEXT_MAX + 1 - len, "%s%s", len > 0 ? ", " : "", word);
        return true;
}

char *id_list_beyond(
        const struct id_list *l, const struct id_list *other, char ret_text[ID_LIST_TEXT_MAX + 1])
{
        char words[ID_LIST_TEXT_MAX + 1], *save = NULL, *w;

        strcpy(words, l->text);
        ret_text[0] = '\0';
        w = strtok_r(words, ID_SEPARATORS, &save);
        for (uint32_t i = 0; i < l->n && w; i++) {
                if (!id_list_has(other, l->ids[i]))
                        (void)id_list_append(ret_text, w);
                w = strtok_r(NULL, ID_SEPARATORS, &save);
        }
        return ret_text;
}

int option_amend(const struct option *o, const void *base, char sign, const char *value,
        char ret_text[ID_LIST_TEXT_MAX + 1], char *err, size_t err_len)
{
        const struct id_list *list = (const void *)((const char *)base + o->offset);
        char beyond[ID_LIST_TEXT_MAX + 1];
        struct id_list given;
        int r;

        if (o->type != OPTION_UIDS && o->type != OPTION_GIDS) {
                snprintf(err, err_len, "%s is no list: %s=VALUE sets it", o->key, o->key);
                return -EINVAL;
        }
        r = set_ids(o, &given, value, err, err_len);
        if (r < 0)
                return r;
        if (given.n == 0)
                return refuse_value(o, value, "empty", err, err_len);
        id_list_beyond(&given, list, beyond);
        if (sign == '-') {
                if (*beyond)
                        return refuse_value(o, beyond, "not in the list", err, err_len);
                id_list_beyond(list, &given, ret_text);
                return 0;
        }
        strcpy(ret_text, list->text);
        if (*beyond && !id_list_append(ret_text, beyond))
                return refuse_value(o, value, "too much for the list", err, err_len);
        return 0;
}

int option_set(const struct option *o, void *base, const char *value, char *err, size_t err_len)
{
        void *at = (char *)base + o->offset;
        uint64_t number = 0;
        int r = 0;

        switch (o->type) {
        case OPTION_BYTES:
        case OPTION_DURATION:
                return parse_number(o, value, at, err, err_len);
        case OPTION_UINT:
                r = parse_number(o, value, &number, err, err_len);
                if (r == 0)
                        *(uint32_t *)at = (uint32_t)number;
                return r;
        case OPTION_BOOL:
                if (parse_bool(value, at) < 0)
                        return refuse_value(o, value, "neither yes nor no", err, err_len);
                return 0;
        case OPTION_ENUM:
                if (find_choice(o, value, at) < 0)
                        return refuse_value(o, value, "unknown", err, err_len);
                return 0;
        case OPTION_TEXT:
        case OPTION_PATH:
                return set_text(o, at, value, err, err_len);
        case OPTION_UIDS:
        case OPTION_GIDS:
                return set_ids(o, at, value, err, err_len);
        }
        return -EINVAL;
}

/* Formats for parse_bytes(), in the largest unit that leaves no rest. */
static void format_exact(uint64_t bytes, char buf[OPTION_VALUE_MAX])
{
        static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB"};
        size_t unit = 0;

        for (; bytes > 0 && bytes % 1024 == 0 && unit + 1 < ARRAY_SIZE(units); unit++)
                bytes /= 1024;
        snprintf(buf, OPTION_VALUE_MAX, "%" PRIu64 "%s", bytes, units[unit]);
}

char *option_format(const struct option *o, const void *base, char buf[OPTION_VALUE_MAX])
{
        const void *at = (const char *)base + o->offset;

        switch (o->type) {
        case OPTION_BYTES:
                format_exact(*(const uint64_t *)at, buf);
                if (o->word && *(const uint64_t *)at == o->word_value)
                        strcpy(buf, o->word);
                break;
        case OPTION_DURATION:
                format_duration(*(const uint64_t *)at, buf);
                break;
        case OPTION_UINT:
                snprintf(buf, OPTION_VALUE_MAX, "%" PRIu32, *(const uint32_t *)at);
                if (o->word && *(const uint32_t *)at == o->word_value)
                        strcpy(buf, o->word);
                break;
        case OPTION_BOOL:
                strcpy(buf, *(const bool *)at ? "yes" : "no");
                break;
        case OPTION_ENUM:
                strcpy(buf, o->choices[*(const unsigned *)at]);
                break;
        case OPTION_TEXT:
        case OPTION_PATH:
                snprintf(buf, OPTION_VALUE_MAX, "%s", (const char *)at);
                break;
        case OPTION_UIDS:
        case OPTION_GIDS:
                snprintf(buf, OPTION_VALUE_MAX, "%s", ((const struct id_list *)at)->text);
                break;
        }
        return buf;
}

static char *show_value(const struct option *o, const void *base, char buf[OPTION_VALUE_MAX])
{
        const void *at = (const char *)base + o->offset;
        char text[FORMAT_BYTES_MAX];

        option_format(o, base, buf);
        if (buf[0] < '0' || buf[0] > '9')
                return buf;
        if (o->type == OPTION_BYTES)
                strcpy(buf, format_bytes(*(const uint64_t *)at, text));
        return buf;
}

void options_set_defaults(enum option_section s, void *base)
{
        char err[OPTION_VALUE_MAX * 2];

        for (size_t i = 0; i < n_options; i++)
                if (options[i].section == s) {
                        int r = option_set(
                                &options[i], base, options[i].default_text, err, sizeof(err));

                        assert(r == 0);
                        (void)r;
                }
}

static size_t value_size(const struct option *o)
{
        switch (o->type) {
        case OPTION_BYTES:
        case OPTION_DURATION:
                return sizeof(uint64_t);
        case OPTION_UINT:
                return sizeof(uint32_t);
        case OPTION_BOOL:
                return sizeof(bool);
        case OPTION_ENUM:
                return sizeof(unsigned);
        case OPTION_TEXT:
        case OPTION_PATH:
                return o->max + 1;
        case OPTION_UIDS:
        case OPTION_GIDS:
                return sizeof(struct id_list);
        }
        return 0;
}

void options_copy(enum option_section s, uint64_t mask, void *dst, const void *src)
{
        for (size_t i = 0; i < n_options; i++) {
                const struct option *o = &options[i];

                if (o->section == s && (mask & option_bit(o)))
                        memcpy((char *)dst + o->offset, (const char *)src + o->offset,
                                value_size(o));
        }
}

void options_diff(
        enum option_section s, const void *before, const void *after, option_diff_fn fn, void *data)
{
        char old_text[OPTION_VALUE_MAX], new_text[OPTION_VALUE_MAX];

        for (size_t i = 0; i < n_options; i++) {
                const struct option *o = &options[i];

                if (o->section != s || strcmp(option_format(o, before, old_text),
                                               option_format(o, after, new_text)) == 0)
                        continue;
                fn(data, o, show_value(o, before, old_text), show_value(o, after, new_text));
        }
}
