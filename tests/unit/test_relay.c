/* Stores in kvlease-exchange: values and results, a process that is gone or stopped, and one that
 * lies. */
#include "tests/unit/remote-fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/macros.h"
#include "base/map.h"
#include "daemon/relay/relay-arena.h"
#include "daemon/relay/relay-channel.h"
#include "proto/sock.h"
#include "tests/unit/fake-redis.h"
#include "tests/unit/relay-server.h"
#include "tests/unit/remote-record.h"

#define VALUE_BYTES 300000

/* ---- a server with one value ----------------------------------------------------------------- */

struct memory {
        uint8_t value[VALUE_BYTES];
        _Atomic size_t len; /* 0: there is none */
};

/* Finds the value under each key. */
static bool answer_memory(
        struct fake_redis *e, struct fake_conn *c, unsigned n, const struct fake_arg *args)
{
        struct memory *m = e->data;
        char head[32];

        if (answer_common(c, args))
                return true;
        if (fake_arg_is(&args[0], "SET")) {
                assert_true(args[2].len <= VALUE_BYTES);
                memcpy(m->value, args[2].data, args[2].len);
                m->len = args[2].len;
                fake_say(c, "+OK\r\n");
        } else if (!fake_arg_is(&args[0], "GET")) {
                (void)snprintf(head, sizeof(head), ":%u\r\n", m->len > 0 ? n - 1 : 0);
                fake_say(c, head);
        } else if (m->len == 0) {
                fake_say(c, "$-1\r\n");
        } else {
                (void)snprintf(head, sizeof(head), "$%zu\r\n", (size_t)m->len);
                fake_say(c, head);
                fake_say_bytes(c, m->value, m->len);
                fake_say(c, "\r\n");
        }
        return true;
}

/* A server, kvlease-exchange and a store. */
struct scene {
        struct memory memory;
        struct fake_redis redis;
        struct relay_server relay;
        struct remote_store *store;
};

static void await_ready(struct scene *s)
{
        struct remote_stats stats;

        store_await_known(s->store);
        remote_stats(s->store, &stats);
        assert_string_equal(stats.fault, "");
        relay_await_lanes(s->store);
}

static void open_store(struct scene *s)
{
        const char *const address = s->redis.address;
        const struct remote_options o = {.addresses = &address, .n_addresses = 1};

        assert_int_equal(relay_server_open(&s->relay, &o, &s->store), 0);
        await_ready(s);
}

static void scene_start(struct scene *s)
{
        memset(s, 0, sizeof(*s));
        /* A child gets none of the server's descriptors. */
        relay_server_start(&s->relay);
        fake_redis_start(&s->redis, 0, answer_memory, &s->memory);
        open_store(s);
}

static void scene_stop(struct scene *s)
{
        remote_close(s->store);
        fake_redis_stop(&s->redis);
        relay_server_stop(&s->relay);
}

#define RELAY_SCENE(fn) TEST_ON(fn, struct scene, s, scene_start, scene_stop)

/* ---- values ---------------------------------------------------------------------------------- */

static int turn_over(const struct remote_op *op, void *data)
{
        const unsigned *len = data;

        for (unsigned i = 0, left = *len; i < op->n_iov && left > 0; i++)
                for (size_t k = 0; k < op->iov[i].iov_len && left > 0; k++, left--)
                        ((uint8_t *)op->iov[i].iov_base)[k] ^= 0xff;
        return 0;
}

