/* Lives of recover-fixture.h that a child leads, for tests of cmocka. */
#ifndef KVL_TESTS_RECOVER_CHILD_H
#define KVL_TESTS_RECOVER_CHILD_H

#include "tests/unit/recover-fixture.h"
#include "tests/unit/test-support.h"

/* Runs a life that ends with fn. Returns its wait status. */
static inline int in_child(
        struct keep_parent *k, int (*fn)(struct keep_parent *, void *), void *data)
{
        return keep_parent_run(k, fn, data, 0);
}

/* The child ran to its end, and no CHECK() failed. */
static inline void assert_exited(int status)
{
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
                fail_msg("the child's status is %#x", (unsigned)status);
}

#endif
