/* RESP2: replies in pieces of any size, malformed bytes, bounds, and requests. */
#include "tests/unit/test-support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/remote/protocol/resp.h"
#include "tests/unit/test-random.h"

#define BULK_MAX 1000

/* A reply as text: "[2 :1 $abc ]". */
struct story {
        char text[4096];
        size_t len;
};

static void story_add(struct story *s, const char *data, size_t len)
{
        assert_true(s->len + len < sizeof(s->text));
        memcpy(s->text + s->len, data, len);
        s->len += len;
        s->text[s->len] = '\0';
}

static void story_token(struct story *s, const struct resp_token *t)
{
        char text[64];
        int n = 0;

        switch (t->kind) {
        case RESP_MORE:
        case RESP_END:
                break;
        case RESP_STATUS:
        case RESP_ERROR:
                story_add(s, t->kind == RESP_STATUS ? "+" : "-", 1);
                story_add(s, t->text, t->text_len);
                break;
        case RESP_INTEGER:
                n = snprintf(text, sizeof(text), ":%lld", (long long)t->number);
                break;
        case RESP_BULK:
                n = snprintf(text, sizeof(text), "$");
                break;
        case RESP_NULL:
                n = snprintf(text, sizeof(text), "null");
                break;
        case RESP_ARRAY:
                n = snprintf(text, sizeof(text), "*%lld@%u.%u", (long long)t->number, t->depth,
                        t->index);
                break;
        }
        story_add(s, text, (size_t)n);
}

/* Parses what has arrived in pieces of `step` bytes. Returns 0 or the error; *ret_ends: replies. */
static int parse_in_steps(
        const char *data, size_t len, size_t step, struct story *s, unsigned *ret_ends)
{
        struct resp_parser p;
        size_t at = 0, arrived = 0, used;

        resp_init(&p, BULK_MAX);
        *s = (struct story){.len = 0};
        *ret_ends = 0;
        for (;;) {
                struct resp_token t;
                int r;

                if (p.payload_left > 0 && at < arrived) {
                        size_t n = MIN(arrived - at, (size_t)p.payload_left);

                        story_add(s, data + at, n);
                        resp_took(&p, n);
                        at += n;
                        continue;
                }
                t.kind = RESP_MORE;
                if (p.payload_left == 0) {
                        r = resp_next(&p, data + at, arrived - at, &used, &t);
                        if (r < 0)
                                return r;
                        at += used;
                        story_token(s, &t);
                        *ret_ends += t.kind == RESP_END;
                        if (t.kind != RESP_MORE)
                                story_add(s, t.kind == RESP_END ? ";" : " ", 1);
                }
                if (t.kind == RESP_MORE) {
                        if (arrived == len)
                                return 0;
                        arrived = MIN(arrived + step, len);
                }
        }
}

static const struct {
        const char *data, *story;
        unsigned n_ends;
} good[] = {
        {"+OK\r\n", "+OK ;", 1},
        {"+\r\n", "+ ;", 1},
        {"-ERR no\r\n+OK\r\n", "-ERR no ;+OK ;", 2},
        {":0\r\n:-1\r\n:9223372036854775807\r\n:-9223372036854775808\r\n",
                ":0 ;:-1 ;:9223372036854775807 ;:-9223372036854775808 ;", 4},
        {"$-1\r\n", "null ;", 1},
        {"*-1\r\n", "null ;", 1},
        {"$0\r\n\r\n", "$ ;", 1},
        {"$3\r\na\r\n\r\n", "$ a\r\n;", 1},
        {"$5\r\nabc\r\n\r\n$-1\r\n", "$ abc\r\n;null ;", 2},
        {"*0\r\n", "*0@0.0 ;", 1},
        {"*2\r\n:1\r\n$3\r\nabc\r\n", "*2@0.0 :1 $ abc;", 1},
        {"*2\r\n*0\r\n*1\r\n*2\r\n+a\r\n$-1\r\n:5\r\n", "*2@0.0 *0@1.0 *1@1.1 *2@2.0 +a null ;:5 ;",
                2},
        {"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
                "*1@0.0 *1@1.0 *1@2.0 *1@3.0 *1@4.0 *1@5.0 *1@6.0 *1@7.0 :1 ;", 1},
};

TEST(test_good)
{
        struct story s;
        unsigned n;

        for (size_t i = 0; i < ARRAY_SIZE(good); i++)
                for (size_t step = 1; step <= strlen(good[i].data); step++) {
                        assert_int_equal(
                                parse_in_steps(good[i].data, strlen(good[i].data), step, &s, &n),
                                0);
                        assert_string_equal(s.text, good[i].story);
                        assert_int_equal(n, good[i].n_ends);
                }
}

static const struct {
        const char *data;
        int result;
} bad[] = {
        {"OK\r\n", -EPROTO},
        {"\r\n", -EPROTO},
        {"+O\nK\r\n", -EPROTO},
        {"+OK\n", -EPROTO},
        {"+OK\rx", -EPROTO},
        {":\r\n", -EPROTO},
        {":+1\r\n", -EPROTO},
        {":-\r\n", -EPROTO},
        {":-0\r\n", -EPROTO},
        {":01\r\n", -EPROTO},
        {": 1\r\n", -EPROTO},
        {":1 \r\n", -EPROTO},
        {":1a\r\n", -EPROTO},
        {":9223372036854775808\r\n", -EPROTO},
        {":-9223372036854775809\r\n", -EPROTO},
        {":99999999999999999999999999\r\n", -EPROTO},
        {"$-2\r\n", -EPROTO},
        {"$1001\r\n", -EMSGSIZE},
        {"$9223372036854775807\r\n", -EMSGSIZE},
        {"$3\r\nabcd\r\n", -EPROTO},
        {"$3\r\nabc\n", -EPROTO},
        {"$3\r\nabc\rx", -EPROTO},
        {"*-2\r\n", -EPROTO},
        {"*65537\r\n", -EPROTO},
        {"*9223372036854775807\r\n", -EPROTO},
        {"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n", -EPROTO},
        {"_\r\n", -EPROTO}, /* RESP3 */
        {"#t\r\n", -EPROTO},
        {"%1\r\n", -EPROTO},
        {">1\r\n", -EPROTO},
};

