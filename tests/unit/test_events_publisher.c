/* The publisher's sockets, as routers see them: sequence numbers, states, requests and garbage. */
#include <endian.h>
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <zmq.h>

#include "base/clock.h"
#include "base/fd.h"
#include "client/events/publisher.h"
#include "client/lib/kvlease.h"
#include "tests/unit/test-support.h"

#define WAIT_MSEC  10000
#define PARTS_MAX  6
#define PART_BYTES 4096
#define N_TOKENS   16

/* A page of one block. */
static const uint32_t tokens[N_TOKENS];
static const uint8_t key[KVL_KEY_BYTES];

struct scene {
        const char *dir;
        char *live, *replay;
        struct publisher_options options;
        struct publisher *publisher;
        struct model *model;
        void *context;
        uint64_t last; /* sequence of the last live batch that was received */
};

struct message {
        char parts[PARTS_MAX][PART_BYTES];
        size_t len[PARTS_MAX];
        int n;
};

static char *endpoint(const char *dir, const char *name)
{
        char *s;

        assert_true(asprintf(&s, "ipc://%s/%s", dir, name) > 0);
        return s;
}

static void scene_begin(struct scene *s, uint64_t refresh_nsec)
{
        const char *failed;

        *s = (struct scene){.dir = test_dir_make(), .context = zmq_ctx_new()};
        s->live = endpoint(s->dir, "live");
        s->replay = endpoint(s->dir, "replay");
        s->options = (struct publisher_options){
                .sockets = {.endpoint = s->live, .replay = refresh_nsec ? NULL : s->replay},
                .topics = {refresh_nsec ? "kv@a@m" : "", "kv@b@m"},
                .n_topics = refresh_nsec ? 2 : 1,
                .group = -1,
                .heartbeat_nsec = 20 * NSEC_PER_MSEC,
                .refresh_nsec = refresh_nsec,
        };
        assert_int_equal(publisher_new(&s->options, &s->publisher, &failed), 0);
        assert_int_equal(model_new(N_TOKENS, publisher_tell, s->publisher, &s->model), 0);
        publisher_replace(s->publisher, s->model);
}

static void scene_end(struct scene *s)
{
        publisher_free(s->publisher);
        model_free(s->model);
        zmq_ctx_term(s->context);
        test_dir_remove(s->dir);
        free(s->live);
        free(s->replay);
}

#define SCENE(fn, refresh_nsec) TEST_ON(fn, struct scene, s, scene_begin, scene_end, (refresh_nsec))

static void *connect_peer(struct scene *s, int type, const char *to)
{
        void *peer = zmq_socket(s->context, type);
        int none = 0;

        assert_non_null(peer);
        zmq_setsockopt(peer, ZMQ_LINGER, &none, sizeof(none));
        if (type == ZMQ_SUB)
                zmq_setsockopt(peer, ZMQ_SUBSCRIBE, "", 0);
        assert_int_equal(zmq_connect(peer, to), 0);
        return peer;
}

static bool try_receive(void *peer, struct message *m)
{
        int more = 1;

        m->n = 0;
        while (more) {
                size_t size = sizeof(more);
                int len = zmq_recv(peer, m->parts[m->n], PART_BYTES, ZMQ_DONTWAIT);

                if (len < 0)
                        return false;
                assert_true(len <= PART_BYTES && m->n < PARTS_MAX);
                m->len[m->n++] = (size_t)len;
                zmq_getsockopt(peer, ZMQ_RCVMORE, &more, &size);
        }
        return true;
}

/* Waits for a message while the publisher runs. */
static void receive(struct scene *s, void *peer, struct message *m)
{
        uint64_t until = clock_now_nsec() + WAIT_MSEC * NSEC_PER_MSEC;

        while (!try_receive(peer, m)) {
                assert_true(clock_now_nsec() < until);
                assert_int_equal(publisher_turn(s->publisher), 0);
                publisher_wait(s->publisher, -1, 1);
        }
}

static uint64_t number(const struct message *m, int part)
{
        uint64_t be;

        assert_int_equal(m->len[part], sizeof(be));
        memcpy(&be, m->parts[part], sizeof(be));
        return be64toh(be);
}

static bool has(const struct message *m, int part, const char *text)
{
        return memmem(m->parts[part], m->len[part], text, strlen(text)) != NULL;
}

static void store(struct scene *s)
{
        struct model_stored stored = {.key = key, .token_ids = tokens, .n_tokens = N_TOKENS};

        assert_int_equal(model_store(s->model, &stored), 0);
}

static void ask(void *peer)
{
        uint64_t start = 0;

        zmq_send(peer, "", 0, ZMQ_SNDMORE);
        zmq_send(peer, &start, sizeof(start), 0);
}

