/* The client of Redis against a server that follows a script: what is sent, and what each answer
 * becomes. What a server that is ill does to it: test_remote_faults.c. */
#include "tests/unit/remote-fixture.h"

#include <errno.h>
#include <stdio.h>

#include "tests/unit/fake-redis.h"
#include "tests/unit/remote-record.h"

#define VALUE_BYTES 100000

/* Answers with the text that the test has set. */
static bool answer_text(
        struct fake_redis *e, struct fake_conn *c, unsigned n, const struct fake_arg *args)
{
        const char *const *text = e->data;

        if (!answer_common(c, args))
                fake_say(c, *text);
        return true;
}

/* ---- reads ---------------------------------------------------------------------------------- */

struct dribble {
        uint8_t value[VALUE_BYTES];
        size_t len, step; /* of one send() */
};

static bool answer_value(
        struct fake_redis *e, struct fake_conn *c, unsigned n, const struct fake_arg *args)
{
        struct dribble *d = e->data;
        size_t len, step = d->step; /* the test changes it once all has arrived */
        char *text, head[32];

        if (answer_common(c, args))
                return true;
        assert_int_equal(n, 2);
        assert_true(fake_arg_is(&args[0], "GET"));
        assert_true(fake_arg_is(&args[1], "{k}1"));
        len = (size_t)snprintf(head, sizeof(head), "$%zu\r\n", d->len);
        text = malloc(len + d->len + 2);
        assert_non_null(text);
        memcpy(text, head, len);
        memcpy(text + len, d->value, d->len);
        memcpy(text + len + d->len, "\r\n", 2);
        len += d->len + 2;
        for (size_t at = 0; at < len; at += step)
                fake_say_bytes(c, text + at, MIN(step, len - at));
        free(text);
        return true;
}

/* Reads into pieces, in any pieces of arrival, and writes nothing behind them. */
TEST(test_read)
{
        static const size_t steps[] = {VALUE_BYTES + 100, 1, 7, 4096, 16384, 50000};
        static const size_t lens[] = {VALUE_BYTES, 1, 0, 16384, 16383, 5000};
        static uint8_t got[VALUE_BYTES + 1];
        struct iovec iov[] = {{got, 1}, {got + 1, 0}, {got + 1, 16383}, {got + 16384, 40000},
                {got + 56384, VALUE_BYTES - 56384}};
        struct dribble d = {.step = 1};
        struct fake_redis e;
        struct remote_store *s;
        struct one o;

        value_make(d.value, VALUE_BYTES, 5);
        fake_redis_start(&e, 0, answer_value, &d);
        s = store_open_at(e.address);
        store_await_known(s);
        for (size_t i = 0; i < ARRAY_SIZE(lens); i++)
                for (size_t k = 0; k < ARRAY_SIZE(steps); k++) {
                        d.len = lens[i];
                        d.step = d.len > 20000 ? MAX(steps[k], (size_t)100) : steps[k];
                        memset(got, 0xee, sizeof(got));
                        one_submit(
                                s, REMOTE_READ, "{k}1", iov, ARRAY_SIZE(iov), in_msec(10000), &o);
                        one_await(s, &o);
                        assert_int_equal(o.result, 0);
                        assert_int_equal(o.n_bytes, d.len);
                        assert_true(value_is(got, d.len, 5));
                        assert_int_equal(got[d.len], 0xee);
                }
        remote_close(s);
        fake_redis_stop(&e);
}

/* A value that is longer than its buffers is passed over, or costs the connection; what is asked
 * next is answered in either case, and never by what was left of it. */