RELAY_SCENE(test_values)
{
        static uint8_t value[VALUE_BYTES], got[VALUE_BYTES + 1];
        struct iovec to[] = {{got, 1}, {got + 1, 70000}, {got + 70001, VALUE_BYTES - 70001}};
        static const unsigned lens[] = {VALUE_BYTES, 1, 70001, 5};
        struct one o;

        for (unsigned i = 0; i < ARRAY_SIZE(lens); i++) {
                value_make(value, lens[i], i);
                assert_int_equal(one_call(s->store, REMOTE_WRITE, "{k}1", value, lens[i], &o), 0);
                memset(got, 0xee, sizeof(got));
                one_submit(s->store, REMOTE_READ, "{k}1", to, 3, in_msec(15000), &o);
                one_await(s->store, &o);
                assert_int_equal(o.result, 0);
                assert_int_equal(o.n_bytes, lens[i]);
                assert_true(value_is(got, lens[i], i));
                assert_int_equal(got[lens[i]], 0xee);
        }
        assert_int_equal(one_call(s->store, REMOTE_PROBE, "{k}1", NULL, 0, &o), 0);
        assert_int_equal(o.n_found, 1);
        /* Longer than its buffers. */
        s->memory.len = 10;
        assert_int_equal(one_call(s->store, REMOTE_READ, "{k}1", got, 9, &o), -EMSGSIZE);
        s->memory.len = 0;
        assert_int_equal(one_call(s->store, REMOTE_READ, "{k}1", got, 9, &o), -ENOENT);
        assert_int_equal(one_call(s->store, REMOTE_PROBE, "{k}1", NULL, 0, &o), 0);
        assert_int_equal(o.n_found, 0);
}

struct many {
        unsigned n_left;
        int result;
};

static void many_done(struct remote_io *io, void *data)
{
        struct many *m = data;

        for (uint32_t i = 0; i < io->n && m->result == 0; i++)
                m->result = io->ops[i].result;
        m->n_left--;
}

/* A batch in which one value can't be sealed: the others are sent. on_value works on them. */
RELAY_SCENE(test_batch)
{
        uint8_t values[3][4] = {"abc", "abc", "abc"}, got[4];
        struct remote_io *io = remote_io_new(3);
        struct iovec iov[3], name = {(void *)"{k}1", 4};
        struct many m = {.n_left = 1};
        unsigned len = 3;

        io->kind = REMOTE_WRITE;
        io->of_class = REMOTE_LARGE;
        io->deadline_nsec = in_msec(15000);
        io->done = many_done;
        io->data = &m;
        for (unsigned i = 0; i < 3; i++) {
                iov[i] = (struct iovec){values[i], 3};
                io->ops[i] = (struct remote_op){.keys = &name,
                        .n_keys = 1,
                        .iov = &iov[i],
                        .n_iov = 1,
                        .expiry_msec = 1000,
                        .on_value = turn_over,
                        .value_data = &len};
        }
        assert_int_equal(remote_submit(s->store, io), 0);
        while (m.n_left > 0)
                store_wait(s->store, 100);
        assert_int_equal(m.result, 0);
        for (unsigned i = 0; i < 3; i++)
                assert_int_equal(values[i][0], 'a' ^ 0xff);
        assert_int_equal(s->memory.value[0], 'a' ^ 0xff);
        iov[0] = (struct iovec){got, 3};
        io = remote_io_new(1);
        io->kind = REMOTE_READ;
        io->of_class = REMOTE_LARGE;
        io->deadline_nsec = in_msec(15000);
        io->done = many_done;
        io->data = &m;
        io->ops[0] = (struct remote_op){.keys = &name,
                .n_keys = 1,
                .iov = iov,
                .n_iov = 1,
                .on_value = turn_over,
                .value_data = &len};
        m.n_left = 1;
        assert_int_equal(remote_submit(s->store, io), 0);
        while (m.n_left > 0)
                store_wait(s->store, 100);
        assert_memory_equal(got, "abc", 3);
}

