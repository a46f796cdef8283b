#include "client/exporter/accept.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#define WEIGHT_MAX 1000 /* q=1; it has three digits at most (RFC 9110, 12.4.2) */

/* A piece of the header, without surrounding blanks. */
struct span {
        const char *at;
        size_t len;
};

static struct span trim_span(struct span s)
{
        while (s.len > 0 && isspace((unsigned char)s.at[0])) {
                s.at++;
                s.len--;
        }
        while (s.len > 0 && isspace((unsigned char)s.at[s.len - 1]))
                s.len--;
        return s;
}

/* Cuts the piece up to `end` off the front of *rest. */
static struct span cut_piece(struct span *rest, char end)
{
        const char *at = memchr(rest->at, end, rest->len);
        struct span piece = {rest->at, at ? (size_t)(at - rest->at) : rest->len};
        size_t gone = piece.len + (at != NULL);

        rest->at += gone;
        rest->len -= gone;
        return trim_span(piece);
}

static bool is(struct span s, const char *word)
{
        return s.len == strlen(word) && strncasecmp(s.at, word, s.len) == 0;
}

/* Returns "0.75" in thousandths; -1: it is no weight. */
static int parse_weight(struct span s)
{
        int weight, unit = 100;

        if (s.len == 0 || s.len > 5 || (s.at[0] != '0' && s.at[0] != '1'))
                return -1;
        weight = (s.at[0] - '0') * WEIGHT_MAX;
        if (s.len > 1 && s.at[1] != '.')
                return -1;
        for (size_t i = 2; i < s.len; i++, unit /= 10) {
                if (!isdigit((unsigned char)s.at[i]))
                        return -1;
                weight += (s.at[i] - '0') * unit;
        }
        return weight <= WEIGHT_MAX ? weight : -1;
}

struct range {
        struct span type;
        int weight;
        bool other_version; /* than OpenMetrics 1.0.0 */
};

static struct range parse_range(struct span s)
{
        struct range r = {.type = cut_piece(&s, ';'), .weight = WEIGHT_MAX};

        while (s.len > 0) {
                struct span value = cut_piece(&s, ';'), name = cut_piece(&value, '=');

                value = trim_span(value);
                if (is(name, "q"))
                        r.weight = parse_weight(value);
                else if (is(name, "version"))
                        r.other_version = !is(value, "1.0.0");
        }
        return r;
}

enum text_format accept_choose(const char *header)
{
        /* Weights of text/plain, text and all, most specific first; the first mention counts. */
        int open = -1, plain[3] = {-1, -1, -1};
        static const char *const words[] = {"text/plain", "text/*", "*/*"};
        struct span rest = {header ? header : "", header ? strlen(header) : 0};

        while (rest.len > 0) {
                struct range r = parse_range(cut_piece(&rest, ','));

                if (is(r.type, "application/openmetrics-text") && !r.other_version)
                        open = MAX(open, r.weight);
                for (size_t i = 0; i < ARRAY_SIZE(words); i++)
                        if (is(r.type, words[i]) && plain[i] < 0)
                                plain[i] = r.weight;
        }
        for (size_t i = 0; i < ARRAY_SIZE(words); i++)
                if (plain[i] >= 0)
                        return open > 0 && open >= plain[i] ? TEXT_OPENMETRICS : TEXT_PROMETHEUS;
        return open > 0 ? TEXT_OPENMETRICS : TEXT_PROMETHEUS;
}