TEST(test_read_too_long)
{
        static uint8_t got[10];
        struct dribble d = {.step = 1000};
        struct iovec iov = {got, 9};
        struct fake_redis e;
        struct remote_store *s;
        struct one o;

        value_make(d.value, VALUE_BYTES, 5);
        fake_redis_start(&e, 0, answer_value, &d);
        s = store_open_at(e.address);
        store_await_known(s);
        for (unsigned i = 0; i < 3; i++) {
                d.len = VALUE_BYTES;
                memset(got, 0xee, sizeof(got));
                one_submit(s, REMOTE_READ, "{k}1", &iov, 1, in_msec(15000), &o);
                one_await(s, &o);
                assert_int_equal(o.result, -EMSGSIZE);
                assert_int_equal(got[0], 0xee);
                d.len = 9;
                one_submit(s, REMOTE_READ, "{k}1", &iov, 1, in_msec(15000), &o);
                one_await(s, &o);
                assert_int_equal(o.result, 0);
                assert_true(value_is(got, 9, 5));
                assert_int_equal(got[9], 0xee);
        }
        assert_true(atomic_load(&e.n_accepted) <= 3); /* for slots, and one of each large thread */
        remote_close(s);
        fake_redis_stop(&e);
}

static bool answer_giant(
        struct fake_redis *e, struct fake_conn *c, unsigned n, const struct fake_arg *args)
{
        if (!answer_common(c, args))
                fake_say(c, fake_arg_is(&args[1], "giant") ? "$50000000\r\nxxx" : "$-1\r\n");
        return true;
}

FAKE_REDIS_SCENE(test_read_giant, 0, answer_giant, NULL)
{
        struct remote_store *s;
        uint8_t got[9];
        struct one o;

        s = store_open_at(e->address);
        store_await_known(s);
        for (unsigned i = 0; i < 5; i++) {
                assert_int_equal(
                        one_call(s, REMOTE_READ, "giant", got, sizeof(got), &o), -EMSGSIZE);
                assert_int_equal(one_call(s, REMOTE_READ, "other", got, sizeof(got), &o), -ENOENT);
        }
        /* The node isn't blamed. */
        assert_int_equal(store_node(s, NULL).n_losses, 0);
        remote_close(s);
}

/* ---- answers -------------------------------------------------------------------------------- */

static const struct {
        enum remote_kind kind;
        const char *answer;
        int result;
        enum breaker_state breaker;
} answers[] = {
        {REMOTE_READ, "$-1\r\n", -ENOENT, BREAKER_CLOSED},
        {REMOTE_READ, "$3\r\nabc\r\n", 0, BREAKER_CLOSED},
        {REMOTE_WRITE, "+OK\r\n", 0, BREAKER_CLOSED},
        {REMOTE_PROBE, ":1\r\n", 0, BREAKER_CLOSED},
        {REMOTE_PROBE, ":0\r\n", 0, BREAKER_CLOSED},
        {REMOTE_REMOVE, ":1\r\n", 0, BREAKER_CLOSED},
        {REMOTE_TOUCH, ":1\r\n", 0, BREAKER_CLOSED},

        {REMOTE_READ, "-TRYAGAIN Multiple keys request during rehashing of slot\r\n", -EAGAIN,
                BREAKER_CLOSED},
        {REMOTE_READ, "-CLUSTERDOWN The cluster is down\r\n", -EAGAIN, BREAKER_CLOSED},
        {REMOTE_WRITE, "-READONLY You can't write against a read only replica.\r\n", -EAGAIN,
                BREAKER_CLOSED},
        {REMOTE_READ, "-LOADING Redis is loading the dataset in memory\r\n", -EAGAIN, BREAKER_OPEN},
        {REMOTE_READ, "-MASTERDOWN Link with MASTER is down\r\n", -EAGAIN, BREAKER_OPEN},
        {REMOTE_READ, "-NOAUTH Authentication required.\r\n", -EACCES, BREAKER_OPEN},
        {REMOTE_READ, "-NOPERM this user has no permissions to access this key\r\n", -EACCES,
                BREAKER_CLOSED},
        {REMOTE_WRITE, "-OOM command not allowed when used memory > 'maxmemory'.\r\n", -ENOSPC,
                BREAKER_CLOSED},
        {REMOTE_READ, "-WRONGTYPE Operation against a key\r\n", -EREMOTEIO, BREAKER_CLOSED},
        {REMOTE_WRITE, "-MISCONF Redis is configured to save\r\n", -EREMOTEIO, BREAKER_CLOSED},
        {REMOTE_READ, "-OOMPH\r\n", -EREMOTEIO, BREAKER_CLOSED},
        {REMOTE_READ, "-\r\n", -EREMOTEIO, BREAKER_CLOSED},
        {REMOTE_READ, "-MOVED 1 nowhere.example:7000\r\n", -EAGAIN, BREAKER_CLOSED},
        {REMOTE_READ, "-MOVED and what not\r\n", -EAGAIN, BREAKER_CLOSED},

        {REMOTE_READ, "+OK\r\n", -EPROTO, BREAKER_CLOSED},
        {REMOTE_READ, ":3\r\n", -EPROTO, BREAKER_CLOSED},
        {REMOTE_READ, "*1\r\n$1\r\na\r\n", -EPROTO, BREAKER_CLOSED},
        {REMOTE_READ, "hello\r\n", -EPROTO, BREAKER_CLOSED},
        {REMOTE_READ, "$-1\r\n$-1\r\n", -ENOENT, BREAKER_CLOSED}, /* one too many */
        {REMOTE_WRITE, "+FINE\r\n", -EPROTO, BREAKER_CLOSED},
        {REMOTE_WRITE, "$-1\r\n", -EPROTO, BREAKER_CLOSED},
        {REMOTE_WRITE, "$2\r\nOK\r\n", -EPROTO, BREAKER_CLOSED},
        {REMOTE_PROBE, ":2\r\n", -EPROTO, BREAKER_CLOSED},
        {REMOTE_PROBE, ":-1\r\n", -EPROTO, BREAKER_CLOSED},
        {REMOTE_PROBE, "$1\r\n1\r\n", -EPROTO, BREAKER_CLOSED},
        {REMOTE_PROBE, "*0\r\n", -EPROTO, BREAKER_CLOSED},
};

