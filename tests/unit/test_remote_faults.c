/* The client of Redis when a server is ill: it stalls, answers late, by half or not at all, goes
 * away and comes back; and what is cancelled, late or too much. */
#include "tests/unit/remote-fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netdb.h>
#include <sched.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "tests/unit/fake-redis.h"

/* Time for a thread to be scheduled on a machine that is busy with other tests. kvlease-bench
 * measures the bound itself, 10 ms. */
#define LATE_MSEC 5000

static bool answer_common(struct fake_conn *c, const struct fake_arg *args)
{
        if (!fake_arg_is(&args[0], "CLUSTER"))
                return false;
        fake_say(c, "-ERR This instance has cluster support disabled\r\n");
        return true;
}

/* By the key: nothing is answered any more from "hang" on; "half" is answered by half, "odd" by
 * nonsense, "wrong" by what isn't an answer to it; "half" and "gone" close the connection. */
static bool answer_by_key(
        struct fake_redis *e, struct fake_conn *c, unsigned n, const struct fake_arg *args)
{
        c->is_stuck |= fake_arg_is(&args[1], "hang");
        if (c->is_stuck || answer_common(c, args))
                return true;
        if (fake_arg_is(&args[1], "odd"))
                fake_say(c, "HTTP/1.1 400 Bad Request\r\n\r\n");
        else if (fake_arg_is(&args[1], "wrong"))
                fake_say(c, ":7\r\n");
        else if (fake_arg_is(&args[1], "half"))
                fake_say(c, "$100\r\nabc");
        else if (fake_arg_is(&args[0], "GET"))
                fake_say(c, "$5\r\nhello\r\n");
        else
                fake_say(c, fake_arg_is(&args[0], "SET") ? "+OK\r\n" : ":1\r\n");
        return !fake_arg_is(&args[1], "half") && !fake_arg_is(&args[1], "gone");
}

static struct remote_store *known_store(struct fake_redis *e)
{
        struct remote_store *s;

        fake_redis_start(e, 0, answer_by_key, NULL);
        s = store_open_at(e->address);
        store_await_known(s);
        return s;
}

/* ---- time ----------------------------------------------------------------------------------- */

TEST(test_deadline)
{
        uint8_t value[200];
        struct iovec iov = {value, sizeof(value)};
        struct remote_store *s;
        struct fake_redis e;
        struct one o;
        uint64_t deadline;

        s = known_store(&e);
        /* A request that a busy machine doesn't send within its deadline isn't counted. */
        for (unsigned i = 0; store_node(s, NULL).n_timeouts < BREAKER_FAILURES - 1; i++) {
                assert_true(i < 100);
                deadline = in_msec(50);
                one_submit(s, REMOTE_READ, "hang", &iov, 1, deadline, &o);
                one_await(s, &o);
                assert_int_equal(o.result, -ETIMEDOUT);
                assert_true(o.done_nsec >= deadline);
                assert_true(o.done_nsec < deadline + LATE_MSEC * NSEC_PER_MSEC);
        }
        assert_int_equal(store_node(s, NULL).n_losses, 0);

        /* Already over. */
        one_submit(s, REMOTE_PROBE, "key", NULL, 0, clock_now_nsec() - 1, &o);
        one_await(s, &o);
        assert_int_equal(o.result, -ETIMEDOUT);
        assert_int_equal(store_node(s, NULL).n_timeouts, BREAKER_FAILURES - 1);
        remote_close(s);
        fake_redis_stop(&e);
}

/* An answer after the deadline goes to no operation. */
static bool answer_late(
        struct fake_redis *e, struct fake_conn *c, unsigned n, const struct fake_arg *args)
{
        if (answer_common(c, args))
                return true;
        if (fake_arg_is(&args[1], "late"))
                usleep(150000);
        fake_say(c, fake_arg_is(&args[1], "late") ? "$4\r\nlate\r\n" : "$4\r\ngood\r\n");
        return true;
}

FAKE_REDIS_SCENE(test_late_answer, 0, answer_late, NULL)
{
        char late[5] = "", good[5] = "";
        struct iovec iov = {late, 4};
        struct remote_store *s;
        struct one o;

        s = store_open_at(e->address);
        store_await_known(s);
        one_submit(s, REMOTE_READ, "late", &iov, 1, in_msec(30), &o);
        one_await(s, &o);
        assert_int_equal(o.result, -ETIMEDOUT);
        assert_int_equal(one_call(s, REMOTE_READ, "key", good, 4, &o), 0);
        assert_string_equal(good, "good");
        /* The first one's buffers weren't written to since its callback. */
        assert_string_equal(late, "");
        remote_close(s);
}

