/* The client of Redis is shared: what one caller asks for, cancels or has no patience for costs
 * others nothing, nor the node its name. */
#include "tests/unit/remote-fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "tests/unit/fake-redis.h"

static bool answer_common(struct fake_conn *c, const struct fake_arg *args)
{
        if (!fake_arg_is(&args[0], "CLUSTER"))
                return false;
        fake_say(c, "-ERR This instance has cluster support disabled\r\n");
        return true;
}

/* One connection for small operations, and one for large ones. */
static struct remote_store *open_narrow(const char *address, unsigned silence_msec)
{
        struct remote_store *s = store_open(&(struct remote_options){.addresses = &address,
                .n_addresses = 1,
                .large_threads = 1,
                .silence_msec = silence_msec});

        store_await_known(s);
        return s;
}

/* Sets an option of the client's connections to this port. */
static void sockets_set(uint16_t port, int level, int name, int value)
{
        for (int fd = 3; fd < 256; fd++) {
                struct sockaddr_in peer;
                socklen_t len = sizeof(peer);

                if (getpeername(fd, (struct sockaddr *)&peer, &len) == 0 &&
                        peer.sin_family == AF_INET && ntohs(peer.sin_port) == port)
                        (void)setsockopt(fd, level, name, &value, sizeof(value));
        }
}

/* ---- short deadlines ------------------------------------------------------------------------ */

/* Each answer takes its time. */
static bool answer_slowly(
        struct fake_redis *e, struct fake_conn *c, unsigned n, const struct fake_arg *args)
{
        if (answer_common(c, args))
                return true;
        usleep(3000);
        fake_say(c, ":1\r\n");
        return true;
}

/* A caller with too short a deadline gets no answer, without other effects. */
FAKE_REDIS_SCENE(test_short_deadlines, 0, answer_slowly, NULL)
{
        unsigned n_accepted, n_late = 0;
        struct remote_store *s;
        struct one hasty, other;

        s = open_narrow(e->address, 0);
        assert_int_equal(one_call(s, REMOTE_PROBE, "key", NULL, 0, &other), 0);
        n_accepted = atomic_load(&e->n_accepted);
        /* A request that a busy machine doesn't send within its deadline isn't counted. */
        for (unsigned i = 0; i < 100 || store_node(s, NULL).n_timeouts == 0; i++) {
                assert_true(i < 10000);
                one_submit(s, REMOTE_PROBE, "key", NULL, 0, in_msec(1), &hasty);
                one_submit(s, REMOTE_PROBE, "key", NULL, 0, in_msec(60000), &other);
                one_await(s, &hasty);
                one_await(s, &other);
                n_late += hasty.result == -ETIMEDOUT;
                assert_int_equal(other.result, 0);
        }
        assert_true(n_late > 0);
        assert_int_equal(store_node(s, NULL).n_losses, 0);
        assert_int_equal(store_node(s, NULL).breaker, BREAKER_CLOSED);
        assert_int_equal(atomic_load(&e->n_accepted), n_accepted);
        remote_close(s);
}

/* ---- slow links ----------------------------------------------------------------------------- */

/* A server that takes up to 16 KiB in seven milliseconds, and answers SINK_BYTES. It pauses for a
 * part of SINK_SILENCE_MSEC before it answers, and before it takes the last ones where it is told
 * to. */
struct slow_sink {
        bool pauses;
        int listen_fd;
        uint16_t port;
        pthread_t thread;
};

enum {
        SINK_BYTES = 6 << 20,
        SINK_LAST = 512 << 10,
        SINK_STEP = 16 << 10,
        SINK_SILENCE_MSEC = 2400,
};

#define SINK_STEP_NSEC (7 * NSEC_PER_MSEC)