TEST(test_answers)
{
        const char *text = NULL;
        struct fake_redis e;
        uint8_t value[9];

        fake_redis_start(&e, 0, answer_text, &text);
        for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
                bool has_value = answers[i].kind == REMOTE_READ || answers[i].kind == REMOTE_WRITE;
                struct remote_store *s = store_open_at(e.address);
                struct one o;

                store_await_known(s);
                text = answers[i].answer;
                if (one_call(s, answers[i].kind, "key", has_value ? value : NULL, 9, &o) !=
                        answers[i].result)
                        fail_msg("%s: %d", answers[i].answer, o.result);
                if (store_node(s, NULL).breaker != answers[i].breaker)
                        fail_msg("%s: %d", answers[i].answer, store_node(s, NULL).breaker);
                remote_close(s);
        }
        fake_redis_stop(&e);
}

/* ---- what is sent --------------------------------------------------------------------------- */

/* Checks the bytes that an operation sends, and its result for these answers. */
static void check_sent(enum remote_kind kind, const struct remote_op *op,
        const struct remote_options *options, const char *const *given, int result,
        const char *sent)
{
        struct record r = {.answers = given};
        struct remote_options with = *options;
        struct fake_redis e;
        struct remote_store *s;
        struct remote_io *io = remote_io_new(1);
        const char *address = e.address;
        struct one o = {.is_done = false};

        fake_redis_start(&e, 0, answer_record, &r);
        with.addresses = &address;
        with.n_addresses = 1;
        s = store_open(&with);
        store_await_known(s);
        io->kind = kind;
        io->of_class = REMOTE_SMALL;
        io->deadline_nsec = in_msec(15000);
        io->done = one_done;
        io->data = &o;
        io->ops[0] = *op;
        assert_int_equal(remote_submit(s, io), 0);
        one_await(s, &o);
        remote_close(s);
        fake_redis_stop(&e);
        assert_int_equal(o.result, result);
        assert_string_equal(r.text, sent);
}

