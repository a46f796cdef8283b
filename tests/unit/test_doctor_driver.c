/* kvleasectl doctor with the simulated driver, and with one that hangs or crashes. */
#include "tests/unit/test-support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client/ctl/doctor.h"

#define MSEC 30000

static struct doctor_driver driver; /* large for a stack */

static int setup(void **state)
{
        const char *dir = test_dir_make();

        setenv("FAKECUDA_DIR", dir, 1);
        return test_fds_note(state);
}

static int teardown(void **state)
{
        test_dir_remove(getenv("FAKECUDA_DIR"));
        unsetenv("FAKECUDA_DELAY");
        unsetenv("FAKECUDA_NO");
        unsetenv("FAKECUDA_FAIL");
        unsetenv("FAKENVML_FAIL");
        return test_fds_check(state);
}

TEST_WITH(test_answers, setup, teardown, NULL)
{
        driver_ask(&driver, MSEC);
        assert_true(driver.asked);
        assert_int_equal(driver.result, 0);
        assert_int_equal(driver.cuda_version, 13000);
        assert_string_equal(driver.version, "550.54.14");
        assert_int_equal(driver.n_gpus, 1);
        assert_string_equal(driver.gpus[0].name, "GPU-fa4ecada-0000-0000-0000-000000000000");
        assert_true(driver.gpus[0].total_bytes == UINT64_C(8) << 30);
        assert_true(driver.gpus[0].has_vmm);
        assert_true(driver.gpus[0].has_management);
        assert_int_equal(driver.gpus[0].persistence, PERSISTENCE_OFF);
        assert_true(driver.gpus[0].used_bytes == UINT64_C(1) << 30);
        assert_int_equal(driver.gpus[0].n_users, 1);
        assert_int_equal(driver.gpus[0].users[0].pid, 4711);
}

TEST_WITH(test_lacks, setup, teardown, NULL)
{
        setenv("FAKECUDA_NO", "fd", 1);
        setenv("FAKENVML_FAIL", "1", 1);
        driver_ask(&driver, MSEC);
        assert_int_equal(driver.result, 0);
        assert_false(driver.gpus[0].has_vmm);
        assert_false(driver.gpus[0].has_management);
        assert_string_equal(driver.management_why, "libnvidia-ml.so.1 can't be used");
}

TEST_WITH(test_fails, setup, teardown, NULL)
{
        setenv("FAKECUDA_FAIL", "cuInit:100", 1);
        driver_ask(&driver, MSEC);
        assert_true(driver.asked);
        assert_int_equal(driver.result, -ENODEV);
        assert_true(driver.why[0]);
        assert_int_equal(driver.n_gpus, 0);
}

TEST_WITH(test_hangs, setup, teardown, NULL)
{
        uint64_t begin_nsec = clock_now_nsec();

        setenv("FAKECUDA_DELAY", "cuInit:60000", 1);
        driver_ask(&driver, 200);
        assert_false(driver.asked);
        assert_string_equal(driver.why, "the driver doesn't answer");
        assert_true(clock_now_nsec() - begin_nsec < 30 * NSEC_PER_SEC);
}

/* The double aborts where FAKECUDA_FAIL is nonsense. */
TEST_WITH(test_crashes, setup, teardown, NULL)
{
        setenv("FAKECUDA_FAIL", "nonsense", 1);
        driver_ask(&driver, MSEC);
        assert_false(driver.asked);
        assert_string_equal(driver.why, "the driver ends the process that asks it");
}
