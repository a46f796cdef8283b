/* Host memory is freed in a thread: unmapped, and empty for processes that still map it. */
#include "daemon/core/memory/discard.h"

#include <errno.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "base/fd.h"
#include "gpu/device.h"
#include "tests/unit/test-support.h"

#define BYTES ((uint64_t)4 << 20)
#define MANY  (4 * DISCARDS_MAX)

/* A device, and what a client has mapped of each extent. */
struct fixture {
        struct device *device;
        struct discards discards;
        uint8_t *theirs[MANY];
        unsigned n;
};

/* The host's functions, and the thread that last called extent_destroy(). */
static const struct device_ops *host_ops;
static struct device_ops spy_ops;
static _Atomic pthread_t destroyed_by;

static void spy_destroy(struct extent *e, bool last_owner)
{
        destroyed_by = pthread_self();
        host_ops->extent_destroy(e, last_owner);
}

static bool is_by_caller(void)
{
        return pthread_equal(destroyed_by, pthread_self()) != 0;
}

static void open_fixture(struct fixture *f)
{
        const struct device_options options = {.side = DEVICE_OWNER};
        char why[DEVICE_WHY_BYTES];

        *f = (struct fixture){0};
        assert_int_equal(device_open("host", &options, &f->device, why), 0);
        host_ops = f->device->ops;
        spy_ops = *host_ops;
        spy_ops.extent_destroy = spy_destroy;
        f->device->ops = &spy_ops;
}

static void close_fixture(struct fixture *f)
{
        for (unsigned i = 0; i < f->n; i++)
                assert_int_equal(munmap(f->theirs[i], BYTES), 0);
        f->device->ops->close(f->device);
}

#define SCENE(fn, ...) TEST_ON(fn, struct fixture, f, open_fixture, close_fixture, ##__VA_ARGS__)

/* An extent full of ones, which another process maps. */
static struct extent *make_extent(struct fixture *f)
{
        const struct device_ops *ops = f->device->ops;
        struct extent_handle handle;
        struct extent *e;
        uint8_t *at;

        assert_int_equal(ops->extent_create(f->device, BYTES, &e), 0);
        assert_int_equal(ops->extent_export(e, &handle), 0);
        at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, handle.fd, 0);
        assert_true(at != MAP_FAILED);
        fd_close(handle.fd);
        memset(at, 1, BYTES);
        assert_true(f->n < MANY);
        f->theirs[f->n++] = at;
        return e;
}

/* Makes a discard of n extents, n_mapped of them mapped here. */
static struct discard *make(struct fixture *f, uint32_t n, uint32_t n_mapped)
{
        const struct device_ops *ops = f->device->ops;
        struct discard *what = discard_new(n);

        assert_non_null(what);
        what->extent_bytes = BYTES;
        if (n_mapped > 0)
                assert_int_equal(ops->arena_reserve(f->device, n * BYTES, 0, &what->arena), 0);
        for (uint32_t i = 0; i < n; i++) {
                what->extents[what->n++] = make_extent(f);
                if (i < n_mapped)
                        assert_int_equal(ops->arena_map(what->arena, i * BYTES, what->extents[i],
                                                 DEVICE_READ_WRITE),
                                0);
                what->n_mapped += i < n_mapped;
        }
        return what;
}

static bool is_full(const struct fixture *f, unsigned i)
{
        return f->theirs[i][0] == 1 && f->theirs[i][BYTES - 1] == 1;
}

static bool is_empty(const struct fixture *f, unsigned i)
{
        for (uint64_t at = 0; at < BYTES; at++)
                if (f->theirs[i][at] != 0)
                        return false;
        return true;
}

/* Is there anything at these addresses? */
static bool is_mapped(const void *at)
{
        unsigned char in;

        return mincore((void *)(uintptr_t)at, 1, &in) == 0;
}

SCENE(test_thread)
{
        struct discard *what;
        const void *at;

        assert_int_equal(discards_start(&f->discards), 0);
        what = make(f, 3, 2);
        at = f->device->ops->arena_base(what->arena);
        assert_true(is_mapped(at));
        discard_submit(&f->discards, what);
        discards_stop(&f->discards); /* ends when all is given back */
        assert_false(is_by_caller());
        assert_false(is_mapped(at));
        for (unsigned i = 0; i < f->n; i++)
                assert_true(is_empty(f, i));
        discards_stop(&f->discards);
}

/* No more than so many extents wait, or one set of more; what is beyond that goes at once. */
SCENE(test_bound)
{
        assert_int_equal(discards_start(&f->discards), 0);
        pthread_mutex_lock(&f->discards.lock);
        f->discards.n_extents = DISCARDS_MAX - 2; /* as if they waited */
        pthread_mutex_unlock(&f->discards.lock);
        discard_submit(&f->discards, make(f, 3, 3));
        assert_true(is_by_caller());
        for (unsigned i = 0; i < 3; i++)
                assert_true(is_empty(f, i));
        pthread_mutex_lock(&f->discards.lock);
        assert_int_equal(f->discards.n_extents, DISCARDS_MAX - 2);
        f->discards.n_extents = 0;
        pthread_mutex_unlock(&f->discards.lock);
        discard_submit(&f->discards, make(f, DISCARDS_MAX + 1, 0));
        discards_stop(&f->discards);
        assert_false(is_by_caller());
        for (unsigned i = 0; i < f->n; i++)
                assert_true(is_empty(f, i));
}

/* Faster than the thread goes. */
SCENE(test_many)
{
        assert_int_equal(discards_start(&f->discards), 0);
        for (unsigned i = 0; i < MANY; i++)
                discard_submit(&f->discards, make(f, 1, i % 2));
        discards_stop(&f->discards);
        for (unsigned i = 0; i < MANY; i++)
                assert_true(is_empty(f, i));
}

/* A client has made its file immutable: it goes all the same, and what is in it stays with it. */
SCENE(test_immutable)
{
        struct extent_handle handle;
        struct discard *what;
        int flags = FS_IMMUTABLE_FL;

        what = make(f, 1, 1);
        assert_int_equal(f->device->ops->extent_export(what->extents[0], &handle), 0);
        if (ioctl(handle.fd, FS_IOC_SETFLAGS, &flags) < 0)
                print_message("no file can be immutable here: %s\n", strerror(errno));
        else
                flags = 0;
        discard_submit(&f->discards, what);
        assert_true(flags == 0 ? is_full(f, 0) : is_empty(f, 0));
        (void)ioctl(handle.fd, FS_IOC_SETFLAGS, &flags);
        fd_close(handle.fd);
}
