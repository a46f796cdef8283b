/* By itself: programs that list their tests in a table have no section for test-run.c. */
#include "tests/unit/test-run.h"

bool test_is_skipped;