/* ---- connections that fail ------------------------------------------------------------------ */

TEST(test_losses)
{
        static const struct {
                const char *key;
                int result;
        } rows[] = {{"half", -ECONNRESET}, {"odd", -EPROTO}};
        uint8_t value[200];
        struct remote_store *s;
        struct fake_redis e;
        struct one o;
        unsigned n;

        s = known_store(&e);
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
                for (unsigned k = 0; k < 5; k++) {
                        assert_int_equal(
                                one_call(s, REMOTE_READ, rows[i].key, value, sizeof(value), &o),
                                rows[i].result);
                        /* One that works in between keeps the breaker closed. */
                        assert_int_equal(
                                one_call(s, REMOTE_READ, "key", value, sizeof(value), &o), 0);
                        assert_int_equal(o.n_bytes, 5);
                }
        assert_int_equal(store_node(s, NULL).breaker, BREAKER_CLOSED);
        assert_int_equal(store_node(s, NULL).n_losses, 10);
        /* Closed after an answer, while nothing is asked: it says nothing about the node. Slots are
         * asked for again, on another connection. */
        for (unsigned k = 0; k < 2 * BREAKER_FAILURES; k++) {
                unsigned n_accepted = atomic_load(&e.n_accepted);

                assert_int_equal(one_call(s, REMOTE_PROBE, "gone", NULL, 0, &o), 0);
                while (atomic_load(&e.n_accepted) == n_accepted)
                        store_wait(s, 1);
        }
        /* Some are, where a busy machine let a request go out before the end was seen. */
        assert_true(store_node(s, NULL).n_losses < 10 + BREAKER_FAILURES);
        assert_int_equal(store_node(s, NULL).breaker, BREAKER_CLOSED);
        /* An answer isn't a good one because it is one, nor because slots are told all the time.
         * Its result is there a moment before the breaker knows of it. */
        for (n = 0; one_call(s, REMOTE_READ, "wrong", value, sizeof(value), &o) == -EPROTO; n++)
                assert_true(n < 100);
        assert_int_equal(o.result, -EHOSTDOWN);
        remote_close(s);
        fake_redis_stop(&e);
}

TEST(test_breaker)
{
        struct remote_summary summary;
        uint64_t started, opened;
        uint8_t value[200];
        struct remote_store *s;
        struct fake_redis e;
        uint16_t port;
        struct one o;

        s = known_store(&e);
        port = e.port;
        assert_int_equal(one_call(s, REMOTE_READ, "key", value, sizeof(value), &o), 0);
        fake_redis_stop(&e);
        started = clock_now_nsec();
        do
                one_call(s, REMOTE_READ, "key", value, sizeof(value), &o);
        while (o.result != -EHOSTDOWN && clock_now_nsec() < started + PATIENCE_NSEC);
        opened = clock_now_nsec();
        assert_int_equal(o.result, -EHOSTDOWN);
        assert_true(opened - started < NSEC_PER_SEC);
        assert_int_equal(store_node(s, NULL).breaker, BREAKER_OPEN);
        assert_true(store_node(s, NULL).n_trips > 0);
        assert_true(store_node(s, NULL).open_until_nsec > started + BREAKER_OPEN_NSEC);
        assert_true(store_node(s, NULL).open_until_nsec < opened + BREAKER_OPEN_NSEC);
        remote_summary(s, &summary);
        assert_string_equal(remote_state_name(summary.state), "unreached");
        assert_string_equal(summary.left_alone, e.address);
        /* Answered at once while it is open. */
        for (unsigned i = 0; i < 100; i++) {
                one_call(s, REMOTE_READ, "key", value, sizeof(value), &o);
                if (clock_now_nsec() > opened + BREAKER_OPEN_NSEC / 2)
                        break; /* on a busy machine: the server may be tried again */
                assert_int_equal(o.result, -EHOSTDOWN);
        }
        fake_redis_start(&e, port, answer_by_key, NULL);
        while (one_call(s, REMOTE_READ, "key", value, sizeof(value), &o) == -EHOSTDOWN) {
                assert_true(clock_now_nsec() < opened + PATIENCE_NSEC);
                poll(NULL, 0, 10);
        }
        assert_int_equal(o.result, 0);
        assert_true(clock_now_nsec() - opened > BREAKER_OPEN_NSEC / 2);
        assert_int_equal(store_node(s, NULL).breaker, BREAKER_CLOSED);
        remote_close(s);
        fake_redis_stop(&e);
}

