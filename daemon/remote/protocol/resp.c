#include "daemon/remote/protocol/resp.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

void resp_init(struct resp_parser *p, uint64_t bulk_max)
{
        *p = (struct resp_parser){.bulk_max = bulk_max};
}

/* ---- replies --------------------------------------------------------------------------------- */

/*
 * Finds the end of the first line. Returns 0: *ret_len is its length, without CR LF; 1: it is
 * incomplete; -EPROTO: it is too long, or a CR or LF stands alone.
 */
static int line_find(const char *data, size_t len, size_t *ret_len)
{
        size_t most = MIN(len, (size_t)RESP_LINE_MAX + 1);
        const char *end = memchr(data, '\r', most);

        if (memchr(data, '\n', end ? (size_t)(end - data) : most))
                return -EPROTO;
        if (!end)
                return len > RESP_LINE_MAX ? -EPROTO : 1;
        *ret_len = (size_t)(end - data);
        if (*ret_len + 1 == len)
                return 1;
        return end[1] == '\n' ? 0 : -EPROTO;
}

/* Parses decimal digits without leading zeros, with a minus before all but 0. */
static bool number_parse(const char *text, size_t len, int64_t *ret)
{
        bool is_negative = len > 0 && text[0] == '-';
        int64_t value = 0;
        size_t i = is_negative;

        if (i == len || (text[i] == '0' && (is_negative || len > 1)))
                return false;
        for (; i < len; i++) {
                if (text[i] < '0' || text[i] > '9')
                        return false;
                /* Negative throughout, as INT64_MIN has no counterpart. */
                if (__builtin_mul_overflow(value, 10, &value) ||
                        __builtin_sub_overflow(value, text[i] - '0', &value))
                        return false;
        }
        if (!is_negative && value == INT64_MIN)
                return false;
        *ret = is_negative ? value : -value;
        return true;
}

/* Ends a value, and the arrays of which it was the last element. */
static void value_end(struct resp_parser *p)
{
        while (p->depth > 0) {
                struct resp_level *l = &p->levels[p->depth - 1];

                if (++l->at < l->n)
                        return;
                p->depth--;
        }
        p->is_over = true;
}

static int bulk_begin(struct resp_parser *p, struct resp_token *t)
{
        if (t->number == -1) {
                t->kind = RESP_NULL;
                value_end(p);
                return 0;
        }
        if (t->number < 0)
                return -EPROTO;
        if ((uint64_t)t->number > p->bulk_max)
                return -EMSGSIZE;
        t->kind = RESP_BULK;
        p->payload_left = (uint64_t)t->number;
        p->wants_crlf = true;
        return 0;
}

static int array_begin(struct resp_parser *p, struct resp_token *t)
{
        if (t->number == -1) {
                t->kind = RESP_NULL;
                value_end(p);
                return 0;
        }
        if (t->number < 0 || t->number > RESP_ARRAY_MAX)
                return -EPROTO;
        t->kind = RESP_ARRAY;
        if (t->number == 0) {
                value_end(p);
                return 0;
        }
        if (p->depth == RESP_DEPTH_MAX)
                return -EPROTO;
        p->levels[p->depth++] = (struct resp_level){.n = (uint32_t)t->number};
        return 0;
}

static int line_parse(struct resp_parser *p, const char *line, size_t len, struct resp_token *t)
{
        char first = len > 0 ? line[0] : '\0';

        t->depth = p->depth;
        t->index = p->depth > 0 ? p->levels[p->depth - 1].at : 0;
        if (++p->n_tokens > RESP_TOKENS_MAX)
                return -EPROTO;
        if (first == '+' || first == '-') {
                t->kind = first == '+' ? RESP_STATUS : RESP_ERROR;
                t->text = line + 1;
                t->text_len = len - 1;
                value_end(p);
                return 0;
        }
        if ((first != ':' && first != '$' && first != '*') ||
                !number_parse(line + 1, len - 1, &t->number))
                return -EPROTO;
        if (first == '$')
                return bulk_begin(p, t);
        if (first == '*')
                return array_begin(p, t);
        t->kind = RESP_INTEGER;
        value_end(p);
        return 0;
}

/* Takes the CR LF behind a bulk string. Returns the used bytes; 0: more are needed; -EPROTO. */
static int crlf_take(struct resp_parser *p, const char *data, size_t len)
{
        if ((len > 0 && data[0] != '\r') || (len > 1 && data[1] != '\n'))
                return -EPROTO;
        if (len < 2)
                return 0;
        p->wants_crlf = false;
        value_end(p);
        return 2;
}

int resp_next(struct resp_parser *p, const char *data, size_t len, size_t *ret_used,
        struct resp_token *ret)
{
        size_t line_len;
        int r;

        assert(p->payload_left == 0);
        *ret = (struct resp_token){.kind = RESP_MORE};
        *ret_used = 0;
        if (p->wants_crlf) {
                r = crlf_take(p, data, len);
                if (r <= 0)
                        return r;
                *ret_used = (size_t)r;
        }
        if (p->is_over) {
                resp_init(p, p->bulk_max);
                ret->kind = RESP_END;
                return 0;
        }
        data += *ret_used;
        len -= *ret_used;
        r = len > 0 ? line_find(data, len, &line_len) : 1;
        if (r != 0)
                return r < 0 ? r : 0;
        *ret_used += line_len + 2;
        return line_parse(p, data, line_len, ret);
}

void resp_took(struct resp_parser *p, uint64_t n)
{
        assert(n <= p->payload_left);
        p->payload_left -= n;
}

/* ---- requests -------------------------------------------------------------------------------- */

static void put_bytes(struct resp_writer *w, const void *data, size_t len)
{
        if (w->len <= w->size && len <= w->size - w->len && len > 0)
                memcpy(w->data + w->len, data, len);
        w->len += len;
}

static void put_head(struct resp_writer *w, char kind, uint64_t number)
{
        char text[32];

        put_bytes(w, text,
                (size_t)snprintf(
                        text, sizeof(text), "%c%llu\r\n", kind, (unsigned long long)number));
}

void resp_put_array(struct resp_writer *w, size_t n)
{
        put_head(w, '*', n);
}

void resp_put_bulk_begin(struct resp_writer *w, uint64_t len)
{
        put_head(w, '$', len);
}

void resp_put_bulk_end(struct resp_writer *w)
{
        put_bytes(w, "\r\n", 2);
}

void resp_put_bulk(struct resp_writer *w, const void *data, size_t len)
{
        resp_put_bulk_begin(w, len);
        put_bytes(w, data, len);
        resp_put_bulk_end(w);
}

void resp_put_word(struct resp_writer *w, const char *word)
{
        resp_put_bulk(w, word, strlen(word));
}

void resp_put_number(struct resp_writer *w, uint64_t number)
{
        char text[24];

        resp_put_bulk(
                w, text, (size_t)snprintf(text, sizeof(text), "%llu", (unsigned long long)number));
}

char *resp_command_new(const char *const *words, uint32_t *ret_len)
{
        struct resp_writer w = {0};
        unsigned n = 0;

        while (words[n])
                n++;
        for (unsigned pass = 0; pass < 2; pass++) {
                w = (struct resp_writer){.data = w.data, .size = w.len};
                resp_put_array(&w, n);
                for (unsigned i = 0; i < n; i++)
                        resp_put_word(&w, words[i]);
                if (pass == 0 && !(w.data = malloc(w.len)))
                        return NULL;
        }
        *ret_len = (uint32_t)w.len;
        return w.data;
}
