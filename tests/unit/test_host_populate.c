/* Has this process' page tables know what there is of a host's extent, before it is touched. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu/device.h"
#include "tests/unit/test-support.h"
#include "tests/unit/touchable.h"

#define STEP   ((uint64_t)2 << 20)
#define AROUND ((uint64_t)64 << 10) /* what a fault maps */

/* How much of [from, to) is in this process' page tables. */
static uint64_t present_bytes(const uint8_t *base, uint64_t from, uint64_t to)
{
        uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), n = 0;

        for (uint64_t at = from; at < to; at += page)
                n += is_present(base + at) ? page : 0;
        return n;
}

static uint64_t memory_bytes(int fd)
{
        struct stat st;

        assert_int_equal(fstat(fd, &st), 0);
        return (uint64_t)st.st_blocks * 512;
}

/* Not before Linux 5.14; and not by other pieces: another page size, large pages unasked. */
static bool can_populate(void)
{
        int fd = memfd_create("populate", MFD_CLOEXEC);
        uint8_t *at;
        bool can;

        assert_true(fd >= 0 && ftruncate(fd, STEP) == 0);
        at = mmap(NULL, STEP, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_ptr_not_equal(at, MAP_FAILED);
        can = madvise(at, 1, MADV_POPULATE_READ) == 0 && memory_bytes(fd) == 4096;
        munmap(at, STEP);
        close(fd);
        return can;
}

static struct device *d;

/* An extent in an arena of one process, which is twice as large. */
struct mapping {
        struct extent *extent;
        struct device_arena *arena;
        uint8_t *base;
};

static void map(struct mapping *m, struct extent *e)
{
        m->extent = e;
        assert_int_equal(d->ops->arena_reserve(d, 2 * STEP, 0, &m->arena), 0);
        assert_int_equal(d->ops->arena_map(m->arena, 0, e, DEVICE_READ_WRITE), 0);
        m->base = d->ops->arena_base(m->arena);
}

static void unmap(struct mapping *m)
{
        assert_int_equal(d->ops->arena_unmap(m->arena, 0, m->extent), 0);
        d->ops->arena_release(m->arena);
        d->ops->extent_destroy(m->extent, false);
}

/* Maps memory twice: `own` writes it, `other` doesn't touch it. Returns its descriptor. */
static int map_both(struct mapping *own, struct mapping *other)
{
        struct extent_handle handle;
        char why[DEVICE_WHY_BYTES];
        struct extent *e;
        int fd;

        assert_int_equal(device_open("host", NULL, &d, why), 0);
        assert_int_equal(d->ops->extent_create(d, STEP, &e), 0);
        map(own, e);
        assert_int_equal(d->ops->extent_export(e, &handle), 0);
        fd = fcntl(handle.fd, F_DUPFD_CLOEXEC, 0);
        assert_true(fd >= 0);
        assert_int_equal(d->ops->extent_import(d, &handle, STEP, &e), 0);
        map(other, e);
        return fd;
}

static void unmap_both(struct mapping *own, struct mapping *other, int fd)
{
        unmap(own);
        unmap(other);
        device_close(d);
        close(fd);
}

/* One page of 64 KiB is made. */
TEST(test_what_is_not)
{
        struct mapping own, other;
        int fd;

        if (!can_populate())
                skip();
        fd = map_both(&own, &other);
        d->ops->arena_populate(other.arena, 8 * AROUND + 4096, AROUND);
        assert_int_equal(memory_bytes(fd), 2 * 4096);
        assert_true(is_present(other.base + 8 * AROUND + 4096));
        assert_true(is_present(other.base + 9 * AROUND));
        assert_int_equal(present_bytes(other.base, 0, STEP), 2 * 4096);
        unmap_both(&own, &other, fd);
}