/* A node that takes connections, and says nothing: each attempt costs a deadline, until it has been
 * silent for so long that its breaker opens. */
TEST(test_stopped)
{
        enum { SILENCE_MSEC = 500 };
        const char *address;
        struct remote_options options = {
                .addresses = &address, .n_addresses = 1, .silence_msec = SILENCE_MSEC};
        struct remote_store *s;
        struct fake_redis e;
        uint64_t started;
        struct one o;

        fake_redis_start(&e, 0, answer_by_key, NULL);
        address = e.address;
        s = store_open(&options);
        store_await_known(s);
        assert_int_equal(one_call(s, REMOTE_PROBE, "key", NULL, 0, &o), 0);
        atomic_store(&e.is_deaf, true);
        fake_redis_wake(&e);
        started = clock_now_nsec();
        do {
                one_submit(s, REMOTE_PROBE, "key", NULL, 0, in_msec(20), &o);
                one_await(s, &o);
                assert_true(clock_now_nsec() - started < PATIENCE_NSEC);
        } while (o.result != -EHOSTDOWN);
        assert_true(clock_now_nsec() - started < (SILENCE_MSEC + LATE_MSEC) * NSEC_PER_MSEC);
        assert_int_equal(store_node(s, NULL).n_losses, 1);
        assert_int_equal(store_node(s, NULL).last_error, -ETIMEDOUT);
        remote_close(s);
        fake_redis_stop(&e);
}

/* How long a node may be silent is the remote's to say. What it owes ends then, and nothing that
 * waits for a long time. */
TEST(test_silent)
{
        enum { SILENCE_MSEC = 400 };
        const char *address;
        struct remote_options options = {
                .addresses = &address, .n_addresses = 1, .silence_msec = SILENCE_MSEC};
        uint64_t started;
        struct remote_store *s;
        struct fake_redis e;
        struct one o, other;

        fake_redis_start(&e, 0, answer_by_key, NULL);
        address = e.address;
        s = store_open(&options);
        store_await_known(s);
        /* Nothing is owed. */
        poll(NULL, 0, 3 * SILENCE_MSEC);
        assert_int_equal(store_node(s, NULL).n_losses, 0);
        started = clock_now_nsec();
        one_submit(s, REMOTE_PROBE, "hang", NULL, 0, in_msec(SILENCE_MSEC / 2), &o);
        one_submit(s, REMOTE_PROBE, "hang", NULL, 0, in_msec(30000), &other);
        one_await(s, &o);
        assert_int_equal(o.result, -ETIMEDOUT);
        assert_true(store_node(s, NULL).n_losses == 0 ||
                    clock_now_nsec() - started >= SILENCE_MSEC * NSEC_PER_MSEC);
        /* Other requests meanwhile don't hide its silence. */
        for (unsigned i = 0; !other.is_done; i++) {
                assert_true(clock_now_nsec() - started < PATIENCE_NSEC);
                one_submit(s, REMOTE_PROBE, "hang", NULL, 0, in_msec(5), &o);
                one_await(s, &o);
        }
        assert_int_equal(other.result, -ETIMEDOUT);
        assert_true(other.done_nsec - started >= SILENCE_MSEC * NSEC_PER_MSEC);
        assert_true(other.done_nsec - started < (SILENCE_MSEC + LATE_MSEC) * NSEC_PER_MSEC);
        assert_int_equal(store_node(s, NULL).n_losses, 1);
        assert_int_equal(store_node(s, NULL).breaker, BREAKER_OPEN);
        remote_close(s);
        fake_redis_stop(&e);
}

