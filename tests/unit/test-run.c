#include "tests/unit/test-run.h"

#include <errno.h>
#include <linux/close_range.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

/* Tells a fresh process where to begin, and how many tests failed before: "INDEX FAILED". */
#define REST "KVL_TEST_REST"

/* The linker names the ends of the section. */
extern const struct test_row __start_kvl_tests[], __stop_kvl_tests[];

static struct test_row *rows; /* in the order of the file */
static const struct test_row *running;
static int n_failed_before;
static bool has_passed = true; /* the test that ran last */
static char **arguments;       /* of the program */

__attribute__((constructor)) static void note_arguments(int argc, char **argv)
{
        (void)argc;
        arguments = argv;
}

static int compare_lines(const void *a, const void *b)
{
        const struct test_row *x = a, *y = b;

        return (x->line > y->line) - (x->line < y->line);
}

/* Starts the program anew for the tests from this one on: the failed test before it may have left
 * threads, memory and descriptors, which would disturb them. */
static void run_rest(void)
{
        const struct itimerval never = {{0, 0}, {0, 0}};
        char rest[64];

        (void)snprintf(rest, sizeof(rest), "%td %d", running - rows, n_failed_before + 1);
        (void)setenv(REST, rest, 1);
        (void)setitimer(ITIMER_REAL, &never, NULL);
        (void)close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
        (void)fflush(NULL);
        (void)execv("/proc/self/exe", arguments);
        print_error("later tests run in this process: %s\n", strerror(errno));
}

/* *state: the row. Its own state follows it. */
static int begin(void **state)
{
        running = *state;
        *state = running->test.initial_state;
        if (!has_passed && !test_is_skipped)
                run_rest();
        has_passed = test_is_skipped = false;
        return running->test.setup_func ? running->test.setup_func(state) : 0;
}

static void run(void **state)
{
        running->test.test_func(state);
        has_passed = true;
}

static int end(void **state)
{
        int r = running->test.teardown_func ? running->test.teardown_func(state) : 0;

        if (r != 0)
                has_passed = test_is_skipped = false;
        return r;
}

/* The rows in the order of the file: compilers may put variables into a section in any order. */
static struct test_row *rows_new(size_t *ret_n)
{
        struct test_row *r;

        *ret_n = (size_t)(__stop_kvl_tests - __start_kvl_tests);
        r = malloc(*ret_n * sizeof(*r));
        if (r) {
                memcpy(r, __start_kvl_tests, *ret_n * sizeof(*r));
                qsort(r, *ret_n, sizeof(*r), compare_lines);
        }
        return r;
}

int test_run_all(CMFixtureFunction setup, CMFixtureFunction teardown)
{
        const char *rest = setup || teardown ? NULL : getenv(REST);
        struct CMUnitTest *tests;
        size_t n, first = 0;
        int n_failed = -1;

        rows = rows_new(&n);
        tests = calloc(n, sizeof(*tests));
        if (rest)
                (void)sscanf(rest, "%zu %d", &first, &n_failed_before);
        (void)unsetenv(REST);
        if (rows && tests) {
                for (size_t i = 0; i < n; i++)
                        tests[i] = setup || teardown ? rows[i].test
                                                     : (struct CMUnitTest){rows[i].test.name, run,
                                                               begin, end, &rows[i]};
                n_failed =
                        _cmocka_run_group_tests("tests", tests + first, n - first, setup, teardown);
                n_failed += n_failed >= 0 ? n_failed_before : 0;
        }
        free(tests);
        free(rows);
        return n_failed;
}