/* More bytes than the arenas have: values wait, and none is lost. */
RELAY_SCENE(test_values_wait_for_the_arena)
{
        enum { N = 40, BYTES = 20 << 20 };
        uint8_t *memory = memory_map(-1, (uint64_t)N * BYTES);
        struct iovec iov[N], name = {(void *)"{k}1", 4};
        struct many m = {.n_left = N};

        assert_non_null(memory);
        s->memory.len = 5;
        for (unsigned i = 0; i < N; i++) {
                struct remote_io *io = remote_io_new(1);

                io->kind = REMOTE_READ;
                io->of_class = REMOTE_LARGE;
                io->deadline_nsec = in_msec(20000);
                io->done = many_done;
                io->data = &m;
                iov[i] = (struct iovec){memory + (size_t)i * BYTES, BYTES};
                io->ops[0] =
                        (struct remote_op){.keys = &name, .n_keys = 1, .iov = &iov[i], .n_iov = 1};
                assert_int_equal(remote_submit(s->store, io), 0);
        }
        while (m.n_left > 0)
                store_wait(s->store, 100);
        assert_int_equal(m.result, 0);
        munmap(memory, (size_t)N * BYTES);
}

/* ---- a process that is gone, stopped or started again ---------------------------------------- */

static void await_fault(struct scene *s, const char *part)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;
        struct remote_summary summary;

        do {
                assert_true(clock_now_nsec() < until);
                usleep(1000);
                remote_summary(s->store, &summary);
        } while (!strstr(summary.fault, part));
        assert_int_equal(summary.state, REMOTE_UNREACHED);
        assert_string_equal(remote_summary_why(&summary), summary.fault);
}

RELAY_SCENE(test_killed)
{
        uint8_t got[8];
        struct one o;

        relay_server_kill(&s->relay);
        await_fault(s, "start kvlease-exchange");
        assert_int_equal(one_call(s->store, REMOTE_READ, "{k}1", got, 8, &o), -EHOSTDOWN);
        assert_int_equal(one_call(s->store, REMOTE_PROBE, "{k}1", NULL, 0, &o), -EHOSTDOWN);
        relay_server_start(&s->relay);
        await_ready(s);
        assert_int_equal(one_call(s->store, REMOTE_WRITE, "{k}1", got, 8, &o), 0);
}

/* Operations end at their deadline. Then the lanes connect anew, and it can go on. */
RELAY_SCENE(test_stopped)
{
        struct iovec iov;
        uint8_t got[8];
        struct one o;
        uint64_t until;

        s->memory.len = 8;
        iov = (struct iovec){got, 8};
        kill(s->relay.pid, SIGSTOP);
        for (unsigned i = 0; i < 20; i++) {
                until = in_msec(20);
                if (i % 2 == 0)
                        one_submit(s->store, REMOTE_READ, "{k}1", &iov, 1, until, &o);
                else
                        one_submit(s->store, REMOTE_PROBE, "{k}1", NULL, 0, until, &o);
                one_await(s->store, &o);
                assert_true(o.result == -ETIMEDOUT || o.result == -EHOSTDOWN);
                assert_true(o.result != -ETIMEDOUT || o.done_nsec >= until);
        }
        /* The buffers are free at once. */
        {
                struct remote_io *io =
                        one_submit(s->store, REMOTE_READ, "{k}1", &iov, 1, in_msec(20000), &o);

                remote_take_back(s->store, io);
                one_await(s->store, &o);
                assert_true(o.result == -ECANCELED || o.result == -EHOSTDOWN);
        }
        await_fault(s, "kvlease-exchange ");
        kill(s->relay.pid, SIGCONT);
        await_ready(s);
        assert_int_equal(one_call(s->store, REMOTE_READ, "{k}1", got, 8, &o), 0);
}

/* A canceled batch that isn't returned tells it, too, before its deadline. */
RELAY_SCENE(test_stopped_before_a_cancel)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;
        struct remote_summary summary;
        struct remote_io *io;
        struct one o;

        kill(s->relay.pid, SIGSTOP);
        do {
                assert_true(clock_now_nsec() < until);
                io = one_submit(s->store, REMOTE_PROBE, "{k}1", NULL, 0, in_msec(50000), &o);
                poll(NULL, 0, 20); /* until it is sent, unless the machine is busy */
                remote_cancel(s->store, io);
                one_await(s->store, &o);
                assert_true(o.result == -ECANCELED || o.result == -EHOSTDOWN);
                remote_summary(s->store, &summary);
        } while (summary.fault[0] == '\0');
        await_fault(s, "kvlease-exchange ");
        kill(s->relay.pid, SIGCONT);
}