static void *sink_run(void *data)
{
        static char bytes[SINK_STEP];
        struct slow_sink *sink = data;
        int fd = accept4(sink->listen_fd, NULL, NULL, SOCK_CLOEXEC);
        ssize_t n = recv(fd, bytes, sizeof(bytes), 0); /* EXISTS */
        uint64_t due_nsec = clock_now_nsec();

        (void)!send(fd, ":0\r\n", 4, MSG_NOSIGNAL);
        for (size_t taken = 0; taken < SINK_BYTES && n > 0; taken += (size_t)n) {
                if (sink->pauses && taken >= SINK_BYTES - SINK_LAST) {
                        usleep(SINK_SILENCE_MSEC * 1000 / 2);
                        sink->pauses = false;
                        due_nsec = clock_now_nsec();
                }
                n = recv(fd, bytes, sizeof(bytes), 0);
                /* A busy machine makes up for lost time: it may not seem silent. */
                for (due_nsec += SINK_STEP_NSEC; clock_now_nsec() < due_nsec;)
                        usleep(1000);
        }
        usleep(SINK_SILENCE_MSEC * 1000 * 3 / 5);
        if (n > 0)
                (void)!send(fd, "+OK\r\n", 5, MSG_NOSIGNAL);
        while (n > 0)
                n = recv(fd, bytes, sizeof(bytes), 0);
        fd_close(fd);
        return NULL;
}

static void sink_start(struct slow_sink *sink)
{
        struct sockaddr_in address = {
                .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof(address);
        int bytes = 128 << 10;

        sink->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(
                setsockopt(sink->listen_fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)), 0);
        assert_int_equal(bind(sink->listen_fd, (struct sockaddr *)&address, sizeof(address)), 0);
        assert_int_equal(listen(sink->listen_fd, 1), 0);
        assert_int_equal(getsockname(sink->listen_fd, (struct sockaddr *)&address, &len), 0);
        sink->port = ntohs(address.sin_port);
        assert_int_equal(pthread_create(&sink->thread, NULL, sink_run, sink), 0);
}

static bool answer_moved(
        struct fake_redis *e, struct fake_conn *c, unsigned n, const struct fake_arg *args)
{
        const struct slow_sink *sink = e->data;
        char text[64];

        if (answer_common(c, args))
                return true;
        snprintf(text, sizeof(text), "-MOVED 1 127.0.0.1:%u\r\n", sink->port);
        fake_say(c, text);
        return true;
}

static void write_slowly(bool pauses)
{
        uint8_t *value = calloc(1, SINK_BYTES);
        struct iovec key = PIECE("key"), iov = {value, SINK_BYTES};
        struct remote_io *io = remote_io_new(1);
        uint64_t started = clock_now_nsec();
        struct remote_store *s;
        struct slow_sink sink = {.pauses = pauses};
        struct fake_redis e;
        struct one o = {.is_done = false};

        sink_start(&sink);
        fake_redis_start(&e, 0, answer_moved, &sink);
        s = open_narrow(e.address, SINK_SILENCE_MSEC);
        io->kind = REMOTE_WRITE;
        io->of_class = REMOTE_LARGE;
        io->deadline_nsec = in_msec(60000);
        io->done = one_done;
        io->data = &o;
        io->ops[0] = (struct remote_op){.keys = &key,
                .n_keys = 1,
                .iov = &iov,
                .n_iov = 1,
                .expiry_msec = 60000,
                .asks_first = true};
        assert_int_equal(remote_submit(s, io), 0);
        one_await(s, &o);
        assert_int_equal(o.result, 0);
        assert_true(clock_now_nsec() - started > 3 * SINK_SILENCE_MSEC / 2 * NSEC_PER_MSEC);
        remote_close(s);
        pthread_join(sink.thread, NULL);
        fd_close(sink.listen_fd);
        fake_redis_stop(&e);
        free(value);
}

/* Nothing is received while a value is on its way, which takes longer than a node may be
 * silent: it isn't, as it takes what it is sent. Nor is it when it has just taken all, whenever
 * that is. */
TEST(test_slow_write)
{
        write_slowly(false);
        write_slowly(true);
}

/* ---- values that are too long --------------------------------------------------------------- */

/* Answers "giant" and "vast" with their beginnings, "later" when the test says so. */
static bool answer_giant(
        struct fake_redis *e, struct fake_conn *c, unsigned n, const struct fake_arg *args)
{
        _Atomic bool *goes_on = e->data;

        if (answer_common(c, args))
                return true;
        while (fake_arg_is(&args[1], "later") && !atomic_load(goes_on))
                usleep(1000);
        if (fake_arg_is(&args[1], "giant"))
                fake_say(c, "$50000000\r\nxxx");
        else if (fake_arg_is(&args[1], "vast") || fake_arg_is(&args[1], "later"))
                fake_say(c, "$500000000\r\nxxx");
        else
                fake_say(c, "$5\r\nhello\r\n");
        return true;
}