/* Receives a live batch of a topic. Sequence numbers have no gap, from 0 on: any. */
static void receive_live(struct scene *s, void *sub, const char *topic, struct message *m)
{
        receive(s, sub, m);
        assert_int_equal(m->n, 3);
        assert_int_equal(m->len[0], strlen(topic));
        assert_memory_equal(m->parts[0], topic, m->len[0]);
        assert_true(s->last == 0 || number(m, 1) == s->last + 1);
        s->last = number(m, 1);
}

/* Receives an answer: the state at the last live batch, and the end. */
static void receive_answer(struct scene *s, void *dealer, struct message *m)
{
        struct message end;

        receive(s, dealer, m);
        assert_int_equal(m->n, 4);
        assert_int_equal(m->len[0], 0);
        assert_true(has(m, 3, "AllBlocksCleared"));
        receive(s, dealer, &end);
        assert_int_equal(end.n, 4);
        assert_int_equal(end.len[1], 0);
        assert_int_equal(number(&end, 2), UINT64_MAX);
        assert_int_equal(end.len[3], 0);
}

SCENE(test_dynamo, 0)
{
        void *sub = connect_peer(s, ZMQ_SUB, s->live);
        void *dealer = connect_peer(s, ZMQ_DEALER, s->replay);
        struct message m;

        receive_live(s, sub, "", &m); /* a heartbeat wakes the router */
        store(s);
        do
                receive_live(s, sub, "", &m);
        while (!has(&m, 2, "BlockStored"));
        assert_false(has(&m, 2, "AllBlocksCleared"));

        ask(dealer);
        receive_answer(s, dealer, &m);
        assert_true(has(&m, 3, "BlockStored"));
        /* Live batches up to its number are in the state; the next one isn't. */
        assert_true(number(&m, 2) >= s->last);
        while (s->last < number(&m, 2) + 1) {
                struct message live;

                receive_live(s, sub, "", &live);
        }
        zmq_close(sub);
        zmq_close(dealer);
}

/* Requests wait while the state is replaced. */
SCENE(test_hold, 0)
{
        void *dealer = connect_peer(s, ZMQ_DEALER, s->replay);
        struct message m;

        publisher_hold(s->publisher);
        ask(dealer);
        for (int i = 0; i < 20; i++) {
                assert_int_equal(publisher_turn(s->publisher), 0);
                publisher_wait(s->publisher, -1, 10);
                assert_false(try_receive(dealer, &m));
        }
        publisher_replace(s->publisher, NULL);
        receive_answer(s, dealer, &m);
        assert_false(has(&m, 3, "BlockStored"));
        zmq_close(dealer);
}

/* Requests of wrong forms are ignored; 100 right ones are answered. */
SCENE(test_garbage, 0)
{
        void *dealer = connect_peer(s, ZMQ_DEALER, s->replay);
        struct message m;

        for (int n = 1; n < 8; n++) {
                for (int i = 0; i < n - 1; i++)
                        zmq_send(dealer, "garbage", (size_t)i, ZMQ_SNDMORE);
                zmq_send(dealer, "12345678", n == 2 ? 7 : 8, 0);
        }
        for (int i = 0; i < 100; i++) {
                void *other = connect_peer(s, ZMQ_DEALER, s->replay);

                ask(other);
                receive_answer(s, other, &m);
                zmq_close(other);
        }
        assert_false(try_receive(dealer, &m));
        zmq_close(dealer);
}

static void receive_state(struct scene *s, void *sub, const char *topic, struct message *m)
{
        for (s->last = 0; s->last == 0 || !has(m, 2, "AllBlocksCleared");)
                receive_live(s, sub, topic, m);
}

/* Each subscription gets the state, on its own topic, from the only stream. */
SCENE(test_llm_d, 3600 * NSEC_PER_SEC)
{
        struct message m;

        store(s);
        for (int i = 0; i < 3; i++) {
                void *sub = zmq_socket(s->context, ZMQ_SUB);
                const char *topic = i == 1 ? "kv@b@m" : "kv@a@m";

                zmq_setsockopt(sub, ZMQ_SUBSCRIBE, topic, strlen(topic));
                assert_int_equal(zmq_connect(sub, s->live), 0);
                receive_state(s, sub, topic, &m);
                assert_true(has(&m, 2, "BlockStored"));
                zmq_close(sub);
        }
}

#define N_SUBSCRIPTIONS 200

/* A peer that subscribes for ever makes no flood of states for the others. */
SCENE(test_subscribes_often, 3600 * NSEC_PER_SEC)
{
        void *sub = connect_peer(s, ZMQ_SUB, s->live), *peer = connect_peer(s, ZMQ_XSUB, s->live);
        uint64_t begun_nsec, n_states = 0;
        struct message m;

        store(s);
        receive(s, sub, &m);
        begun_nsec = clock_now_nsec();
        for (int i = 0; i < N_SUBSCRIPTIONS; i++) {
                char topic[16];
                int len = snprintf(topic, sizeof(topic), "\1t%d", i);

                zmq_send(peer, topic, (size_t)len, 0);
                receive(s, sub, &m); /* at the latest a heartbeat */
                n_states += has(&m, 2, "AllBlocksCleared");
        }
        /* One in 100 ms, in each of two topics. */
        assert_in_range(
                n_states, 2, 4 + 2 * (clock_now_nsec() - begun_nsec) / (100 * NSEC_PER_MSEC));
        zmq_close(sub);
        zmq_close(peer);
}

