/*
 * Base of every unit test: cmocka with its includes in the right order, and a check that each test
 * closed the descriptors that it opened.
 */
#ifndef KVL_TESTS_TEST_SUPPORT_H
#define KVL_TESTS_TEST_SUPPORT_H

#include <stdbool.h>

#include "base/macros.h"
#include "tests/unit/test-run.h"

/* Begins a test, which fails where it leaves more or fewer descriptors open than it found. */
#define TEST(fn) TEST_WITH(fn, test_fds_note, test_fds_check, NULL)

/* Begins a test that gets `type *name`, which start(name, ...) fills before it and end(name) clears
 * after it. */
#define TEST_ON(fn, type, name, start, end, ...) \
        static void fn##_on(type *name);         \
        TEST(fn)                                 \
        {                                        \
                type on;                         \
                                                 \
                start(&on, ##__VA_ARGS__);       \
                fn##_on(&on);                    \
                end(&on);                        \
        }                                        \
        static void fn##_on(type *name)

/* A row of a file that lists its tests in a table. */
#define TEST_ROW(fn) cmocka_unit_test_setup_teardown(fn, test_fds_note, test_fds_check)

/* Both take any state and leave it alone; a test with a setup of its own calls them from there. */
int test_fds_note(void **state);
int test_fds_check(void **state);

#define RUN_TESTS(tests) cmocka_run_group_tests(tests, NULL, NULL)

/* A fresh directory below $TMPDIR or /tmp; static storage, until the next call. */
const char *test_dir_make(void);

/* Removes it and everything in it; fails the test where it can't. */
void test_dir_remove(const char *dir);

/* "DIR/NAME" in owned memory. */
char *test_path(const char *dir, const char *name);

/* Entries of a directory, "." and ".." left out. */
unsigned test_dir_count(const char *dir);

#endif