static void note_results(struct remote_io *io, void *data)
{
        int *results = data;

        for (uint32_t i = 0; i < io->n; i++)
                results[i] = io->ops[i].result;
}

/* Good values arrive, however often the connection is closed because of others. */
TEST(test_beside_giants)
{
        enum { N = 6 };
        struct iovec giant = PIECE("giant"), vast = PIECE("vast"), good = PIECE("good");
        struct remote_io *io = remote_io_new(N);
        uint64_t until = in_msec(10000);
        struct remote_store *s;
        struct iovec iov[N];
        struct fake_redis e;
        char got[N][6] = {""};
        int results[N];

        fake_redis_start(&e, 0, answer_giant, NULL);
        s = open_narrow(e.address, 0);
        io->kind = REMOTE_READ;
        io->of_class = REMOTE_LARGE;
        io->deadline_nsec = until;
        io->done = note_results;
        io->data = results;
        for (unsigned i = 0; i < N; i++) {
                iov[i] = (struct iovec){got[i], 5};
                io->ops[i] = (struct remote_op){.keys = i == N - 1 ? &good
                                                        : i % 2    ? &vast
                                                                   : &giant,
                        .n_keys = 1,
                        .iov = &iov[i],
                        .n_iov = 1};
        }
        /* All are under way at once. */
        assert_int_equal(remote_submit(s, io), 0);
        while (store_wait(s, 100) == 0)
                assert_true(clock_now_nsec() < until + PATIENCE_NSEC);
        for (unsigned i = 0; i < N - 1; i++)
                assert_int_equal(results[i], -EMSGSIZE);
        assert_int_equal(results[N - 1], 0);
        assert_string_equal(got[N - 1], "hello");
        assert_int_equal(store_node(s, NULL).n_losses, 0);
        assert_int_equal(store_node(s, NULL).breaker, BREAKER_CLOSED);
        remote_close(s);
        fake_redis_stop(&e);
}

/* The answer to an abandoned operation is skipped only if it is about as long as expected. */
TEST(test_behind_a_giant)
{
        _Atomic bool goes_on = false;
        struct remote_store *s;
        struct fake_redis e;
        char got[6] = "", other[6] = "";
        struct iovec iov = {got, 5};
        struct one o;

        fake_redis_start(&e, 0, answer_giant, &goes_on);
        s = open_narrow(e.address, 0);
        one_submit(s, REMOTE_READ, "later", &iov, 1, in_msec(50), &o);
        one_await(s, &o);
        assert_int_equal(o.result, -ETIMEDOUT);
        atomic_store(&goes_on, true);
        assert_int_equal(one_call(s, REMOTE_READ, "good", other, 5, &o), 0);
        assert_string_equal(other, "hello");
        assert_int_equal(store_node(s, NULL).n_losses, 0);
        remote_close(s);
        fake_redis_stop(&e);
}

/* The giant comes when something was written behind it, on that connection; what is written is
 * counted, and acknowledged on another one. */
static bool answer_writes(
        struct fake_redis *e, struct fake_conn *c, unsigned n, const struct fake_arg *args)
{
        _Atomic unsigned *n_written = e->data;

        if (answer_common(c, args))
                return true;
        if (fake_arg_is(&args[0], "GET")) {
                c->is_stuck = true;
                return true;
        }
        atomic_fetch_add(n_written, 1);
        fake_say(c, c->is_stuck ? "$50000000\r\nxxx" : "+OK\r\n");
        return true;
}

/* Requests on a connection that is closed because of others are sent again, unless they must not be
 * executed twice. */