TEST(test_sent)
{
        static const struct remote_options plain, user = {.user = "joe", .secret = "s3cret"},
                                                  secret = {.secret = "s3cret"};
        struct iovec keys[] = {PIECE("{a}1"), PIECE("{a}2"), PIECE("{a}")};
        struct iovec value[] = {PIECE("one"), PIECE(""), PIECE("two")};
        struct remote_op many = {.keys = keys, .n_keys = 3};
        struct remote_op read = {.keys = keys, .n_keys = 1, .iov = value, .n_iov = 3};
        struct remote_op write = read;
        const char *const one[] = {":1\r\n"}, *const zero_ok[] = {":0\r\n", "+OK\r\n"},
                          *const ok[] = {"+OK\r\n"}, *const null[] = {"$-1\r\n"},
                          *const two[] = {":2\r\n"};

        write.expiry_msec = 1500;
        check_sent(REMOTE_PROBE, &many, &plain, one, 0, "EXISTS {a}1 {a}2 {a};");
        check_sent(REMOTE_REMOVE, &many, &plain, one, 0, "UNLINK {a}1 {a}2 {a};");
        check_sent(REMOTE_TOUCH, &many, &plain, one, 0, "TOUCH {a}1 {a}2 {a};");
        check_sent(REMOTE_READ, &read, &plain, null, -ENOENT, "GET {a}1;");
        check_sent(REMOTE_WRITE, &write, &plain, ok, 0, "SET {a}1 onetwo PX 1500;");
        /* First of all, on each connection: here that of the question for slots. */
        check_sent(REMOTE_PROBE, &many, &user, one, 0, "AUTH joe s3cret;EXISTS {a}1 {a}2 {a};");
        check_sent(REMOTE_PROBE, &many, &secret, one, 0, "AUTH s3cret;EXISTS {a}1 {a}2 {a};");
        write.only_new = true;
        check_sent(REMOTE_WRITE, &write, &plain, ok, 0, "SET {a}1 onetwo PX 1500 NX;");
        check_sent(REMOTE_WRITE, &write, &plain, null, -EEXIST, "SET {a}1 onetwo PX 1500 NX;");
        write.only_new = false;
        write.asks_first = true;
        check_sent(REMOTE_WRITE, &write, &plain, one, -EEXIST, "EXISTS {a}1;");
        check_sent(
                REMOTE_WRITE, &write, &plain, zero_ok, 0, "EXISTS {a}1;SET {a}1 onetwo PX 1500;");
        check_sent(REMOTE_WRITE, &write, &plain, two, -EPROTO, "EXISTS {a}1;");
}

/* A value of many pieces, larger than any socket's buffer, besides others. */
struct sink {
        unsigned n_good;
};

static bool answer_sink(
        struct fake_redis *e, struct fake_conn *c, unsigned n, const struct fake_arg *args)
{
        struct sink *sink = e->data;

        if (answer_common(c, args))
                return true;
        assert_true(fake_arg_is(&args[0], "SET"));
        sink->n_good +=
                value_is((const uint8_t *)args[2].data, args[2].len, (uint32_t)atoi(args[1].data));
        fake_say(c, "+OK\r\n");
        return true;
}

TEST(test_large_writes)
{
        enum { BYTES = 3 << 20, PIECES = REMOTE_IOV_MAX, N = 6 }; /* each beyond a window */
        uint8_t *values[N];
        struct iovec iov[N][PIECES];
        struct sink sink = {0};
        struct fake_redis e;
        struct remote_store *s;
        struct one ones[N];
        char key[8];

        fake_redis_start(&e, 0, answer_sink, &sink);
        s = store_open_at(e.address);
        store_await_known(s);
        for (unsigned i = 0; i < N; i++) {
                size_t at = 0;

                values[i] = malloc(BYTES);
                assert_non_null(values[i]);
                value_make(values[i], BYTES, i);
                for (unsigned k = 0; k < PIECES; k++) {
                        size_t len = k + 1 < PIECES ? 1 + k * 50 : BYTES - at;

                        iov[i][k] = (struct iovec){values[i] + at, len};
                        at += len;
                }
                snprintf(key, sizeof(key), "%u", i);
                one_submit(s, REMOTE_WRITE, key, iov[i], PIECES, in_msec(60000), &ones[i]);
        }
        for (unsigned i = 0; i < N; i++) {
                one_await(s, &ones[i]);
                assert_int_equal(ones[i].result, 0);
                free(values[i]);
        }
        assert_int_equal(store_node(s, NULL).bytes_out, (uint64_t)N * BYTES);
        remote_close(s);
        fake_redis_stop(&e);
        assert_int_equal(sink.n_good, N);
}

