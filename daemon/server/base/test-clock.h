/*
 * The time given to the daemon's state. It is CLOCK_MONOTONIC. Exception: if the environment
 * variable KVLEASE_TEST_CLOCK names a file of 8 bytes, it is read from there (nanoseconds,
 * little-endian). A test writes the file to replay a trace in less time. The loop's timers use the
 * real clock.
 */
#ifndef KVL_SERVER_TEST_CLOCK_H
#define KVL_SERVER_TEST_CLOCK_H

#include <stdatomic.h>
#include <stdint.h>

#define TEST_CLOCK_VARIABLE "KVLEASE_TEST_CLOCK"

struct detail;

struct test_clock {
        const _Atomic uint64_t *nsec; /* in the file, which is mapped; NULL: there is none */
};

/* Maps the file that the variable names. Returns 0, also if it isn't set; -errno with the sentence:
 * the file can't be mapped, or is too short. */
int test_clock_open(struct test_clock *c, struct detail *d);
void test_clock_close(struct test_clock *c);

/* The current time, for every call into daemon/core that takes one. */
uint64_t test_clock_now(const struct test_clock *c);

#endif
