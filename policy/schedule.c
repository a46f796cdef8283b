#include "policy/schedule.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "base/parse.h"

#define DAY_SEC   (24 * 3600u)
#define SPAN_TEXT 79 /* of one span; more is no span */

#define STRING_OF(x) #x
#define STRING(x)    STRING_OF(x)

static int parse_time(const char *text, uint32_t *ret_sec)
{
        char hours[3] = "", minutes[3] = "";
        uint64_t h, m;

        if (strlen(text) != 5 || text[2] != ':')
                return -EINVAL;
        memcpy(hours, text, 2);
        memcpy(minutes, text + 3, 2);
        if (parse_u64(hours, &h) < 0 || parse_u64(minutes, &m) < 0 || m > 59 ||
                h * 60 + m > DAY_SEC / 60)
                return -EINVAL;
        *ret_sec = (uint32_t)(h * 60 + m) * 60 % DAY_SEC;
        return 0;
}

/* Cuts `text` at its first '-'. NULL: it has none. */
static char *cut_at_dash(char *text)
{
        char *dash = strchr(text, '-');

        if (dash)
                *dash++ = '\0';
        return dash;
}

/* NULL, or what is wrong. */
static const char *parse_span(char *text, struct schedule_span *ret_span)
{
        struct schedule_span span;
        char *amounts = text + strcspn(text, " \t"), *to, *most;

        if (*amounts) {
                *amounts++ = '\0';
                amounts += strspn(amounts, " \t");
        }
        to = cut_at_dash(text);
        if (!to || parse_time(text, &span.from_sec) < 0 || parse_time(to, &span.to_sec) < 0)
                return "it begins with no span of time like 08:00-20:00";
        if (!*amounts)
                return "no amount is behind its times, like 8GiB-16GiB";
        most = cut_at_dash(amounts);
        if (parse_bytes(amounts, &span.min_bytes) < 0 ||
                parse_bytes(most ? most : amounts, &span.max_bytes) < 0)
                return "what is behind its times is no amount like 8GiB-16GiB";
        if (span.min_bytes > span.max_bytes)
                return "its minimum is more than its maximum";
        *ret_span = span;
        return NULL;
}

/* Copies one span without the space around it. False: it is too long. */
static bool copy_span(const char *text, size_t len, char buf[SPAN_TEXT + 1])
{
        while (len > 0 && strchr(" \t", *text)) {
                text++;
                len--;
        }
        while (len > 0 && strchr(" \t", text[len - 1]))
                len--;
        if (len > SPAN_TEXT)
                return false;
        memcpy(buf, text, len);
        buf[len] = '\0';
        return true;
}

/* Returns -EINVAL with the sentence. */
static int refuse_span(
        uint32_t index, const char *text, size_t len, const char *wrong, char *err, size_t err_len)
{
        char excerpt[FORMAT_EXCERPT_MAX];

        snprintf(err, err_len, "span %u of the schedule, '%s': %s", index + 1,
                format_excerpt(text, len, excerpt), wrong);
        return -EINVAL;
}

int schedule_parse(const char *text, struct schedule *ret, char *err, size_t err_len)
{
        struct schedule schedule = {0};
        const char *at = text + strspn(text, " \t");
        bool more = *at != '\0';

        while (more) {
                size_t len = strcspn(at, ",");
                char span[SPAN_TEXT + 1];
                const char *wrong = "it is too long";

                if (schedule.n == SCHEDULE_SPANS_MAX)
                        return refuse_span(schedule.n, at, len,
                                "a schedule has at most " STRING(SCHEDULE_SPANS_MAX) " spans", err,
                                err_len);
                if (copy_span(at, len, span))
                        wrong = parse_span(span, &schedule.spans[schedule.n]);
                if (wrong)
                        return refuse_span(schedule.n, at, len, wrong, err, err_len);
                schedule.n++;
                more = at[len] == ',';
                at += len + more;
        }
        *ret = schedule;
        return 0;
}

static bool covers(const struct schedule_span *span, uint32_t second)
{
        if (span->from_sec < span->to_sec)
                return second >= span->from_sec && second < span->to_sec;
        return second >= span->from_sec || second < span->to_sec;
}

const struct schedule_span *schedule_at(const struct schedule *s, uint32_t second_of_day)
{
        for (uint32_t i = 0; i < s->n; i++)
                if (covers(&s->spans[i], second_of_day))
                        return &s->spans[i];
        return NULL;
}