/* The state comes again without a subscription. */
SCENE(test_refresh, 200 * NSEC_PER_MSEC)
{
        void *sub = zmq_socket(s->context, ZMQ_SUB);
        struct message m;

        zmq_setsockopt(sub, ZMQ_SUBSCRIBE, "kv@a", 4);
        assert_int_equal(zmq_connect(sub, s->live), 0);
        for (int i = 0; i < 3; i++)
                receive_state(s, sub, "kv@a@m", &m);
        zmq_close(sub);
}

/* A connection that ZeroMQ accepts, and that says nothing. */
static int connect_silently(const char *to)
{
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        snprintf(a.sun_path, sizeof(a.sun_path), "%s", to + strlen("ipc://"));
        assert_true(fd >= 0);
        assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
        return fd;
}

static void assert_disconnected(struct scene *s, int fd)
{
        uint64_t until = clock_now_nsec() + WAIT_MSEC * NSEC_PER_MSEC;
        struct pollfd p = {.fd = fd, .events = POLLRDHUP};

        while (poll(&p, 1, 10) == 0) {
                assert_int_equal(publisher_turn(s->publisher), 0);
                assert_true(clock_now_nsec() < until);
        }
}

/* A router gets the state still. */
static void assert_answers(struct scene *s)
{
        void *dealer = connect_peer(s, ZMQ_DEALER, s->replay);
        struct message m;

        ask(dealer);
        receive_answer(s, dealer, &m);
        zmq_close(dealer);
}

/* Peers that make the process use too much memory lose their connections, and nothing else is
 * lost. The test itself takes the memory: malloc() doesn't tell who has it. */
SCENE(test_too_much_memory, 0)
{
        void *memory;
        int fd;

        if (mallinfo2().uordblks == 0)
                return; /* the allocator of a sanitizer doesn't count */
        fd = connect_silently(s->live);
        memory = malloc((size_t)300 << 20);
        assert_non_null(memory);
        assert_disconnected(s, fd);
        free(memory);
        fd_close(fd);
        assert_answers(s);
}

#define N_SILENT 100

SCENE(test_too_many_connections, 0)
{
        struct rlimit before, limit;
        int fds[N_SILENT];

        assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
        limit = before;
        limit.rlim_cur = 2 * N_SILENT; /* here are both ends */
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        for (unsigned i = 0; i < N_SILENT * 3 / 4; i++)
                fds[i] = connect_silently(s->live);
        assert_disconnected(s, fds[0]);
        for (unsigned i = 0; i < N_SILENT * 3 / 4; i++)
                fd_close(fds[i]);
        assert_answers(s);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* The end is published. A publisher that starts anew has higher numbers. */
SCENE(test_end, 0)
{
        void *sub = connect_peer(s, ZMQ_SUB, s->live);
        const char *failed;
        struct message m;
        uint64_t last;

        receive_live(s, sub, "", &m);
        store(s);
        do
                receive_live(s, sub, "", &m);
        while (!has(&m, 2, "BlockStored"));
        publisher_free(s->publisher);
        do
                assert_int_equal(zmq_poll(&(zmq_pollitem_t){.socket = sub, .events = ZMQ_POLLIN}, 1,
                                         WAIT_MSEC),
                        1);
        while (try_receive(sub, &m) && !has(&m, 2, "AllBlocksCleared"));
        last = number(&m, 1);
        assert_false(has(&m, 2, "BlockStored"));

        s->last = 0;
        assert_int_equal(publisher_new(&s->options, &s->publisher, &failed), 0);
        receive_live(s, sub, "", &m);
        assert_true(s->last > last);
        zmq_close(sub);
}

SCENE(test_wrong_endpoint, 0)
{
        struct publisher_options options = s->options;
        struct publisher *publisher;
        const char *failed;

        options.sockets.endpoint = "udp:nowhere";
        assert_true(publisher_new(&options, &publisher, &failed) < 0);
        assert_string_equal(failed, "udp:nowhere");
        options.sockets = s->options.sockets;
        options.sockets.endpoint = "tcp://127.0.0.1:*";
        options.sockets.replay = "tcp://nowhere.invalid:1";
        assert_true(publisher_new(&options, &publisher, &failed) < 0);
        assert_string_equal(failed, "tcp://nowhere.invalid:1");
}
