#include "tests/unit/test-run.h"

#include <stdlib.h>

/* The linker names the ends of the section. */
extern const struct test_row __start_kvl_tests[], __stop_kvl_tests[];

static int compare_lines(const void *a, const void *b)
{
        const struct test_row *x = a, *y = b;

        return (x->line > y->line) - (x->line < y->line);
}

int test_run_all(CMFixtureFunction setup, CMFixtureFunction teardown)
{
        size_t n = (size_t)(__stop_kvl_tests - __start_kvl_tests);
        struct test_row *rows = malloc(n * sizeof(*rows));
        struct CMUnitTest *tests = calloc(n, sizeof(*tests));
        int n_failed = -1;

        if (rows && tests) {
                /* Compilers may put variables into a section in any order. */
                memcpy(rows, __start_kvl_tests, n * sizeof(*rows));
                qsort(rows, n, sizeof(*rows), compare_lines);
                for (size_t i = 0; i < n; i++)
                        tests[i] = rows[i].test;
                n_failed = _cmocka_run_group_tests("tests", tests, n, setup, teardown);
        }
        free(tests);
        free(rows);
        return n_failed;
}
