/* Baselines of figures: an atomic increment, pages taken from an array, and the cheapest answers of
 * another process or thread. */
#ifndef KVL_BENCH_BASELINE_H
#define KVL_BENCH_BASELINE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <protobuf-c/protobuf-c.h>

#include "tests/bench/bench.h"

#define INCREMENTS_BATCH 1000 /* at least; the clock alone costs 20 to 30 ns */

/* Nanoseconds of one atomic increment of a word in the cache, over INCREMENTS_BATCH. */
double increment_nsec(void);

/* Nanoseconds to take one page from an array of this process, by an atomic exchange; over n of them
 * in a row. The array has a magazine's layout and length (proto/shm.h). */
double take_nsec(unsigned n);

/* Bytes of one request and of its answer. */
struct echo_sizes {
        size_t request, reply;
};

/* Sizes of a request and its answer as frames. */
struct echo_sizes echo_sizes_of(const ProtobufCMessage *request, const ProtobufCMessage *reply);

/* Frame sizes of a lease and a free of one page on the socket. */
void echo_frame_sizes(struct echo_sizes ret_sizes[2]);

/* A process at the other end of a Unix socket. It answers requests of sizes[0], sizes[1],
 * sizes[0]... with as many bytes, unread. */
struct echo {
        int fd; /* -1: none */
        pid_t pid;
        struct echo_sizes sizes[2];
        unsigned next; /* of the sizes */
};

int echo_open(struct echo *e, const struct echo_sizes sizes[2]); /* 0 or -errno */
void echo_close(struct echo *e);
int echo_call(struct echo *e); /* 0 or -errno */

/* A thread that a futex wakes, and that wakes back. */
struct pingpong {
        pthread_t thread;
        bool running;
        _Atomic uint32_t word; /* odd: the thread's turn */
        _Atomic bool stop;
};

int pingpong_open(struct pingpong *p, int core); /* pinned there. 0 or -errno */
void pingpong_close(struct pingpong *p);
void pingpong_call(struct pingpong *p);

#endif
