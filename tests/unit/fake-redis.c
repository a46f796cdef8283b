#include "tests/unit/fake-redis.h"

#include "tests/unit/test-support.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"

#define READ_BYTES (256u << 10)

bool fake_arg_is(const struct fake_arg *a, const char *word)
{
        return a->len == strlen(word) && strncasecmp(a->data, word, a->len) == 0;
}

void fake_say_bytes(struct fake_conn *c, const void *data, size_t len)
{
        const char *at = data;

        while (len > 0 && c->fd >= 0) {
                ssize_t n = send(c->fd, at, len, MSG_NOSIGNAL);

                if (n <= 0)
                        return; /* the listener has exited */
                at += n;
                len -= (size_t)n;
        }
}

void fake_say(struct fake_conn *c, const char *text)
{
        fake_say_bytes(c, text, strlen(text));
}

/* "$12\r\n": the number behind `kind`. Returns the bytes it took; 0: it isn't there yet. */
static size_t read_head(const char *data, size_t len, char kind, size_t *ret_number)
{
        const char *end = len > 0 ? memchr(data, '\n', len) : NULL;

        if (!end)
                return 0;
        assert_int_equal(data[0], kind);
        *ret_number = strtoul(data + 1, NULL, 10);
        return (size_t)(end - data) + 1;
}

/* Takes a request apart. Returns the bytes it has; 0: it isn't there yet. */
static size_t read_request(
        const char *data, size_t len, unsigned *ret_n, struct fake_arg args[FAKE_ARGS_MAX])
{
        size_t n, at, used;

        at = read_head(data, len, '*', &n);
        if (at == 0)
                return 0;
        assert_true(n > 0 && n <= FAKE_ARGS_MAX);
        for (size_t i = 0; i < n; i++) {
                used = read_head(data + at, len - at, '$', &args[i].len);
                if (used == 0 || len - at - used < args[i].len + 2)
                        return 0;
                at += used;
                args[i].data = data + at;
                at += args[i].len;
                assert_memory_equal(data + at, "\r\n", 2);
                at += 2;
        }
        *ret_n = (unsigned)n;
        return at;
}

static void conn_end(struct fake_conn *c)
{
        c->fd = fd_close(c->fd);
        free(c->input);
        c->input = NULL;
        c->len = 0;
        c->is_stuck = false;
}

static void conn_read(struct fake_redis *e, struct fake_conn *c)
{
        struct fake_arg args[FAKE_ARGS_MAX];
        size_t at = 0, used;
        ssize_t n;
        unsigned n_args;

        assert_true(c->len + READ_BYTES <= FAKE_INPUT_MAX);
        n = recv(c->fd, c->input + c->len, READ_BYTES, 0);
        if (n <= 0) {
                conn_end(c);
                return;
        }
        c->len += (size_t)n;
        while ((used = read_request(c->input + at, c->len - at, &n_args, args)) > 0) {
                atomic_fetch_add(&e->n_requests, 1);
                if (!e->fn(e, c, n_args, args)) {
                        conn_end(c);
                        return;
                }
                at += used;
        }
        c->len -= at;
        memmove(c->input, c->input + at, c->len);
}

static void server_accept(struct fake_redis *e)
{
        struct fake_conn *c = e->conns;

        while (c < e->conns + FAKE_CONNS_MAX && c->fd >= 0)
                c++;
        assert_true(c < e->conns + FAKE_CONNS_MAX);
        c->fd = accept4(e->listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (c->fd < 0)
                return;
        c->input = malloc(FAKE_INPUT_MAX);
        assert_non_null(c->input);
        atomic_fetch_add(&e->n_accepted, 1);
}

static void *server_run(void *data)
{
        struct fake_redis *e = data;

        while (!atomic_load(&e->is_stopping)) {
                struct pollfd polls[FAKE_CONNS_MAX + 2];
                bool is_deaf = atomic_load(&e->is_deaf);
                uint64_t times;

                for (unsigned i = 0; i < FAKE_CONNS_MAX; i++)
                        polls[i] = (struct pollfd){
                                .fd = is_deaf ? -1 : e->conns[i].fd, .events = POLLIN};
                polls[FAKE_CONNS_MAX] = (struct pollfd){.fd = e->listen_fd, .events = POLLIN};
                polls[FAKE_CONNS_MAX + 1] = (struct pollfd){.fd = e->wake_fd, .events = POLLIN};
                if (poll(polls, FAKE_CONNS_MAX + 2, -1) < 0)
                        continue;
                for (unsigned i = 0; i < FAKE_CONNS_MAX; i++)
                        if (polls[i].revents && e->conns[i].fd >= 0)
                                conn_read(e, &e->conns[i]);
                if (polls[FAKE_CONNS_MAX].revents)
                        server_accept(e);
                if (polls[FAKE_CONNS_MAX + 1].revents)
                        (void)!read(e->wake_fd, &times, sizeof(times));
        }
        return NULL;
}

void fake_redis_start(struct fake_redis *e, uint16_t port, fake_fn fn, void *data)
{
        struct sockaddr_in address = {.sin_family = AF_INET,
                .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                .sin_port = htons(port)};
        socklen_t len = sizeof(address);
        int one = 1;

        memset(e, 0, sizeof(*e));
        e->fn = fn;
        e->data = data;
        for (unsigned i = 0; i < FAKE_CONNS_MAX; i++)
                e->conns[i].fd = -1;
        e->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(e->listen_fd >= 0);
        assert_int_equal(setsockopt(e->listen_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
        assert_int_equal(bind(e->listen_fd, (struct sockaddr *)&address, sizeof(address)), 0);
        assert_int_equal(listen(e->listen_fd, 16), 0);
        assert_int_equal(getsockname(e->listen_fd, (struct sockaddr *)&address, &len), 0);
        e->port = ntohs(address.sin_port);
        snprintf(e->address, sizeof(e->address), "127.0.0.1:%u", e->port);
        e->wake_fd = eventfd(0, EFD_CLOEXEC);
        assert_true(e->wake_fd >= 0);
        assert_int_equal(pthread_create(&e->thread, NULL, server_run, e), 0);
}

void fake_redis_wake(struct fake_redis *e)
{
        const uint64_t once = 1;

        assert_int_equal(write(e->wake_fd, &once, sizeof(once)), sizeof(once));
}

void fake_redis_stop(struct fake_redis *e)
{
        atomic_store(&e->is_stopping, true);
        fake_redis_wake(e);
        pthread_join(e->thread, NULL);
        for (unsigned i = 0; i < FAKE_CONNS_MAX; i++)
                if (e->conns[i].fd >= 0)
                        conn_end(&e->conns[i]);
        fd_close(e->listen_fd);
        fd_close(e->wake_fd);
}