/* ---- redirections --------------------------------------------------------------------------- */

TEST(test_redirects)
{
        char moved[64], ask[64];
        const char *first[] = {moved, NULL}, *second[] = {":1\r\n", ":1\r\n"};
        const char *first_ask[] = {ask, ":1\r\n", NULL}, *second_ask[] = {"+OK\r\n", ":1\r\n"};
        const char *first_twice[] = {moved, NULL}, *second_twice[] = {moved, NULL};
        struct remote_store *s;
        struct remote_stats stats;
        struct pair p;
        struct one o;

        /* For good: the second time it goes there at once. */
        pair_start(&p, first, second);
        snprintf(moved, sizeof(moved), "-MOVED %u 127.0.0.1:%u\r\n", 12539, p.servers[1].port);
        s = store_open_at(p.servers[0].address);
        store_await_known(s);
        assert_int_equal(one_call(s, REMOTE_PROBE, "key", NULL, 0, &o), 0);
        assert_int_equal(o.n_found, 1);
        assert_string_equal(p.records[0].text, "EXISTS key;");
        assert_string_equal(p.records[1].text, "EXISTS key;");
        remote_stats(s, &stats);
        assert_int_equal(stats.n_redirects, 1);
        remote_close(s);
        pair_stop(&p);

        /* For once. */
        pair_start(&p, first_ask, second_ask);
        snprintf(ask, sizeof(ask), "-ASK %u 127.0.0.1:%u\r\n", 12539, p.servers[1].port);
        s = store_open_at(p.servers[0].address);
        store_await_known(s);
        assert_int_equal(one_call(s, REMOTE_PROBE, "key", NULL, 0, &o), 0);
        assert_int_equal(one_call(s, REMOTE_PROBE, "key", NULL, 0, &o), 0);
        assert_string_equal(p.records[0].text, "EXISTS key;EXISTS key;");
        assert_string_equal(p.records[1].text, "ASKING;EXISTS key;");
        remote_close(s);
        pair_stop(&p);

        /* A second redirection is a miss. */
        pair_start(&p, first_twice, second_twice);
        snprintf(moved, sizeof(moved), "-MOVED %u 127.0.0.1:%u\r\n", 12539, p.servers[1].port);
        s = store_open_at(p.servers[0].address);
        store_await_known(s);
        assert_int_equal(one_call(s, REMOTE_PROBE, "key", NULL, 0, &o), -EAGAIN);
        assert_string_equal(p.records[1].text, "EXISTS key;");
        remote_close(s);
        pair_stop(&p);
}

/* ---- slots ---------------------------------------------------------------------------------- */

/* A server whose first answer to CLUSTER SLOTS differs from later ones. */
struct slots {
        char first[256];
        const char *later; /* NULL: not at all */
        const char *get;   /* the answer to GET */
        _Atomic unsigned n_asked, n_gets;
};

static bool answer_slots(
        struct fake_redis *e, struct fake_conn *c, unsigned n, const struct fake_arg *args)
{
        struct slots *slots = e->data;

        if (c->is_stuck)
                return true;
        if (fake_arg_is(&args[0], "CLUSTER") && atomic_fetch_add(&slots->n_asked, 1) == 0) {
                fake_say(c, slots->first);
        } else if (fake_arg_is(&args[0], "CLUSTER")) {
                c->is_stuck = !slots->later;
                fake_say(c, slots->later ? slots->later : "");
        } else {
                atomic_fetch_add(&slots->n_gets, 1);
                fake_say(c, slots->get);
        }
        return true;
}

