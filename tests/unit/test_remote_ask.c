/* One server is asked by itself: what becomes of its replies, and of servers that mean harm. */
#include "tests/unit/test-support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/remote/ask/ask.h"
#include "tests/unit/fake-redis.h"

/* The server's next answer. NULL: none; "": it closes. is_slow: in pieces of a byte. Set by the
 * test, read in the server's thread. */
static const char *_Atomic said;
static _Atomic bool is_slow;

static bool say(struct fake_redis *e, struct fake_conn *c, unsigned n, const struct fake_arg *args)
{
        const char *text = said;

        if (!text)
                return true;
        if (!*text)
                return false;
        if (!is_slow)
                fake_say(c, text);
        else
                for (const char *at = text; *at; at++)
                        fake_say_bytes(c, at, 1);
        return true;
}

static struct remote_asker *asker_open(const struct fake_redis *e)
{
        struct remote_options options = {.connect_msec = 5000};
        struct remote_asker *a = NULL;
        char why[REMOTE_WHY_BYTES];

        assert_int_equal(remote_ask_open(&options, e->address, &a, why), 0);
        assert_string_equal(why, "");
        return a;
}

/* Asks, and compares the reply, or why there is none. */
static int asks(struct remote_asker *a, const char *reply, const char *expected)
{
        static const char *const words[] = {"CONFIG", "GET", "x y", NULL};
        char why[REMOTE_WHY_BYTES], *text = NULL;
        int r;

        said = reply;
        r = remote_ask(a, words, &text, why);
        assert_string_equal(r == 0 ? text : why, expected);
        free(text);
        return r;
}

FAKE_REDIS_SCENE(test_replies, 0, say, NULL)
{
        struct remote_asker *a;

        a = asker_open(e);
        for (unsigned i = 0; i < 2; i++) {
                is_slow = i;
                assert_int_equal(asks(a, "+OK\r\n", "OK\n"), 0);
                assert_int_equal(asks(a, ":-7\r\n", "-7\n"), 0);
                assert_int_equal(asks(a, "$5\r\nab\ncd\r\n", "ab\ncd\n"), 0);
                assert_int_equal(asks(a, "$0\r\n\r\n", "\n"), 0);
                assert_int_equal(asks(a, "$-1\r\n", "\n"), 0);
                assert_int_equal(asks(a, "*0\r\n", ""), 0);
                assert_int_equal(
                        asks(a, "*3\r\n$1\r\nk\r\n*2\r\n:1\r\n$-1\r\n+v\r\n", "k\n1\n\nv\n"), 0);
                assert_int_equal(asks(a, "$10\r\na\r\n\033[2Jb\xff\n\r\n", "a\n?[2Jb?\n\n"), 0);
                assert_int_equal(asks(a, "-ERR \033c\r\n", "ERR ?c"), -EREMOTEIO);
                assert_int_equal(asks(a, "-ERR no\r\n", "ERR no"), -EREMOTEIO);
                assert_int_equal(asks(a, "-NOPERM you\r\n", "NOPERM you"), -EACCES);
                assert_int_equal(asks(a, "-NOAUTH\r\n", "NOAUTH"), -EACCES);
                assert_int_equal(asks(a, "+OK\r\n", "OK\n"), 0); /* it goes on */
        }
        remote_ask_close(a);
}

/* Each ends the connection: every later call says the same. */
TEST(test_harm)
{
        static const struct {
                const char *said;
                int error;
        } rows[] = {
                {"nonsense\r\n", -EPROTO},
                {"$2000000\r\n", -EMSGSIZE},
                {"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n", -EPROTO},
                {"", -ECONNRESET},
                {"$5\r\nab", -ETIMEDOUT},
                {NULL, -ETIMEDOUT},
        };
        struct fake_redis e;

        is_slow = false;
        fake_redis_start(&e, 0, say, NULL);
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                struct remote_asker *a = asker_open(&e);
                uint64_t before = clock_now_nsec();

                assert_int_equal(asks(a, rows[i].said, strerror(-rows[i].error)), rows[i].error);
                if (rows[i].error == -ETIMEDOUT)
                        assert_true(clock_now_nsec() - before >= REMOTE_ASK_MSEC * NSEC_PER_MSEC);
                assert_int_equal(asks(a, "+OK\r\n", strerror(-rows[i].error)), rows[i].error);
                remote_ask_close(a);
        }
        fake_redis_stop(&e);
}

/* Many strings that are too long together. */
TEST(test_long)
{
        enum { N = 1100, LEN = 1000 };
        char *text = malloc(N * (LEN + 16) + 16), *at = text;
        struct remote_asker *a;
        struct fake_redis e;

        assert_non_null(text);
        at += sprintf(at, "*%d\r\n", N);
        for (unsigned i = 0; i < N; i++)
                at += sprintf(at, "$%d\r\n%0*u\r\n", LEN, LEN, i);
        is_slow = false;
        fake_redis_start(&e, 0, say, NULL);
        a = asker_open(&e);
        assert_int_equal(asks(a, text, strerror(EMSGSIZE)), -EMSGSIZE);
        remote_ask_close(a);
        fake_redis_stop(&e);
        free(text);
}

/* AUTH comes first, and what it is answered with counts. */
TEST(test_auth)
{
        const struct remote_options options = {
                .connect_msec = 5000, .user = "u", .secret = "s3cret"};
        struct remote_asker *a = NULL;
        char why[REMOTE_WHY_BYTES];
        struct fake_redis e;

        is_slow = false;
        fake_redis_start(&e, 0, say, NULL);
        said = "-WRONGPASS no\r\n";
        assert_int_equal(remote_ask_open(&options, e.address, &a, why), -EACCES);
        assert_string_equal(why, "WRONGPASS no");
        said = "-ERR Client sent AUTH, but no password is set\r\n";
        assert_int_equal(remote_ask_open(&options, e.address, &a, why), -EACCES);
        said = "+OK\r\n";
        assert_int_equal(remote_ask_open(&options, e.address, &a, why), 0);
        assert_int_equal(e.n_requests, 3);
        remote_ask_close(a);
        remote_ask_close(NULL);
        fake_redis_stop(&e);
}
