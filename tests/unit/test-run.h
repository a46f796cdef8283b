/*
 * Tests that register themselves. TEST_WITH(), or a macro based on it, replaces a test's head, and
 * puts the test into a list that the linker makes (section kvl_tests). The main() of test-main.c
 * runs the list in the order of the file. After a failed test the program starts anew for those
 * that follow. A file with a setup for all of its tests has its own main(), which calls
 * test_run_all(), and doesn't start anew.
 */
#ifndef KVL_TESTS_TEST_RUN_H
#define KVL_TESTS_TEST_RUN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct test_row {
        struct CMUnitTest test;
        int line; /* of the file: tests run in this order */
};

/* Begins a test whose `state` is `initial` (a constant expression; may be NULL) when `setup` is
 * called. setup, teardown: around this test; may be NULL. */
#define TEST_WITH(fn, setup, teardown, initial)                                          \
        static void fn(void **state);                                                    \
        static const struct test_row fn##_row                                            \
                __attribute__((used, section("kvl_tests"), aligned(sizeof(void *)))) = { \
                        {#fn, fn, setup, teardown, (void *)(initial)}, __LINE__};        \
        static void fn(void **state)

/* Ends the test, which hasn't failed. */
#undef skip
#define skip() (test_is_skipped = true, _skip(__FILE__, __LINE__))
extern bool test_is_skipped;

/* A test without fixtures. */
#define TEST_BARE(fn) TEST_WITH(fn, NULL, NULL, NULL)

/* Runs all tests of the program between `setup` and `teardown` (either may be NULL). Returns the
 * number of tests that failed; negative: a fixture failed, or there is no memory. */
int test_run_all(CMFixtureFunction setup, CMFixtureFunction teardown);

#endif
