/* Plans which call of which libc function fails next (inject.h), in a process that has inject.so,
 * and reads its log. Asserts by cmocka. One thread. */
#ifndef KVL_TESTS_INJECT_PLAN_H
#define KVL_TESTS_INJECT_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/fault/inject.h"
#include "tests/integration/harness.h"

/* Time limit of the daemon's start and stop, and of an answer; not tuned. */
#define WAIT_MSEC 30000

struct inject_function_info {
        const char *name;
        int error;
};
extern const struct inject_function_info functions[N_INJECT];

extern char file_env[64], preload_env[256];
extern const char *const daemon_env[]; /* of a process with inject.so */
extern const char *start_env[];        /* the same, with point_env */
extern char point_env[64];

/* Set-up of the group of tests: makes the file that is shared with the process. */
int open_shared(void **state);
int close_shared(void **state);

/* From now on, the k-th call of the function fails; 0: none. */
void arm(unsigned f, uint64_t k);

/* From now on, the k-th call of the function and all later ones wait; 0: all continue. */
void hold_from(unsigned f, uint64_t k);

/* Calls that have waited since the counts were reset. */
uint64_t count_held(unsigned f);

void reset_counts(void);

struct counts {
        uint64_t n[N_INJECT];
};

struct counts counts_now(void);
struct counts counts_since(const struct counts *before);

/* KVL_SEED chooses the calls; KVL_INJECT_POINT=NAME:N takes only that one. */
struct plan {
        struct counts counts; /* calls there are */
        uint64_t end_nsec, random;
        unsigned only, f;
        uint64_t only_k, k, round;
        unsigned n_tried;
        bool round_has_any;
};

struct plan plan_new(struct counts counts, unsigned seconds);

/* Finds the next call to fail. Round r takes one call of each function that is called more than r
 * times. KVL_FULL takes all calls one after the other. */
bool plan_next(struct plan *p);

/* Prints how many calls were tried; asserts that it is some. */
void plan_done(const struct plan *p, const char *what);

/* The log from an offset on; owned. */
char *log_from(struct harness *h, size_t offset);
size_t log_length(struct harness *h);

#endif
