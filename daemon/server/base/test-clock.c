#include "daemon/server/base/test-clock.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "daemon/core/state/detail.h"
#include "daemon/server/base/log.h"

static int map_file(const char *path, const _Atomic uint64_t **ret)
{
        _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        struct stat st;
        void *at;

        if (fd < 0 || fstat(fd, &st) < 0)
                return -errno;
        if (st.st_size < (off_t)sizeof(**ret))
                return -ENODATA;
        at = mmap(NULL, sizeof(**ret), PROT_READ, MAP_SHARED, fd, 0);
        if (at == MAP_FAILED)
                return -errno;
        *ret = at;
        return 0;
}

int test_clock_open(struct test_clock *c, struct detail *d)
{
        const char *path = getenv(TEST_CLOCK_VARIABLE);
        int r;

        if (!path)
                return 0;
        r = map_file(path, &c->nsec);
        if (r < 0)
                return detail_set(d, r,
                        TEST_CLOCK_VARIABLE
                        " names %s, which can't be mapped as a clock: %s; make it a file of 8 bytes, or unset the variable",
                        path, r == -ENODATA ? "it is too short" : strerror(-r));
        log_warning("time is read from %s (" TEST_CLOCK_VARIABLE "): for tests alone", path);
        return 0;
}

void test_clock_close(struct test_clock *c)
{
        if (c->nsec)
                munmap((void *)(uintptr_t)c->nsec, sizeof(*c->nsec));
        c->nsec = NULL;
}

uint64_t test_clock_now(const struct test_clock *c)
{
        return c->nsec ? le64toh(atomic_load_explicit(c->nsec, memory_order_acquire))
                       : clock_now_nsec();
}