/* The store's own faults are told through it. */
RELAY_SCENE(test_refused)
{
        static const struct {
                const char *secret, *ca, *part;
                mode_t mode;
        } rows[] = {{"secret", NULL, "has mode 0644", 0644},
                {NULL, "/none", "tls_ca = /none can't be read: No such file", 0600}};

        for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
                const char *const address = s->redis.address;
                struct relay_options o = {.socket = s->relay.socket,
                        .secret_file = rows[i].secret ? s->relay.secret : NULL,
                        .remote = {.addresses = &address,
                                .n_addresses = 1,
                                .is_tls = rows[i].ca,
                                .tls_ca = rows[i].ca}};

                remote_close(s->store);
                assert_int_equal(file_replace(s->relay.secret, "secret\n", 7, rows[i].mode), 0);
                assert_int_equal(chmod(s->relay.secret, rows[i].mode), 0);
                assert_int_equal(relay_open(&o, &s->store), 0);
                await_fault(s, rows[i].part);
        }
}

static uint64_t cpu_nsec_of(pid_t pid)
{
        struct timespec t;
        clockid_t clock;

        assert_int_equal(clock_getcpuclockid(pid, &clock), 0);
        assert_int_equal(clock_gettime(clock, &t), 0);
        return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

/* kvlease-exchange without descriptors for those that connect serves the others, and sleeps. */
RELAY_SCENE(test_full)
{
        const struct rlimit limit = {30, 30};
        uint8_t got[8] = {0};
        uint64_t before;
        int fds[40];
        struct one o;

        assert_int_equal(prlimit(s->relay.pid, RLIMIT_NOFILE, &limit, NULL), 0);
        for (unsigned i = 0; i < ARRAY_SIZE(fds); i++) {
                fds[i] = sock_connect(s->relay.socket);
                assert_true(fds[i] >= 0);
        }
        usleep(100000);
        before = cpu_nsec_of(s->relay.pid);
        usleep(500000);
        assert_in_range(cpu_nsec_of(s->relay.pid) - before, 0, 100 * NSEC_PER_MSEC);
        assert_int_equal(one_call(s->store, REMOTE_WRITE, "{k}1", got, 8, &o), 0);
        for (unsigned i = 0; i < ARRAY_SIZE(fds); i++)
                close(fds[i]);
}

/* ---- clients that aren't kvleased ------------------------------------------------------------ */

static bool is_closed(int fd)
{
        struct pollfd p = {fd, POLLIN, 0};
        char bytes[512];
        ssize_t n;

        do {
                assert_int_equal(poll(&p, 1, 60000), 1);
                n = read(fd, bytes, sizeof(bytes));
        } while (n > 0);
        return n == 0 || errno == ECONNRESET;
}

/* A connection that greets too slowly is closed, and those that have greeted are served. */
RELAY_SCENE(test_silent)
{
        int fds[2] = {sock_connect(s->relay.socket), sock_connect(s->relay.socket)};
        uint8_t got[8] = {0};
        struct one o;

        assert_int_equal(write(fds[1], "", 1), 1);
        for (unsigned i = 0; i < ARRAY_SIZE(fds); i++) {
                assert_true(is_closed(fds[i]));
                close(fds[i]);
        }
        assert_int_equal(one_call(s->store, REMOTE_WRITE, "{k}1", got, 8, &o), 0);
}

/* Sends a message that isn't one, or no greeting. */
static void annoy(struct relay_server *relay, bool is_message)
{
        struct relay_channel c;
        uint8_t junk[64];
        int fd = sock_connect(relay->socket);

        assert_true(fd >= 0);
        memset(junk, 0xff, sizeof(junk));
        relay_channel_init(&c, fd);
        if (is_message) {
                assert_int_equal(relay_channel_put(&c, RELAY_CANCEL, 0, NULL, 0), 0);
                assert_int_equal(relay_channel_flush(&c), 0);
        } else {
                assert_int_equal(write(fd, junk, sizeof(junk)), sizeof(junk));
        }
        assert_true(is_closed(fd));
        relay_channel_deinit(&c);
}

/* Whatever is sent, the log grows by a line in some seconds. */
TEST(test_complaints)
{
        struct relay_server relay = {0};
        const uint64_t began_nsec = clock_now_nsec();
        unsigned n_lines = 0;
        int log[2];
        char c;

        assert_int_equal(pipe2(log, O_CLOEXEC), 0);
        relay.log_fd = log[1];
        relay_server_start(&relay);
        close(log[1]);
        for (unsigned i = 0; i < 40; i++)
                annoy(&relay, i % 2);
        relay_server_stop(&relay);
        while (read(log[0], &c, 1) == 1)
                n_lines += c == '\n';
        close(log[0]);
        assert_in_range(n_lines, 1, 1 + (clock_now_nsec() - began_nsec) / (10 * NSEC_PER_SEC));
}

/* ---- a process that lies --------------------------------------------------------------------- */

struct liar {
        char dir[32], socket[64];
        int listen_fd;
        _Atomic bool is_stopping;
        _Atomic unsigned kind, n_connections; /* kind: of the lie */
        pthread_t thread;
        struct {
                struct relay_channel channel;
                struct relay_open open;
                uint8_t *arena;
        } lanes[16];
};

enum {
        LIE_NONE,
        LIE_BEFORE_READY,
        LIE_UNKNOWN_KIND,
        LIE_UNKNOWN_ID,
        LIE_NO_ID, /* one that no map has */
        LIE_TOO_FEW,
        LIE_TOO_LONG, /* a message */
        LIE_VALUE_TOO_LONG,
        LIE_RESULT,
        LIE_STATUS_SHORT,
        LIE_STATUS_MANY,
        N_LIES,
        LIE_CLOSES, /* each connection, once it was greeted */
        LIE_READY_CLOSES,
        LIE_STATUS_TWICE,
        LIE_REFUSES, /* with a sentence that a terminal obeys, and that isn't UTF-8 */
};

static void liar_put(
        struct relay_channel *c, enum relay_kind kind, uint64_t id, const void *bytes, size_t n)
{
        assert_int_equal(
                relay_channel_put(c, kind, id, &(const struct iovec){(void *)bytes, n}, 1), 0);
}

static void liar_answer(struct liar *l, struct relay_channel *c, const struct relay_message *m)
{
        struct relay_result results[4] = {{.result = 0, .n_found = 1000, .n_bytes = 4}};
        struct remote_stats status = {
                .is_known = 7, .n_nodes = l->kind == LIE_STATUS_MANY ? 1000000 : 0};
        const uint64_t id = l->kind == LIE_NO_ID
                                    ? MAP_KEY_NONE
                                    : m->head.id + (l->kind == LIE_UNKNOWN_ID ? 1000 : 0);

        if (l->kind == LIE_UNKNOWN_KIND)
                liar_put(c, (enum relay_kind)77, id, results, 1);
        if (l->kind == LIE_STATUS_SHORT || l->kind == LIE_STATUS_MANY)
                liar_put(c, RELAY_STATUS, 0, &status,
                        RELAY_STATUS_BYTES - (l->kind == LIE_STATUS_SHORT));
        for (status.n_hits = 1; l->kind == LIE_STATUS_TWICE && status.n_hits <= 2; status.n_hits++)
                liar_put(c, RELAY_STATUS, 0, &status, RELAY_STATUS_BYTES);
        if (l->kind == LIE_VALUE_TOO_LONG)
                results[0].n_bytes = UINT64_MAX;
        if (l->kind == LIE_RESULT)
                results[0].result = 12345;
        liar_put(c, RELAY_DONE, id, results, (l->kind == LIE_TOO_FEW ? 0 : 1) * sizeof(results[0]));
        if (l->kind == LIE_TOO_LONG) {
                struct relay_head *head = (void *)(c->out.at + c->out.begin);

                head->bytes = UINT32_MAX;
        }
}

static void liar_take(struct liar *l, unsigned i, const struct relay_message *m)
{
        struct relay_channel *c = &l->lanes[i].channel;

        if (m->head.kind == RELAY_OPEN && l->kind == LIE_CLOSES) {
                shutdown(c->fd, SHUT_RDWR);
        } else if (m->head.kind == RELAY_OPEN && l->kind == LIE_REFUSES) {
                liar_put(
                        c, RELAY_REFUSED, 0, "no\n\x1b[m \xc2\x9bm \xe2\x80\xae \xff \xc3\xa4", 19);
        } else if (m->head.kind == RELAY_OPEN) {
                memcpy(&l->lanes[i].open, m->bytes, sizeof(l->lanes[i].open));
                if (l->kind == LIE_BEFORE_READY)
                        liar_put(c, RELAY_DONE, 1, NULL, 0);
                liar_put(c, RELAY_READY, 0, NULL, 0);
                l->lanes[i].arena = memory_map(c->received_fd, l->lanes[i].open.arena_bytes);
                assert_non_null(l->lanes[i].arena);
        } else if (m->head.kind == RELAY_BEGIN) {
                memcpy(l->lanes[i].arena, "lies", 4);
                liar_answer(l, c, m);
        }
}

static void liar_forget(struct liar *l, unsigned i)
{
        if (l->lanes[i].arena)
                munmap(l->lanes[i].arena, l->lanes[i].open.arena_bytes);
        l->lanes[i].arena = NULL;
        relay_channel_deinit(&l->lanes[i].channel);
}

static void *liar_run(void *data)
{
        struct liar *l = data;

        while (!atomic_load(&l->is_stopping)) {
                struct pollfd fds[1 + ARRAY_SIZE(l->lanes)] = {{l->listen_fd, POLLIN, 0}};

                for (unsigned i = 0; i < ARRAY_SIZE(l->lanes); i++)
                        fds[1 + i] = (struct pollfd){l->lanes[i].channel.fd, POLLIN, 0};
                (void)poll(fds, ARRAY_SIZE(fds), 20);
                for (unsigned i = 0; i < ARRAY_SIZE(l->lanes); i++) {
                        struct relay_channel *c = &l->lanes[i].channel;
                        struct relay_message m;

                        if (c->fd < 0 && fds[0].revents) {
                                fds[0].revents = 0;
                                relay_channel_init(c, accept4(l->listen_fd, NULL, NULL,
                                                              SOCK_CLOEXEC | SOCK_NONBLOCK));
                                c->takes_fd = true;
                                l->n_connections++;
                        }
                        if (c->fd < 0)
                                continue;
                        if (fds[1 + i].revents && relay_channel_fill(c) < 0) {
                                liar_forget(l, i);
                                continue;
                        }
                        while (relay_channel_next(c, &m) > 0)
                                liar_take(l, i, &m);
                        if (relay_channel_flush(c) < 0 || l->kind == LIE_READY_CLOSES)
                                liar_forget(l, i);
                }
        }
        for (unsigned i = 0; i < ARRAY_SIZE(l->lanes); i++)
                liar_forget(l, i);
        return NULL;
}

static void liar_start(struct liar *l)
{
        memset(l, 0, sizeof(*l));
        (void)strcpy(l->dir, "/tmp/kvl-liar-XXXXXX");
        assert_non_null(mkdtemp(l->dir));
        (void)snprintf(l->socket, sizeof(l->socket), "%s/sock", l->dir);
        for (unsigned i = 0; i < ARRAY_SIZE(l->lanes); i++)
                relay_channel_init(&l->lanes[i].channel, -1);
        l->listen_fd = sock_listen(l->socket, 0600);
        assert_true(l->listen_fd >= 0);
        assert_int_equal(pthread_create(&l->thread, NULL, liar_run, l), 0);
}

static void liar_stop(struct liar *l)
{
        l->is_stopping = true;
        pthread_join(l->thread, NULL);
        close(l->listen_fd);
        (void)unlink(l->socket);
        (void)rmdir(l->dir);
}

/* No lie is more than a failed operation, and the process is asked again after each. */
TEST_ON(test_lies, struct liar, l, liar_start, liar_stop)
{
        const char *const address = "127.0.0.1:1";
        const struct relay_options options = {
                .socket = l->socket, .remote = {.addresses = &address, .n_addresses = 1}};
        uint8_t got[8] = "########";
        struct remote_store *store;
        struct one o;

        for (unsigned lie = 1; lie < N_LIES; lie++) {
                unsigned before;

                assert_int_equal(relay_open(&options, &store), 0);
                l->kind = LIE_NONE;
                while (one_call(store, REMOTE_READ, "{k}1", got, 4, &o) < 0)
                        usleep(1000);
                assert_memory_equal(got, "lies####", 8);
                memset(got, '#', sizeof(got));
                while (one_call(store, REMOTE_PROBE, "{k}1", NULL, 0, &o) < 0)
                        usleep(1000);
                assert_int_equal(o.n_found, 1); /* of one key: 1000 were said */
                before = l->n_connections;
                l->kind = lie;
                if (lie == LIE_BEFORE_READY) {
                        remote_close(store);
                        assert_int_equal(relay_open(&options, &store), 0);
                        while (l->n_connections < before + 6)
                                usleep(1000);
                        assert_int_equal(
                                one_call(store, REMOTE_READ, "{k}1", got, 4, &o), -EHOSTDOWN);
                } else if (lie == LIE_STATUS_SHORT || lie == LIE_STATUS_MANY) {
                        assert_int_equal(
                                one_call(store, REMOTE_PROBE, "{k}1", NULL, 0, &o), -ECONNRESET);
                } else {
                        assert_true(one_call(store, REMOTE_READ, "{k}1", got, 4, &o) < 0);
                        assert_memory_equal(got, "########", 8);
                }
                remote_close(store);
        }
}

/* A process that closes each connection costs a few attempts in a second. */
TEST_ON(test_closes, struct liar, l, liar_start, liar_stop)
{
        const char *const address = "127.0.0.1:1";
        const struct relay_options options = {
                .socket = l->socket, .remote = {.addresses = &address, .n_addresses = 1}};
        struct remote_store *store;
        uint64_t began_nsec, nsec;

        for (unsigned lie = LIE_CLOSES; lie <= LIE_READY_CLOSES; lie++) {
                l->n_connections = 0;
                l->kind = lie;
                began_nsec = clock_now_nsec();
                assert_int_equal(relay_open(&options, &store), 0);
                do {
                        usleep(500000);
                        nsec = clock_now_nsec() - began_nsec;
                        assert_true(nsec < PATIENCE_NSEC);
                } while (l->n_connections < 3);
                remote_close(store);
                assert_true(l->n_connections <= nsec / (5 * NSEC_PER_MSEC));
        }
}

/* Figures that come faster than they are due are dropped: to take them locks the loop out. */
TEST_ON(test_figures, struct liar, l, liar_start, liar_stop)
{
        const char *const address = "127.0.0.1:1";
        const struct relay_options options = {
                .socket = l->socket, .remote = {.addresses = &address, .n_addresses = 1}};
        struct remote_store *store;
        struct remote_stats stats;
        struct one o;

        l->kind = LIE_STATUS_TWICE;
        assert_int_equal(relay_open(&options, &store), 0);
        while (one_call(store, REMOTE_PROBE, "{k}1", NULL, 0, &o) < 0)
                usleep(1000);
        remote_stats(store, &stats);
        assert_int_equal(stats.n_hits, 1);
        remote_close(store);
}

TEST_ON(test_sentence, struct liar, l, liar_start, liar_stop)
{
        const char *const address = "127.0.0.1:1";
        const struct relay_options options = {
                .socket = l->socket, .remote = {.addresses = &address, .n_addresses = 1}};
        struct scene s;

        l->kind = LIE_REFUSES;
        assert_int_equal(relay_open(&options, &s.store), 0);
        await_fault(&s, "can't use it: no??[m ??m ??? ? ??");
        remote_close(s.store);
}

/* ---- the arena ------------------------------------------------------------------------------- */

TEST(test_arena)
{
        struct relay_place p[4] = {0};
        struct relay_arena a;
        struct stat st;
        int kept;

        assert_int_equal(relay_arena_init(&a, 1 << 20), 0);
        assert_int_equal(relay_arena_take(&a, 1, &p[0]), 0);
        assert_int_equal(relay_arena_take(&a, 1000, &p[1]), 0);
        assert_int_equal(relay_arena_take(&a, 5, &p[2]), 0);
        assert_int_equal(p[0].at, 0);
        assert_int_equal(p[1].at, 64);
        assert_int_equal(p[2].at, 64 + 1024);
        relay_arena_give_back(&a, &p[1], 1);
        assert_int_equal(relay_arena_take(&a, 1025, &p[1]), 0); /* not where it was */
        assert_int_equal(p[1].at, 64 + 1024 + 64);
        assert_int_equal(relay_arena_take(&a, 1024, &p[3]), 0);
        assert_int_equal(p[3].at, 64);
        for (unsigned i = 0; i < 4; i++)
                relay_arena_give_back(&a, &p[i], 2);
        assert_int_equal(relay_arena_take(&a, (1 << 20) + 1, &p[0]), -ENOMEM);
        assert_int_equal(relay_arena_take(&a, 1 << 20, &p[0]), 0);
        assert_int_equal(relay_arena_take(&a, 1, &p[1]), -ENOMEM);
        memset(a.at, 1, 1 << 20);
        relay_arena_give_back(&a, &p[0], 3);
        relay_arena_give_back(&a, &p[0], 3);
        assert_true(relay_arena_trim(&a, 3) == 3 + RELAY_ARENA_KEPT_NSEC);
        assert_true(relay_arena_trim(&a, 3 + RELAY_ARENA_KEPT_NSEC) == UINT64_MAX);
        assert_int_equal(fstat(a.fd, &st), 0);
        assert_int_equal(st.st_blocks, 0);
        /* A process that keeps the file keeps no memory. */
        assert_int_equal(relay_arena_take(&a, 1 << 20, &p[0]), 0);
        memset(a.at, 1, 1 << 20);
        kept = dup(a.fd);
        relay_arena_deinit(&a);
        assert_int_equal(fstat(kept, &st), 0);
        assert_int_equal(st.st_blocks, 0);
        close(kept);
}

/* ---- the channel ----------------------------------------------------------------------------- */

/* Descriptors that aren't wanted are closed; the test's end counts them. */
TEST(test_two_descriptors)
{
        union {
                char bytes[CMSG_SPACE(2 * sizeof(int))];
                struct cmsghdr align;
        } control = {0};
        struct iovec iov = {(void *)"x", 1};
        struct msghdr msg = {.msg_iov = &iov,
                .msg_iovlen = 1,
                .msg_control = &control,
                .msg_controllen = sizeof(control)};
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        struct relay_channel channel;
        int pair[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(2 * sizeof(int)),
                .cmsg_level = SOL_SOCKET,
                .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(c), pair, sizeof(pair));
        relay_channel_init(&channel, pair[0]);
        channel.takes_fd = true;
        for (unsigned i = 0; i < 2; i++) {
                assert_int_equal(sendmsg(pair[1], &msg, 0), 1);
                assert_int_equal(relay_channel_fill(&channel), 0);
        }
        relay_channel_deinit(&channel);
        close(pair[1]);
}