/* All slots are of this server. */
static void slots_all(struct slots *slots, const struct fake_redis *e)
{
        snprintf(slots->first, sizeof(slots->first),
                "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%u\r\n", e->port);
}

/* After a MOVED the client goes to the new node at once, until it learns other slots. */
TEST(test_moved_stays)
{
        struct slots old = {.later = NULL}, new = {.get = "$1\r\nx\r\n"};
        struct fake_redis from, to;
        struct remote_store *s;
        char moved[64], got[1];
        struct one o;

        fake_redis_start(&from, 0, answer_slots, &old);
        fake_redis_start(&to, 0, answer_slots, &new);
        slots_all(&old, &from);
        snprintf(moved, sizeof(moved), "-MOVED 12539 127.0.0.1:%u\r\n", to.port);
        old.get = moved;
        atomic_store(&new.n_asked, 1); /* it doesn't answer that at all */
        s = store_open_at(from.address);
        store_await_known(s);
        for (unsigned i = 0; i < 3; i++)
                assert_int_equal(one_call(s, REMOTE_READ, "key", got, 1, &o), 0);
        assert_int_equal(atomic_load(&old.n_gets), 1);
        assert_int_equal(atomic_load(&new.n_gets), 3);
        remote_close(s);
        fake_redis_stop(&from);
        fake_redis_stop(&to);
}

/* A node that has lost its cluster, and says nonsense, doesn't make us forget it. */
TEST(test_slots_stay)
{
        static const struct {
                const char *later;
                int result;
        } rows[] = {{"*0\r\n", -ENOENT}, {"*1\r\n*0\r\n", -EPROTO}, {"+OK\r\n", -EPROTO},
                {"-NOPERM no\r\n", -EACCES}};

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                struct slots slots = {.later = rows[i].later, .get = "-CLUSTERDOWN no\r\n"};
                struct remote_stats stats;
                struct remote_store *s;
                struct fake_redis e;
                struct one o;
                char got[1];

                fake_redis_start(&e, 0, answer_slots, &slots);
                slots_all(&slots, &e);
                s = store_open_at(e.address);
                store_await_known(s);
                assert_int_equal(one_call(s, REMOTE_READ, "key", got, 1, &o), -EAGAIN);
                do {
                        poll(NULL, 0, 1);
                        remote_stats(s, &stats);
                } while (stats.refresh_error == 0);
                assert_int_equal(stats.refresh_error, rows[i].result);
                assert_true(stats.is_known && stats.is_cluster);
                assert_int_equal(stats.n_served, 16384);
                slots.get = "$1\r\nx\r\n";
                assert_int_equal(one_call(s, REMOTE_READ, "key", got, 1, &o), 0);
                remote_close(s);
                fake_redis_stop(&e);
        }
}

/* ---- what isn't accepted -------------------------------------------------------------------- */

static void never_done(struct remote_io *io, void *data)
{
        fail_msg("a batch that wasn't taken was called back");
}

