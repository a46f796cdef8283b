/* Work on values in the store's threads: when it is called, and what becomes of its result. */
#include "tests/unit/remote-fixture.h"

#include <errno.h>
#include <pthread.h>

#include "tests/unit/fake-redis.h"
#include "tests/unit/remote-record.h"

/* Arguments of on_value. */
struct worked {
        unsigned n;
        int result; /* that it returns */
        uint64_t n_bytes;
        char first; /* byte of the value, as it found it */
        pthread_t thread;
};

/* Makes capitals of small letters where they lie, in the store's thread. */
static int make_capitals(const struct remote_op *op, void *data)
{
        struct worked *w = data;
        char *at = op->iov[0].iov_base;

        w->n++;
        w->n_bytes = op->n_bytes;
        w->first = *at;
        w->thread = pthread_self();
        for (size_t i = 0; i < op->iov[0].iov_len; i++)
                at[i] &= ~0x20;
        return w->result;
}

/* The result of an operation of three bytes, "abc", with make_capitals(). */
static int work_at(const char *address, enum remote_kind kind, bool asks_first, struct worked *w,
        char value[3])
{
        struct iovec key = PIECE("{a}1"), piece = {value, 3};
        struct remote_io *io = remote_io_new(1);
        struct remote_store *s = store_open_at(address);
        struct one o = {.is_done = false};

        memcpy(value, "abc", 3);
        store_await_known(s);
        io->kind = kind;
        io->of_class = REMOTE_LARGE;
        io->deadline_nsec = in_msec(15000);
        io->done = one_done;
        io->data = &o;
        io->ops[0] = (struct remote_op){.keys = &key,
                .n_keys = 1,
                .iov = &piece,
                .n_iov = 1,
                .on_value = make_capitals,
                .value_data = w,
                .expiry_msec = 1500,
                .asks_first = asks_first};
        assert_int_equal(remote_submit(s, io), 0);
        one_await(s, &o);
        remote_close(s);
        if (w->n > 0)
                assert_false(pthread_equal(w->thread, pthread_self()));
        return o.result;
}

/* Runs it once, with a server that gives these answers. */
static int work_once(enum remote_kind kind, bool asks_first, struct worked *w, char value[3],
        const char *const *given, const char *sent)
{
        struct record r = {.answers = given};
        struct fake_redis e;
        int result;

        fake_redis_start(&e, 0, answer_record, &r);
        result = work_at(e.address, kind, asks_first, w, value);
        fake_redis_stop(&e);
        assert_string_equal(r.text, sent);
        return result;
}

TEST(test_written)
{
        const char *const ok[] = {"+OK\r\n"}, *const there[] = {":1\r\n"},
                          *const absent[] = {":0\r\n", "+OK\r\n"}, *const none[] = {NULL};
        struct worked w = {0};
        char value[3];

        assert_int_equal(work_once(REMOTE_WRITE, false, &w, value, ok, "SET {a}1 ABC PX 1500;"), 0);
        assert_int_equal(w.n, 1);
        /* A value that exists isn't worked on. */
        w.n = 0;
        assert_int_equal(work_once(REMOTE_WRITE, true, &w, value, there, "EXISTS {a}1;"), -EEXIST);
        assert_int_equal(w.n, 0);
        assert_memory_equal(value, "abc", 3);
        assert_int_equal(work_once(REMOTE_WRITE, true, &w, value, absent,
                                 "EXISTS {a}1;SET {a}1 ABC PX 1500;"),
                0);
        assert_int_equal(w.n, 1);
        /* Where it fails nothing is sent. */
        w = (struct worked){.result = -EIO};
        assert_int_equal(work_once(REMOTE_WRITE, false, &w, value, none, ""), -EIO);
        assert_int_equal(w.n, 1);
}

TEST(test_read)
{
        const char *const two[] = {"$2\r\nxy\r\n"}, *const null[] = {"$-1\r\n"},
                          *const more[] = {"$4\r\nxyzz\r\n"};
        struct worked w = {0};
        char value[3];

        assert_int_equal(work_once(REMOTE_READ, false, &w, value, two, "GET {a}1;"), 0);
        assert_int_equal(w.n, 1);
        assert_int_equal(w.n_bytes, 2);
        assert_int_equal(w.first, 'x');
        assert_memory_equal(value, "XY", 2);
        w = (struct worked){.result = -EIO};
        assert_int_equal(work_once(REMOTE_READ, false, &w, value, two, "GET {a}1;"), -EIO);
        w = (struct worked){.result = -EIO};
        assert_int_equal(work_once(REMOTE_READ, false, &w, value, null, "GET {a}1;"), -ENOENT);
        assert_int_equal(work_once(REMOTE_READ, false, &w, value, more, "GET {a}1;"), -EMSGSIZE);
        assert_int_equal(w.n, 0);
}

/* A value that is sent again, to another node, isn't worked on again. */
TEST(test_redirected)
{
        char moved[64], value[3];
        const char *first[] = {moved}, *second[] = {"+OK\r\n"};
        struct worked w = {0};
        struct pair p;

        pair_start(&p, first, second);
        snprintf(moved, sizeof(moved), "-MOVED 1 127.0.0.1:%u\r\n", p.servers[1].port);
        assert_int_equal(work_at(p.servers[0].address, REMOTE_WRITE, false, &w, value), 0);
        pair_stop(&p);
        assert_string_equal(p.records[0].text, "SET {a}1 ABC PX 1500;");
        assert_string_equal(p.records[1].text, "SET {a}1 ABC PX 1500;");
        assert_int_equal(w.n, 1);
}
