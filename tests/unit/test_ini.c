#include "tests/unit/test-support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ini.h"
#include "tests/unit/alloc-fail.h"

/* Writes what the reader says into one string: "3[tenant a]limit=4GiB;". */
struct record {
        char text[1024];
        const char *refuse; /* key to refuse */
        bool is_silent;     /* without a message */
};

static int note(const struct ini_entry *e, void *data, char *err, size_t err_len)
{
        struct record *rec = data;
        size_t len = strlen(rec->text);

        if (rec->refuse && e->key && strcmp(e->key, rec->refuse) == 0) {
                if (!rec->is_silent)
                        snprintf(err, err_len, "no such option '%s'", e->key);
                return -ENOENT;
        }
        snprintf(rec->text + len, sizeof(rec->text) - len, "%u[%s %s]%s=%s;", e->line, e->section,
                e->name, e->key ? e->key : "", e->value ? e->value : "");
        return 0;
}

static void check_reads(const char *text, const char *expected)
{
        struct record rec = {0};
        char err[256] = "";

        assert_int_equal(ini_parse("f", text, strlen(text), note, &rec, err, sizeof(err)), 0);
        assert_string_equal(rec.text, expected);
        assert_string_equal(err, "");
}

TEST(test_reads)
{
        check_reads("", "");
        check_reads("\n\n# comment = 1\n ; [x\n", "");
        check_reads("a=1", "1[ ]a=1;");
        check_reads("\xef\xbb\xbf[a]\nb=1", "1[a ]=;2[a ]b=1;");
        check_reads("[daemon]\r\n key =  two words # kept = \t\r\n\nempty=\n",
                "1[daemon ]=;2[daemon ]key=two words # kept =;4[daemon ]empty=;");
        check_reads("[tenant a]\nlimit=4GiB\n [ tenant  b-1 ] \nlimit=1\n",
                "1[tenant a]=;2[tenant a]limit=4GiB;3[tenant b-1]=;4[tenant b-1]limit=1;");
        check_reads("v = \xc3\xa4\n", "1[ ]v=\xc3\xa4;");
}

static void check_refuses(const char *text, size_t len, const char *expected)
{
        struct record rec = {0};
        char err[512] = "";

        assert_int_equal(ini_parse("conf", text, len, note, &rec, err, sizeof(err)), -EINVAL);
        if (strncmp(err, expected, strlen(expected)) != 0)
                fail_msg("'%s', expected '%s'", err, expected);
        assert_true(strlen(err) < 200);
        for (const char *c = err; *c; c++)
                assert_in_range(*c, ' ', '~');
}

TEST(test_refuses)
{
        static const struct {
                const char *text, *expected;
        } rows[] = {
                {"\nx\n", "conf:2: expected 'key = value', '[section]' or a comment"},
                {"[", "conf:1: a section must end with ']': ["},
                {"[a", "conf:1: a section must end with ']': [a"},
                {"[a] x", "conf:1: a section must end with ']': [a] x"},
                {"[]", "conf:1: a section is [word] or [word name]"},
                {"[ ]", "conf:1: a section is [word] or [word name]"},
                {"[a b c]", "conf:1: a section is [word] or [word name]"},
                {"[a b]]", "conf:1: a section is [word] or [word name]"},
                {"[\xff]", "conf:1: a section is [word] or [word name]"},
                {"= 1", "conf:1: a key is made of A-Z a-z 0-9 . _ -: = 1"},
                {"a b = 1", "conf:1: a key is made of"},
                {"a = \x1b[2J", "conf:1: control character \\x1b"},
                {"a = \x7f", "conf:1: control character \\x7f"},
        };

        for (unsigned i = 0; i < ARRAY_SIZE(rows); i++)
                check_refuses(rows[i].text, strlen(rows[i].text), rows[i].expected);
        check_refuses("a\0b = 1", 7, "conf:1: control character \\x00");
}

TEST(test_shows_little_of_the_text)
{
        char text[1000];

        memset(text, '\xee', sizeof(text));
        check_refuses(text, sizeof(text), "conf:1: expected");
        text[0] = '[';
        check_refuses(text, sizeof(text), "conf:1: a section must end");
        text[999] = ']';
        check_refuses(text, sizeof(text), "conf:1: a section is");
        text[500] = '=';
        check_refuses(text + 1, sizeof(text) - 1, "conf:1: a key is");
}

TEST(test_longest_line)
{
        static char text[INI_LINE_MAX + 2];
        struct record rec = {0};
        char err[256];

        memset(text, 'x', sizeof(text));
        text[1] = '=';
        text[INI_LINE_MAX] = '\n';
        assert_int_equal(ini_parse("f", text, INI_LINE_MAX + 1, note, &rec, err, sizeof(err)), 0);
        text[INI_LINE_MAX] = 'x';
        check_refuses(
                text, INI_LINE_MAX + 1, "conf:1: a line has at most 4096 bytes, this one 4097");
        memset(text, ' ', sizeof(text));
        text[0] = '[';
        text[1] = 'a';
        text[INI_LINE_MAX - 1] = ']';
        assert_int_equal(ini_parse("f", text, INI_LINE_MAX, note, &rec, err, sizeof(err)), 0);
}

TEST(test_callback_stops)
{
        static const char text[] = "[s]\na=1\nbad=2\nc=3\n";
        struct record rec = {.refuse = "bad"};
        char err[64], tiny[8];

        assert_int_equal(ini_parse("f", text, strlen(text), note, &rec, err, sizeof(err)), -ENOENT);
        assert_string_equal(err, "f:3: no such option 'bad'");
        assert_string_equal(rec.text, "1[s ]=;2[s ]a=1;");
        assert_int_equal(
                ini_parse("f", text, strlen(text), note, &rec, tiny, sizeof(tiny)), -ENOENT);
        assert_string_equal(tiny, "f:3: no");
        rec.is_silent = true;
        assert_int_equal(ini_parse("f", text, strlen(text), note, &rec, err, sizeof(err)), -ENOENT);
        assert_string_equal(err, "f:3: No such file or directory");
}

/* Keeps copies, as a configuration does. */
static int keep(const struct ini_entry *e, void *data, char *err, size_t err_len)
{
        char ***next = data;
        char *copy = e->key ? malloc(strlen(e->value) + 1) : NULL;

        if (!e->key)
                return 0;
        if (!copy)
                return -ENOMEM;
        *(*next)++ = strcpy(copy, e->value);
        return 0;
}

TEST(test_no_memory_in_the_callback)
{
        static const char text[] = "[s]\na=1\nb=2\nc=3\n";

        alloc_fail_each(n)
        {
                char *values[3] = {0}, **next = values, err[64] = "";
                int r = ini_parse("f", text, strlen(text), keep, &next, err, sizeof(err));

                assert_int_equal(r, alloc_fail_happened() ? -ENOMEM : 0);
                assert_int_equal(next - values, alloc_fail_happened() ? n - 1 : 3);
                assert_int_equal(err[0] != '\0', alloc_fail_happened());
                for (unsigned i = 0; i < 3; i++)
                        free(values[i]);
        }
}
