#include "policy/admission.h"
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"

#define MSEC UINT64_C(1000000)
#define NOW  (1000 * UINT64_C(1000000000))
#define NONE UINT64_MAX

static void check_order(const struct admission_request *a, const struct admission_request *b)
{
        assert_true(admission_compare(a, b, NOW) < 0);
        assert_true(admission_compare(b, a, NOW) > 0);
}

/* Each criterion beats all that come after it. */
TEST(test_criteria)
{
        const struct admission_request base = {50, 10, NOW, NOW + 9, 100, 7};
        struct admission_request first = base, second = base;

        first = (struct admission_request){51, 1, NOW, NONE, 999, 9};
        check_order(&first, &base);
        first = (struct admission_request){50, 1, NOW, NOW + 8, 999, 9};
        check_order(&first, &base);
        first = (struct admission_request){50, 11, NOW, NOW + 9, 100, 9};
        check_order(&first, &base);
        first = (struct admission_request){50, 20, NOW, NOW + 9, 199, 9};
        check_order(&first, &base);
        second = (struct admission_request){50, 20, NOW, NOW + 9, 200, 8};
        check_order(&base, &second);
        assert_int_equal(admission_compare(&base, &base, NOW), 0);
}

/* Each whole ADMISSION_AGE_NSEC adds a step of priority, whether the request arrived before now or
 * not. */
TEST(test_aging)
{
        struct admission_request fresh = {100, 1, NOW, NOW + 1, 0, 2};
        struct admission_request old = {0, 1, NOW - 101 * ADMISSION_AGE_NSEC, NONE, 5 * MSEC, 1};

        check_order(&old, &fresh);
        old.arrived_nsec++;
        check_order(&fresh, &old);
        old.arrived_nsec = 0;
        check_order(&old, &fresh);
        old.arrived_nsec = NOW + 1;
        check_order(&fresh, &old);
}

/* ---- a queue ----------------------------------------------------------------------------------*/
