/*
 * A server that follows a script: it listens on 127.0.0.1, takes requests apart as Redis does, and
 * answers what a function of the test's says. A thread of its own, for all its connections.
 */
#ifndef KVL_TESTS_FAKE_REDIS_H
#define KVL_TESTS_FAKE_REDIS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKE_ARGS_MAX  64
#define FAKE_CONNS_MAX 16
#define FAKE_INPUT_MAX (16u << 20)

struct fake_arg {
        const char *data; /* borrowed until the function returns */
        size_t len;
};

struct fake_conn {
        int fd;      /* -1: none */
        char *input; /* owned */
        size_t len;
        bool is_stuck; /* the test's */
};

struct fake_redis;

/* A request has arrived as a whole. False: the connection is closed. In the server's thread. */
typedef bool (*fake_fn)(
        struct fake_redis *e, struct fake_conn *c, unsigned n, const struct fake_arg *args);

struct fake_redis {
        uint16_t port;
        char address[32]; /* "127.0.0.1:PORT" */
        int listen_fd, wake_fd;
        pthread_t thread;
        fake_fn fn;
        void *data;
        _Atomic unsigned n_accepted, n_requests;
        _Atomic bool is_deaf; /* nothing is read from connections */
        _Atomic bool is_stopping;
        struct fake_conn conns[FAKE_CONNS_MAX];
};

/* A port of its own choice, or again `port`. All failures fail the test. */
void fake_redis_start(struct fake_redis *e, uint16_t port, fake_fn fn, void *data);
void fake_redis_stop(struct fake_redis *e);

/* After a change of is_deaf. */
void fake_redis_wake(struct fake_redis *e);

/* Sends all of it, as long as that takes. */
void fake_say(struct fake_conn *c, const char *text);
void fake_say_bytes(struct fake_conn *c, const void *data, size_t len);

bool fake_arg_is(const struct fake_arg *a, const char *word); /* in any case */

#define FAKE_REDIS_SCENE(fn, ...) \
        TEST_ON(fn, struct fake_redis, e, fake_redis_start, fake_redis_stop, ##__VA_ARGS__)

#endif