TEST(test_only_once)
{
        for (unsigned once = 0; once < 2; once++) {
                _Atomic unsigned n_written = 0;
                struct remote_store *s;
                struct fake_redis e;
                char got[6] = "", value[6] = "value";
                struct iovec into = {got, 5}, from = {value, 5}, name = PIECE("key");
                struct remote_io *io = remote_io_new(1);
                struct one giant;
                int result = 1;

                fake_redis_start(&e, 0, answer_writes, &n_written);
                s = open_narrow(e.address, 0);
                one_submit(s, REMOTE_READ, "giant", &into, 1, in_msec(15000), &giant);
                io->kind = REMOTE_WRITE;
                io->of_class = REMOTE_LARGE;
                io->deadline_nsec = in_msec(15000);
                io->done = note_results;
                io->data = &result;
                io->ops[0] = (struct remote_op){.keys = &name,
                        .n_keys = 1,
                        .iov = &from,
                        .n_iov = 1,
                        .expiry_msec = 1000,
                        .only_once = once};
                assert_int_equal(remote_submit(s, io), 0);
                one_await(s, &giant);
                assert_int_equal(giant.result, -EMSGSIZE);
                while (result == 1)
                        (void)store_wait(s, 100);
                assert_int_equal(result, once ? -ECONNRESET : 0);
                assert_int_equal(atomic_load(&n_written), once ? 1 : 2);
                remote_close(s);
                fake_redis_stop(&e);
        }
}

/* ---- order ----------------------------------------------------------------------------------- */

#define N_WRITES    6
#define WRITE_BYTES (1u << 20)

struct order {
        _Atomic bool goes_on, has_one;
        _Atomic unsigned n, n_writes_before; /* commands; writes that came before the read */
};

/* Nothing is answered before the test says so. */
static bool answer_in_order(
        struct fake_redis *e, struct fake_conn *c, unsigned n, const struct fake_arg *args)
{
        struct order *o = e->data;

        if (answer_common(c, args))
                return true;
        atomic_store(&o->has_one, true);
        while (!atomic_load(&o->goes_on))
                usleep(1000);
        if (fake_arg_is(&args[0], "GET"))
                atomic_store(&o->n_writes_before, atomic_load(&o->n));
        atomic_fetch_add(&o->n, 1);
        fake_say(c, fake_arg_is(&args[0], "GET") ? "$5\r\nhello\r\n" : "+OK\r\n");
        return true;
}

/* Reads precede waiting writes, in any order of submission. */
TEST(test_reads_come_first)
{
        uint8_t *value = calloc(1, WRITE_BYTES);
        struct iovec from = {value, WRITE_BYTES};
        struct one writes[N_WRITES], read;
        struct order order = {0};
        struct remote_store *s;
        struct fake_redis e;
        char got[6] = "";
        struct iovec into = {got, 5};

        fake_redis_start(&e, 0, answer_in_order, &order);
        s = open_narrow(e.address, 20000);
        for (unsigned i = 0; i < N_WRITES; i++)
                one_submit(s, REMOTE_WRITE, "key", &from, 1, in_msec(20000), &writes[i]);
        while (!atomic_load(&order.has_one)) /* as many as may be are under way */
                usleep(1000);
        one_submit(s, REMOTE_READ, "good", &into, 1, in_msec(20000), &read);
        usleep(100000);
        atomic_store(&order.goes_on, true);
        one_await(s, &read);
        assert_int_equal(read.result, 0);
        for (unsigned i = 0; i < N_WRITES; i++) {
                one_await(s, &writes[i]);
                assert_int_equal(writes[i].result, 0);
        }
        assert_in_range(atomic_load(&order.n_writes_before), 1, N_WRITES / 2);
        remote_close(s);
        fake_redis_stop(&e);
        free(value);
}

/* ---- CLUSTER SLOTS, beside others ----------------------------------------------------------- */

/* That all slots are this server's, or the first bytes of it. */
static void say_slots(struct fake_redis *e, struct fake_conn *c, size_t max)
{
        char text[128];
        int len = snprintf(text, sizeof(text),
                "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%u\r\n", e->port);

        fake_say_bytes(c, text, MIN((size_t)len, max));
}

/* The second time that slots are asked for half of them is told, and nothing more on that
 * connection. */
static bool answer_half_of_slots(
        struct fake_redis *e, struct fake_conn *c, unsigned n, const struct fake_arg *args)
{
        _Atomic unsigned *n_asked = e->data;

        if (c->is_stuck)
                return true;
        if (!fake_arg_is(&args[0], "CLUSTER")) {
                fake_say(c, fake_arg_is(&args[1], "down") ? "-CLUSTERDOWN\r\n" : ":1\r\n");
                return true;
        }
        c->is_stuck = atomic_load(n_asked) == 1;
        say_slots(e, c, c->is_stuck ? 24 : SIZE_MAX);
        atomic_fetch_add(n_asked, 1);
        return true;
}