/* Connecting hangs: a socket whose queue of connections is full. */
TEST(test_unreachable)
{
        enum { CONNECT_MSEC = 250 };
        struct sockaddr_in address = {
                .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        const char *name;
        struct remote_options options = {
                .addresses = &name, .n_addresses = 1, .connect_msec = CONNECT_MSEC};
        int fill[8], fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        socklen_t len = sizeof(address);
        struct remote_store *s;
        char text[32];
        uint64_t started;

        assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        assert_int_equal(listen(fd, 0), 0);
        assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &len), 0);
        for (unsigned i = 0; i < ARRAY_SIZE(fill); i++) {
                fill[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
                (void)!connect(fill[i], (struct sockaddr *)&address, sizeof(address));
        }
        snprintf(text, sizeof(text), "127.0.0.1:%u", ntohs(address.sin_port));
        started = clock_now_nsec();
        name = text;
        s = store_open(&options);
        /* The question for slots finds it out by itself. */
        while (store_node(s, NULL).breaker != BREAKER_OPEN) {
                assert_true(clock_now_nsec() < started + PATIENCE_NSEC);
                poll(NULL, 0, 1);
        }
        assert_int_equal(store_node(s, NULL).last_error, -ETIMEDOUT);
        /* The kernel alone would take a second for each. */
        assert_true(clock_now_nsec() - started < 3 * NSEC_PER_SEC);
        remote_close(s);
        for (unsigned i = 0; i < ARRAY_SIZE(fill); i++)
                fd_close(fill[i]);
        fd_close(fd);
}