TEST(test_refusals)
{
        struct iovec key = PIECE("key"), two[] = {PIECE("a"), PIECE("b")}, empty = PIECE("");
        struct iovec long_key = {NULL, REMOTE_KEY_MAX + 1}, value = PIECE("v"), none = PIECE("");
        struct iovec giant[] = {{NULL, REMOTE_VALUE_MAX}, {NULL, 1}}, endless = {NULL, SIZE_MAX};
        static char bytes[REMOTE_KEY_MAX + 1];
        const struct {
                enum remote_kind kind;
                struct remote_op op;
                int result;
        } rows[] = {
                {REMOTE_PROBE, {.keys = NULL, .n_keys = 1}, -EINVAL},
                {REMOTE_PROBE, {.keys = &key, .n_keys = 0}, -EINVAL},
                {REMOTE_PROBE, {.keys = &key, .n_keys = REMOTE_KEYS_MAX + 1}, -EINVAL},
                {REMOTE_PROBE, {.keys = &empty, .n_keys = 1}, -EINVAL},
                {REMOTE_PROBE, {.keys = &long_key, .n_keys = 1}, -EINVAL},
                {REMOTE_PROBE, {.keys = two, .n_keys = 2}, -EXDEV},
                {REMOTE_READ, {.keys = two, .n_keys = 2, .iov = &value, .n_iov = 1}, -EINVAL},
                {REMOTE_READ, {.keys = &key, .n_keys = 1}, -EINVAL},
                {REMOTE_READ, {.keys = &key, .n_keys = 1, .iov = &none, .n_iov = 1}, -EINVAL},
                {REMOTE_READ, {.keys = &key, .n_keys = 1, .iov = giant, .n_iov = 2}, -EINVAL},
                {REMOTE_READ, {.keys = &key, .n_keys = 1, .iov = &endless, .n_iov = 1}, -EINVAL},
                {REMOTE_READ,
                        {.keys = &key, .n_keys = 1, .iov = &value, .n_iov = REMOTE_IOV_MAX + 1},
                        -EINVAL},
                {REMOTE_WRITE, {.keys = &key, .n_keys = 1, .iov = &value, .n_iov = 1}, -EINVAL},
                {REMOTE_WRITE,
                        {.keys = &key,
                                .n_keys = 1,
                                .iov = &value,
                                .n_iov = 1,
                                .expiry_msec = UINT64_MAX},
                        -EINVAL},
                {(enum remote_kind)77, {.keys = &key, .n_keys = 1}, -EINVAL},
        };
        struct remote_store *s = store_open_at("127.0.0.1:1");

        memset(bytes, 'x', sizeof(bytes));
        long_key.iov_base = bytes;
        assert_null(remote_io_new(0));
        assert_null(remote_io_new(REMOTE_OPS_MAX + 1));
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                struct remote_io *io = remote_io_new(2);

                /* The first one is good, and isn't done either. */
                io->kind = rows[i].kind;
                io->deadline_nsec = in_msec(1000);
                io->done = never_done;
                io->ops[0] = (struct remote_op){
                        .keys = &key, .n_keys = 1, .iov = &value, .n_iov = 1, .expiry_msec = 1};
                io->ops[1] = rows[i].op;
                if (remote_submit(s, io) != rows[i].result)
                        fail_msg("row %zu", i);
                remote_io_free(io);
        }
        remote_close(s);
}

TEST(test_options)
{
        const char *good = "127.0.0.1:1",
                   *bad[] = {"", "host", "host:", ":1", "host:0", "host:65536", "host:1x", "::1:1",
                           "[::1]", "[]:1"};
        const struct remote_options rows[] = {
                {.addresses = &good, .n_addresses = 0},
                {.addresses = &good, .n_addresses = REMOTE_ADDRESSES_MAX + 1},
                {.addresses = &good, .n_addresses = 1, .large_threads = 5},
                {.addresses = &good, .n_addresses = 1, .max_ops = 1u << 30},
                {.addresses = &good, .n_addresses = 1, .connect_msec = 1000000},
                {.addresses = &good, .n_addresses = 1, .user = "joe"},
                {.addresses = &good, .n_addresses = 1, .is_tls = true, .tls_cert = "x"},
                {.addresses = &good, .n_addresses = 1, .is_tls = true, .tls_ca = "/nowhere"},
                {.addresses = &good, .n_addresses = 1, .is_tls = true, .tls_ca = "/etc/passwd"},
        };
        char why[REMOTE_WHY_BYTES];
        struct remote_store *s;

        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                struct remote_options o = {.addresses = &bad[i], .n_addresses = 1};

                assert_int_equal(remote_open(&o, &s, why), -EINVAL);
                assert_non_null(strstr(why, "address"));
        }
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                assert_int_equal(remote_open(&rows[i], &s, why), -EINVAL);
                assert_true(strlen(why) > 0);
        }
}