TEST(test_bad)
{
        struct story s;
        unsigned n;

        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                for (size_t step = 1; step <= strlen(bad[i].data); step++)
                        assert_int_equal(
                                parse_in_steps(bad[i].data, strlen(bad[i].data), step, &s, &n),
                                bad[i].result);
}

/* A line that has no end is refused once it is too long, and not kept for ever. */
TEST(test_long_line)
{
        char line[RESP_LINE_MAX + 3];
        struct resp_parser p;
        struct resp_token t;
        size_t used;

        memset(line, 'x', sizeof(line));
        line[0] = '-';
        memcpy(line + RESP_LINE_MAX, "\r\n", 2);
        resp_init(&p, BULK_MAX);
        assert_int_equal(resp_next(&p, line, RESP_LINE_MAX, &used, &t), 0);
        assert_int_equal(t.kind, RESP_MORE);
        assert_int_equal(used, 0);
        assert_int_equal(resp_next(&p, line, RESP_LINE_MAX + 2, &used, &t), 0);
        assert_int_equal(t.kind, RESP_ERROR);
        assert_int_equal(t.text_len, RESP_LINE_MAX - 1);
        memcpy(line + RESP_LINE_MAX, "x\r\n", 3);
        assert_int_equal(resp_next(&p, line, 1, &used, &t), 0);
        resp_init(&p, BULK_MAX);
        assert_int_equal(resp_next(&p, line, RESP_LINE_MAX + 1, &used, &t), -EPROTO);
        resp_init(&p, BULK_MAX);
        assert_int_equal(resp_next(&p, line, RESP_LINE_MAX + 3, &used, &t), -EPROTO);
}

/* Arrays of arrays: each is within its bound, and all of them together aren't. */
TEST(test_many_tokens)
{
        char head[32];
        struct resp_parser p;
        struct resp_token t;
        unsigned n_tokens = 0;
        size_t used;
        int r = 0;

        resp_init(&p, BULK_MAX);
        snprintf(head, sizeof(head), "*%u\r\n", RESP_ARRAY_MAX);
        assert_int_equal(resp_next(&p, head, strlen(head), &used, &t), 0);
        while (r == 0 && n_tokens < 2 * RESP_TOKENS_MAX) {
                bool is_row = n_tokens % 101 == 0;

                r = resp_next(&p, is_row ? "*100\r\n" : ":1\r\n", is_row ? 6 : 4, &used, &t);
                n_tokens += r == 0;
        }
        assert_int_equal(r, -EPROTO);
        assert_int_equal(n_tokens, RESP_TOKENS_MAX - 1);
}

/* Any bytes give the same result in any pieces. */
TEST(test_random)
{
        static const char letters[] = "+-:$*0123456789\r\n\r\n\r\nab";

        random_start("resp");
        for (unsigned i = 0; i < 20000; i++) {
                struct story whole, pieces;
                char data[64];
                unsigned n_whole, n_pieces;
                size_t len = random_below(sizeof(data));
                int r;

                for (size_t k = 0; k < len; k++)
                        data[k] = letters[random_below(sizeof(letters) - 1)];
                r = parse_in_steps(data, len, sizeof(data), &whole, &n_whole);
                assert_int_equal(
                        parse_in_steps(data, len, 1 + random_below(5), &pieces, &n_pieces), r);
                assert_string_equal(whole.text, pieces.text);
                assert_int_equal(n_whole, n_pieces);
        }
}

static void put_request(struct resp_writer *w)
{
        resp_put_array(w, 5);
        resp_put_word(w, "SET");
        resp_put_bulk(w, "a\0b", 3);
        resp_put_bulk_begin(w, 0);
        resp_put_bulk_end(w);
        resp_put_number(w, UINT64_MAX);
        resp_put_word(w, "");
}

TEST(test_requests)
{
        static const char expected[] =
                "*5\r\n$3\r\nSET\r\n$3\r\na\0b\r\n$0\r\n\r\n$20\r\n18446744073709551615\r\n$0\r\n"
                "\r\n";
        struct resp_writer w = {0};
        char *data;

        put_request(&w);
        assert_int_equal(w.len, sizeof(expected) - 1);
        /* Exactly so much, for a sanitizer to see what is beyond it. */
        data = malloc(w.len);
        assert_non_null(data);
        for (size_t size = 0; size <= sizeof(expected) - 1; size++) {
                w = (struct resp_writer){.data = data, .size = size};
                put_request(&w);
                assert_int_equal(w.len, sizeof(expected) - 1);
        }
        assert_memory_equal(data, expected, sizeof(expected) - 1);
        free(data);
}

TEST(test_command)
{
        static const char expected[] = "*2\r\n$7\r\nCLUSTER\r\n$5\r\nSLOTS\r\n";
        const char *const words[] = {"CLUSTER", "SLOTS", NULL};
        uint32_t len = 0;
        char *text = resp_command_new(words, &len);

        assert_non_null(text);
        assert_int_equal(len, sizeof(expected) - 1);
        assert_memory_equal(text, expected, len);
        free(text);
}