/* The loopback device of this thread's network, and of the threads that it starts. */
static void loopback_set(bool is_up)
{
        struct ifreq request = {.ifr_name = "lo"};
        int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

        assert_int_equal(ioctl(fd, SIOCGIFFLAGS, &request), 0);
        request.ifr_flags =
                (short)(is_up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
        assert_int_equal(ioctl(fd, SIOCSIFFLAGS, &request), 0);
        fd_close(fd);
}

/* The link goes down without notice: bytes aren't acknowledged. That is detected long before the
 * deadline, also for requests of slots. */
TEST(test_cut_off)
{
        int old_net = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
        const char *address;
        struct remote_options options = {
                .addresses = &address, .n_addresses = 1, .silence_msec = 500};
        uint8_t value[5];
        struct iovec iov = {value, sizeof(value)};
        struct remote_store *s;
        struct fake_redis e;
        uint64_t started;
        struct one o;

        assert_true(old_net >= 0);
        if (unshare(CLONE_NEWNET) < 0) {
                fd_close(old_net);
                print_message("skipped: no network of our own (%s)\n", strerror(errno));
                skip();
        }
        loopback_set(true);
        fake_redis_start(&e, 0, answer_by_key, NULL);
        address = e.address;
        s = store_open(&options);
        store_await_known(s);
        assert_int_equal(one_call(s, REMOTE_READ, "key", value, sizeof(value), &o), 0);
        loopback_set(false);
        started = clock_now_nsec();
        one_submit(s, REMOTE_READ, "key", &iov, 1, in_msec(30000), &o);
        one_await(s, &o);
        assert_int_equal(o.result, -ETIMEDOUT);
        assert_true(o.done_nsec - started < 15 * NSEC_PER_SEC);
        assert_int_equal(store_node(s, NULL).n_timeouts, 0); /* of deadlines */
        loopback_set(true);
        do
                one_call(s, REMOTE_READ, "key", value, sizeof(value), &o);
        while (o.result != 0 && clock_now_nsec() < started + PATIENCE_NSEC);
        assert_int_equal(o.result, 0);
        remote_close(s);
        fake_redis_stop(&e);
        assert_int_equal(setns(old_net, CLONE_NEWNET), 0);
        fd_close(old_net);
}

/* ---- AUTH ----------------------------------------------------------------------------------- */

static bool answer_wrong_pass(
        struct fake_redis *e, struct fake_conn *c, unsigned n, const struct fake_arg *args)
{
        assert_true(fake_arg_is(&args[0], "AUTH"));
        fake_say(c, "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
        return true;
}

FAKE_REDIS_SCENE(test_wrong_secret, 0, answer_wrong_pass, NULL)
{
        const char *address;
        struct remote_options options = {.addresses = &address,
                .n_addresses = 1,
                .user = "joe",
                .secret = "wrong",
                .connect_msec = PATIENCE_NSEC / NSEC_PER_MSEC};
        struct remote_node_stats node;
        struct remote_stats stats;
        struct remote_store *s;
        struct one o;

        address = e->address;
        s = store_open(&options);
        do {
                poll(NULL, 0, 1);
                remote_stats(s, &stats);
        } while (stats.refresh_error == 0);
        assert_int_equal(stats.refresh_error, -EACCES);
        node = store_node(s, NULL);
        assert_int_equal(node.breaker, BREAKER_OPEN);
        assert_int_equal(node.last_error, -EACCES);
        assert_int_equal(one_call(s, REMOTE_PROBE, "key", NULL, 0, &o), -EAGAIN);
        /* Nothing but AUTH was ever sent to it. */
        remote_close(s);
}

static bool answer_nothing(
        struct fake_redis *e, struct fake_conn *c, unsigned n, const struct fake_arg *args)
{
        return true;
}

/* The time for a connection to stand is one for all of it: a server that accepts, and never answers
 * AUTH, is given up as soon as one that can't be reached. */
FAKE_REDIS_SCENE(test_silent_secret, 0, answer_nothing, NULL)
{
        const char *address;
        struct remote_options options = {
                .addresses = &address, .n_addresses = 1, .secret = "s3cret", .connect_msec = 20};
        struct remote_store *s;
        uint64_t started;

        address = e->address;
        started = clock_now_nsec();
        s = store_open(&options);
        while (store_node(s, NULL).breaker != BREAKER_OPEN) {
                assert_true(clock_now_nsec() < started + PATIENCE_NSEC);
                poll(NULL, 0, 1);
        }
        assert_int_equal(store_node(s, NULL).last_error, -ETIMEDOUT);
        /* After three times 20 ms, and two pauses of 200 ms between questions for slots. */
        assert_true(clock_now_nsec() - started < 1500 * NSEC_PER_MSEC);
        remote_close(s);
}

/* ---- cancelling ----------------------------------------------------------------------------- */

TEST(test_cancel)
{
        uint8_t value[5];
        struct iovec iov = {value, sizeof(value)};
        struct remote_store *s;
        struct remote_io *io;
        struct fake_redis e;
        unsigned n_before;
        struct one o;

        s = known_store(&e);
        /* On each of the two threads, so that both are connected. */
        for (unsigned i = 0; i < 4; i++)
                assert_int_equal(one_call(s, REMOTE_READ, "key", value, 5, &o), 0);
        n_before = atomic_load(&e.n_accepted);
        for (unsigned i = 0; i < 20; i++) {
                unsigned n_requests = atomic_load(&e.n_requests);

                io = one_submit(s, REMOTE_READ, "hang", &iov, 1, in_msec(10000), &o);
                while (i % 2 == 0 && atomic_load(&e.n_requests) == n_requests)
                        poll(NULL, 0, 1);
                remote_cancel(s, io);
                one_await(s, &o);
                assert_int_equal(o.result, -ECANCELED);
        }
        /* The connections stay, and their answers aren't taken for others'. */
        assert_int_equal(atomic_load(&e.n_accepted), n_before);
        remote_close(s);
        fake_redis_stop(&e);
}

/* Answers "part" with a half, and with the rest when the test says so. */
static bool answer_in_parts(
        struct fake_redis *e, struct fake_conn *c, unsigned n, const struct fake_arg *args)
{
        _Atomic bool *goes_on = e->data;

        if (!fake_arg_is(&args[1], "part"))
                return answer_by_key(e, c, n, args);
        fake_say(c, "$10\r\nhello");
        while (!atomic_load(goes_on))
                usleep(1000);
        fake_say(c, "there\r\n");
        return true;
}

/* Nothing is received any more into what was taken back. */
TEST(test_taken_back_halfway)
{
        uint8_t value[10], other[5];
        struct iovec iov = {value, sizeof(value)};
        _Atomic bool goes_on = false;
        struct remote_store *s;
        struct remote_io *io;
        struct fake_redis e;
        struct one o;

        fake_redis_start(&e, 0, answer_in_parts, &goes_on);
        s = store_open_at(e.address);
        store_await_known(s);
        io = one_submit(s, REMOTE_READ, "part", &iov, 1, in_msec(10000), &o);
        poll(NULL, 0, 50); /* the first half has arrived, or else there is less to see */
        remote_take_back(s, io);
        assert_false(o.is_done);
        memset(value, 0xee, sizeof(value));
        atomic_store(&goes_on, true);
        one_await(s, &o);
        assert_int_equal(o.result, -ECANCELED);
        for (unsigned i = 0; i < 4; i++) /* on both threads */
                assert_int_equal(one_call(s, REMOTE_READ, "key", other, sizeof(other), &o), 0);
        for (unsigned i = 0; i < sizeof(value); i++)
                assert_int_equal(value[i], 0xee);
        remote_close(s);
        fake_redis_stop(&e);
}

/* A deadline doesn't end the connection either. The rest of the value goes to no operation. */
TEST(test_late_halfway)
{
        const char *address;
        struct remote_options options = {
                .addresses = &address, .n_addresses = 1, .large_threads = 1};
        uint8_t value[10], other[5];
        struct iovec iov = {value, sizeof(value)};
        _Atomic bool goes_on = false;
        struct remote_store *s;
        struct fake_redis e;
        unsigned n_accepted;
        struct one o;

        fake_redis_start(&e, 0, answer_in_parts, &goes_on);
        address = e.address;
        s = store_open(&options);
        store_await_known(s);
        assert_int_equal(one_call(s, REMOTE_READ, "key", other, sizeof(other), &o), 0);
        n_accepted = atomic_load(&e.n_accepted);
        one_submit(s, REMOTE_READ, "part", &iov, 1, in_msec(50), &o);
        one_await(s, &o);
        assert_int_equal(o.result, -ETIMEDOUT);
        memset(value, 0xee, sizeof(value));
        atomic_store(&goes_on, true);
        assert_int_equal(one_call(s, REMOTE_READ, "key", other, sizeof(other), &o), 0);
        assert_memory_equal(other, "hello", sizeof(other));
        for (unsigned i = 0; i < sizeof(value); i++)
                assert_int_equal(value[i], 0xee);
        assert_int_equal(atomic_load(&e.n_accepted), n_accepted);
        assert_int_equal(store_node(s, NULL).n_losses, 0);
        remote_close(s);
        fake_redis_stop(&e);
}

/* Work on a value that takes its time. */
struct long_work {
        _Atomic bool is_begun, is_over;
};

static int work_long(const struct remote_op *op, void *data)
{
        struct long_work *w = data;

        atomic_store(&w->is_begun, true);
        usleep(50000);
        memset(op->iov[0].iov_base, 'x', op->iov[0].iov_len);
        atomic_store(&w->is_over, true);
        return 0;
}

/* Taking the operation back waits for its work. */
TEST(test_taken_back_while_worked_on)
{
        struct iovec key = PIECE("key"), iov = {malloc(5), 5};
        struct remote_io *io = remote_io_new(1);
        struct long_work w = {false, false};
        struct remote_store *s;
        struct fake_redis e;
        struct one o = {.is_done = false};

        s = known_store(&e);
        io->kind = REMOTE_READ;
        io->of_class = REMOTE_LARGE;
        io->deadline_nsec = in_msec(10000);
        io->done = one_done;
        io->data = &o;
        io->ops[0] = (struct remote_op){.keys = &key,
                .n_keys = 1,
                .iov = &iov,
                .n_iov = 1,
                .on_value = work_long,
                .value_data = &w};
        assert_int_equal(remote_submit(s, io), 0);
        while (!atomic_load(&w.is_begun))
                poll(NULL, 0, 1);
        remote_take_back(s, io);
        assert_true(atomic_load(&w.is_over));
        free(iov.iov_base);
        one_await(s, &o);
        assert_int_equal(o.result, 0); /* it was there before */
        remote_close(s);
        fake_redis_stop(&e);
}

/* Ends a write that has begun. Its buffers are the caller's again at once, by closing the
 * connection, for which the node isn't blamed. */
static void end_write(bool is_late)
{
        enum { BYTES = 32 << 20 };
        uint8_t *value = calloc(1, BYTES), got[5];
        struct iovec iov = {value, BYTES};
        struct remote_store *s;
        struct remote_io *io;
        struct fake_redis e;
        struct one o;

        s = known_store(&e);
        atomic_store(&e.is_deaf, true);
        fake_redis_wake(&e);
        io = one_submit(s, REMOTE_WRITE, "key", &iov, 1, in_msec(is_late ? 100 : 20000), &o);
        poll(NULL, 0, 100);
        assert_false(o.is_done);
        if (!is_late)
                remote_cancel(s, io);
        one_await(s, &o);
        assert_int_equal(o.result, is_late ? -ETIMEDOUT : -ECANCELED);
        free(value);
        atomic_store(&e.is_deaf, false);
        fake_redis_wake(&e);
        assert_int_equal(one_call(s, REMOTE_READ, "key", got, sizeof(got), &o), 0);
        assert_int_equal(store_node(s, NULL).n_losses, 0);
        remote_close(s);
        fake_redis_stop(&e);
}

TEST(test_cancel_write)
{
        end_write(false);
}

TEST(test_late_write)
{
        end_write(true);
}

/* ---- bounds --------------------------------------------------------------------------------- */

static void count_done(struct remote_io *io, void *data)
{
        unsigned *n = data;

        for (uint32_t i = 0; i < io->n; i++)
                *n += io->ops[i].result == -ECANCELED;
}

static struct remote_io *hang_new(uint32_t n, struct iovec *key, unsigned *n_canceled)
{
        struct remote_io *io = remote_io_new(n);

        assert_non_null(io);
        io->kind = REMOTE_PROBE;
        io->deadline_nsec = in_msec(30000);
        io->done = count_done;
        io->data = n_canceled;
        for (uint32_t i = 0; i < n; i++)
                io->ops[i] = (struct remote_op){.keys = key, .n_keys = 1};
        return io;
}

/* The maximum of operations waits; close() ends all of them. */
FAKE_REDIS_SCENE(test_busy_and_close, 0, answer_by_key, NULL)
{
        struct iovec key = PIECE("hang");
        struct remote_options options = {.n_addresses = 1, .max_ops = 500};
        const char *address;
        unsigned n_canceled = 0, n_more = 0;
        struct remote_stats stats;
        struct remote_store *s;
        struct remote_io *io;

        address = e->address;
        options.addresses = &address;
        s = store_open(&options);
        store_await_known(s);
        for (unsigned i = 0; i < 5; i++)
                assert_int_equal(remote_submit(s, hang_new(100, &key, &n_canceled)), 0);
        io = hang_new(1, &key, &n_more);
        assert_int_equal(remote_submit(s, io), REMOTE_BUSY);
        remote_stats(s, &stats);
        assert_int_equal(stats.n_waiting, 500);
        /* No more is asked at once than a window has room for. */
        poll(NULL, 0, 50);
        assert_true(atomic_load(&e->n_requests) <= REMOTE_WINDOW_OPS + 1);
        remote_io_free(io);
        remote_close(s);
        assert_int_equal(n_canceled, 500);
}

TEST(test_window)
{
        static uint8_t value[1 << 20];
        struct iovec iov = {value, sizeof(value)};
        const char *address;
        struct remote_options options = {
                .addresses = &address, .n_addresses = 1, .large_threads = 1};
        struct remote_store *s;
        struct fake_redis e;
        struct one ones[8];
        unsigned n_before;

        fake_redis_start(&e, 0, answer_by_key, NULL);
        address = e.address;
        s = store_open(&options);
        store_await_known(s);
        n_before = atomic_load(&e.n_requests);
        for (unsigned i = 0; i < ARRAY_SIZE(ones); i++)
                one_submit(s, REMOTE_READ, "hang", &iov, 1, in_msec(30000), &ones[i]);
        while (atomic_load(&e.n_requests) == n_before)
                poll(NULL, 0, 1);
        poll(NULL, 0, 100);
        assert_true(atomic_load(&e.n_requests) - n_before <= REMOTE_WINDOW_BYTES / sizeof(value));
        remote_close(s);
        fake_redis_stop(&e);
        for (unsigned i = 0; i < ARRAY_SIZE(ones); i++)
                assert_int_equal(ones[i].result, -ECANCELED);
}

TEST(test_names)
{
        struct remote_store *s;
        struct fake_redis e;
        char address[32];
        struct addrinfo *found;
        struct one o;

        if (getaddrinfo("localhost", NULL, NULL, &found)) {
                print_message("skipped: this machine has no address of localhost (/etc/hosts)\n");
                skip();
        }
        freeaddrinfo(found);
        fake_redis_start(&e, 0, answer_by_key, NULL);
        snprintf(address, sizeof(address), "localhost:%u", e.port);
        s = store_open_at(address);
        store_await_known(s);
        assert_int_equal(one_call(s, REMOTE_PROBE, "key", NULL, 0, &o), 0);
        remote_close(s);
        fake_redis_stop(&e);
        /* One that there isn't: nothing is known, and it ends as well. */
        s = store_open_at("nowhere.invalid:1");
        assert_int_equal(one_call(s, REMOTE_PROBE, "key", NULL, 0, &o), -EAGAIN);
        remote_close(s);
}
