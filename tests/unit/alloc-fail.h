/*
 * Makes the n-th allocation fail. Every unit test links with --wrap for malloc, calloc and realloc,
 * which covers what our own objects call; allocations inside shared libraries go on as usual.
 * One thread sets it up; allocations of all threads count.
 */
#ifndef KVL_TESTS_ALLOC_FAIL_H
#define KVL_TESTS_ALLOC_FAIL_H

#include <stdbool.h>

/* The n-th allocation from now (from 1) returns NULL with ENOMEM, once; 0: none. */
void alloc_fail_at(unsigned n);

/* Ends it. True where the failure had happened. */
bool alloc_fail_end(void);

/*
 * Runs the body once for each allocation it makes with that one failing, and a last time with none
 * failing: `alloc_fail_each (n) { ...; }`. The body must not leave by break, return or a failed
 * assertion that is expected. alloc_fail_happened() inside tells which it was.
 */
#define alloc_fail_each(n)                                           \
        for (unsigned n = 1, n##_go = (alloc_fail_at(1), 1); n##_go; \
                n##_go = alloc_fail_end(), n++, n##_go ? alloc_fail_at(n) : (void)0)

/* True where the failure set up has happened. */
bool alloc_fail_happened(void);

#endif