/* A half-sent write costs the connection on which slots are half received. They are requested
 * again, and read from their beginning. */
TEST(test_half_of_slots)
{
        enum { BYTES = 3 << 19 };
        uint8_t *value = calloc(1, BYTES);
        struct iovec key = PIECE("key"), iov = {value, BYTES};
        struct remote_io *io = remote_io_new(1);
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;
        _Atomic unsigned n_asked = 0;
        struct remote_stats stats;
        struct remote_store *s;
        int bytes = 4096;
        struct fake_redis e;
        struct one o;

        fake_redis_start(&e, 0, answer_half_of_slots, &n_asked);
        assert_int_equal(setsockopt(e.listen_fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)), 0);
        s = store_open_at(e.address);
        store_await_known(s);
        sockets_set(e.port, SOL_SOCKET, SO_SNDBUF, 4096);
        assert_int_equal(one_call(s, REMOTE_PROBE, "down", NULL, 0, &o), -EAGAIN);
        while (atomic_load(&n_asked) < 2)
                poll(NULL, 0, 1);
        poll(NULL, 0, 50); /* that half has arrived, or else there is less to see */
        atomic_store(&e.is_deaf, true);
        fake_redis_wake(&e);
        o = (struct one){.is_done = false};
        io->kind = REMOTE_WRITE;
        io->of_class = REMOTE_SMALL;
        io->deadline_nsec = in_msec(100);
        io->done = one_done;
        io->data = &o;
        io->ops[0] = (struct remote_op){
                .keys = &key, .n_keys = 1, .iov = &iov, .n_iov = 1, .expiry_msec = 60000};
        assert_int_equal(remote_submit(s, io), 0);
        one_await(s, &o);
        assert_int_equal(o.result, -ETIMEDOUT);
        free(value);
        atomic_store(&e.is_deaf, false);
        fake_redis_wake(&e);
        do {
                assert_true(clock_now_nsec() < until);
                poll(NULL, 0, 1);
                remote_stats(s, &stats);
        } while (stats.n_refreshes < 2);
        assert_int_equal(store_node(s, NULL).last_error == -EPROTO, 0);
        assert_int_equal(one_call(s, REMOTE_PROBE, "key", NULL, 0, &o), 0);
        remote_close(s);
        fake_redis_stop(&e);
}

/* Slots are told once, and again when a value of two seconds has come on the same connection. */
static bool answer_behind_a_value(
        struct fake_redis *e, struct fake_conn *c, unsigned n, const struct fake_arg *args)
{
        if (fake_arg_is(&args[0], "CLUSTER")) {
                say_slots(e, c, SIZE_MAX);
        } else if (fake_arg_is(&args[1], "slow")) {
                fake_say(c, "$40\r\n");
                for (unsigned i = 0; i < 40; i++) {
                        usleep(50000);
                        fake_say(c, "x");
                }
                fake_say(c, "\r\n");
        } else {
                fake_say(c, "-CLUSTERDOWN\r\n");
        }
        return true;
}

/* Slots that are told too late cost no connection where bytes of a value come all the time. */
FAKE_REDIS_SCENE(test_slots_behind_a_value, 0, answer_behind_a_value, NULL)
{
        char got[40];
        struct iovec key = PIECE("slow"), iov = {got, sizeof(got)};
        struct remote_io *io = remote_io_new(1);
        struct one o = {.is_done = false}, down;
        struct remote_store *s;

        s = open_narrow(e->address, 0);
        io->kind = REMOTE_READ;
        io->of_class = REMOTE_SMALL;
        io->deadline_nsec = in_msec(60000);
        io->done = one_done;
        io->data = &o;
        io->ops[0] = (struct remote_op){.keys = &key, .n_keys = 1, .iov = &iov, .n_iov = 1};
        assert_int_equal(one_call(s, REMOTE_PROBE, "down", NULL, 0, &down), -EAGAIN);
        assert_int_equal(remote_submit(s, io), 0);
        one_await(s, &o);
        assert_int_equal(o.result, 0);
        assert_int_equal(one_call(s, REMOTE_PROBE, "down", NULL, 0, &down), -EAGAIN);
        assert_true(store_node(s, NULL).n_timeouts > 0);
        assert_int_equal(store_node(s, NULL).n_losses, 0);
        remote_close(s);
}
