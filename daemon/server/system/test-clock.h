/*
 * The time that the daemon's state is given. It is CLOCK_MONOTONIC, but where the environment
 * variable KVLEASE_TEST_CLOCK names a file of 8 bytes: nanoseconds, little-endian, written by who
 * replays a trace in less time than it took. The loop's timers stay with the real one.
 */
#ifndef KVL_SERVER_TEST_CLOCK_H
#define KVL_SERVER_TEST_CLOCK_H

#include <stdint.h>

#define TEST_CLOCK_VARIABLE "KVLEASE_TEST_CLOCK"

struct server;
struct detail;

/* 0, also where the variable isn't set; -errno with the sentence: the file can't be mapped, or is
 * too short. */
int test_clock_open(struct server *s, struct detail *d);
void test_clock_close(struct server *s);

/* Of every call into daemon/core that takes a time. */
uint64_t server_now(const struct server *s);

#endif
