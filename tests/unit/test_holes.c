/* Unmapped ranges of an arena of host memory. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "gpu/device.h"
#include "tests/unit/test-support.h"
#include "tests/unit/touchable.h"

#define STEP ((uint64_t)2 << 20)

static struct device *open_host(void)
{
        char why[DEVICE_WHY_BYTES];
        struct device *d = NULL;

        assert_int_equal(device_open("host", NULL, &d, why), 0);
        return d;
}

static struct extent *create(struct device *d)
{
        struct extent *e = NULL;

        assert_int_equal(d->ops->extent_create(d, STEP, &e), 0);
        return e;
}

static void map(struct device_arena *a, uint64_t offset, struct extent *e)
{
        assert_int_equal(a->device->ops->arena_map(a, offset, e, DEVICE_READ_WRITE), 0);
}

static void unmap(struct device_arena *a, uint64_t offset, struct extent *e)
{
        assert_int_equal(a->device->ops->arena_unmap(a, offset, e), 0);
}

static bool is_zero(const uint8_t *at, size_t bytes)
{
        for (size_t i = 0; i < bytes; i += 4096)
                if (at[i] != 0)
                        return false;
        return true;
}

static struct device_arena *reserve_backed(
        struct device *d, uint64_t bytes, const struct arena_backing *backing, uint8_t **ret_base)
{
        struct device_arena *a = NULL;

        assert_int_equal(d->ops->arena_reserve(d, bytes, 0, &a), 0);
        assert_int_equal(d->ops->arena_back(a, backing), 0);
        *ret_base = d->ops->arena_base(a);
        return a;
}

/*
 * Planes of a few pages of the system, as layers have on small pools or with blocks of odd sizes:
 * each begins with its null page, what lies behind the last one has none, and extents come and go.
 */
TEST(test_null_pages_of_small_planes)
{
        struct device *d = open_host();
        const uint64_t unit = d->props.unit_bytes, plane_bytes = 3 * unit;
        const struct arena_backing backing = {
                .reads_zeros = true, .null_bytes = unit + 64, .null_stride_bytes = plane_bytes};
        uint8_t *base;
        struct device_arena *a = reserve_backed(d, 3 * plane_bytes, &backing, &base);
        struct extent *e = NULL;

        assert_int_equal(d->ops->extent_create(d, plane_bytes, &e), 0);
        for (unsigned i = 0; i < 3; i++) {
                uint8_t *plane = base + i * plane_bytes;

                assert_true(is_writable(plane) && is_writable(plane + 2 * unit - 1));
                assert_true(is_zero(plane, plane_bytes) && !is_writable(plane + 2 * unit));
                plane[0] = (uint8_t)(i + 1);
        }
        assert_false(is_readable(base + 3 * plane_bytes));
        map(a, plane_bytes, e);
        assert_true(base[0] == 1 && base[plane_bytes] == 0 && base[2 * plane_bytes] == 3);
        base[2 * plane_bytes - 1] = 7;
        unmap(a, plane_bytes, e);
        assert_true(is_zero(base + plane_bytes, plane_bytes) && is_writable(base + plane_bytes));
        assert_true(base[0] == 1 && base[2 * plane_bytes] == 3);
        d->ops->arena_release(a);
        d->ops->extent_destroy(e, true);
        device_close(d);
}

struct reader {
        const volatile uint8_t *base;
        atomic_bool stop;
};

/* A set that can't be mapped leaves what was there. */
TEST(test_mapping_fails)
{
        const struct arena_backing backing = {.reads_zeros = true};
        struct device *d = open_host();
        struct extent *e = create(d), *read_only = NULL;
        struct extent_handle handle, reader = {.fd = -1};
        char path[64];
        uint8_t *base;
        struct device_arena *a = reserve_backed(d, STEP, &backing, &base);

        assert_int_equal(d->ops->extent_export(e, &handle), 0);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", handle.fd);
        reader.fd = open(path, O_RDONLY | O_CLOEXEC);
        close(handle.fd);
        assert_int_equal(d->ops->extent_import(d, &reader, STEP, &read_only), 0);
        assert_int_equal(d->ops->arena_map(a, 0, read_only, DEVICE_READ_WRITE), -EACCES);
        assert_true(is_readable(base) && is_zero(base, STEP));
        d->ops->extent_destroy(read_only, false);
        d->ops->arena_release(a);
        d->ops->extent_destroy(e, true);
        device_close(d);
}
