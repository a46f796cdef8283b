/* Whether memory can be touched: the kernel tries it for us, so nothing needs to catch SIGSEGV. */
#ifndef KVL_TESTS_TOUCHABLE_H
#define KVL_TESTS_TOUCHABLE_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/test-support.h"

static inline bool is_readable(const void *at)
{
        int fds[2];
        ssize_t n;

        assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
        n = write(fds[1], at, 1);
        close(fds[0]);
        close(fds[1]);
        return n == 1;
}

/* The byte is 0 after it. */
static inline bool is_writable(void *at)
{
        int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
        ssize_t n = read(fd, at, 1);

        close(fd);
        return n == 1;
}

/* Is the page in this process' page tables? (proc(5), pagemap) */
static inline bool is_present(const void *at)
{
        int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
        uint64_t entry = 0, page = (uintptr_t)at / (uint64_t)sysconf(_SC_PAGESIZE);

        assert_int_equal(
                pread(fd, &entry, sizeof(entry), (off_t)(page * sizeof(entry))), sizeof(entry));
        close(fd);
        return entry >> 63;
}

/* True if there is a mapping, with any access. */
static inline bool is_reserved(void *at)
{
        unsigned char resident;

        return mincore(at, 1, &resident) == 0;
}

#endif
