/* A file as the clock of daemons (KVLEASE_TEST_CLOCK), for a group of tests. Open and close it as
 * their setup and teardown, and start daemons with file_clock_env. */
#ifndef KVL_TESTS_FILE_CLOCK_H
#define KVL_TESTS_FILE_CLOCK_H

#include <endian.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fd.h"
#include "tests/integration/harness.h"

static char file_clock_path[] = "/tmp/kvl-clock-XXXXXX";
static char file_clock_variable[64];
static const char *const file_clock_env[] = {file_clock_variable, NULL};

static inline void file_clock_set(uint64_t nsec)
{
        uint64_t le = htole64(nsec);
        _cleanup_fd_ int fd = open(file_clock_path, O_WRONLY | O_CLOEXEC);

        assert_true(fd >= 0);
        assert_int_equal(pwrite(fd, &le, sizeof(le), 0), sizeof(le));
}

/* Makes a clock that stands at 1000 s. */
static inline int file_clock_open(void **state)
{
        fd_close(mkostemp(file_clock_path, O_CLOEXEC));
        file_clock_set(1000 * UINT64_C(1000000000));
        snprintf(file_clock_variable, sizeof(file_clock_variable), "KVLEASE_TEST_CLOCK=%s",
                file_clock_path);
        return 0;
}

static inline int file_clock_close(void **state)
{
        return unlink(file_clock_path);
}

#endif
