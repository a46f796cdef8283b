/* cudaIpc memory over the driver double: an owner and an importer, in two processes. */
#include "tests/unit/alloc-fail.h"
#include "tests/unit/cuda-process.h"
#include "tests/unit/test-support.h"

static void own(int fd)
{
        struct device *d = open_gpu(DEVICE_OWNER, TRANSPORT_CUDAIPC);
        struct extent *e = create(d, 2 * STEP), *f = create(d, 2 * STEP);
        struct extent_handle handle = export(e), again = export(e), other = export(f);

        CHECK(memcmp(handle.bytes, again.bytes, sizeof(handle.bytes)) == 0);
        CHECK(memcmp(handle.bytes, other.bytes, sizeof(handle.bytes)) != 0);
        fill(e, 5);
        send_handle(fd, &handle);
        send_handle(fd, &other);
        hear(fd);
        CHECK(holds(e, 0, 2 * STEP, 6) || holds(e, 0, 2 * STEP, 5));
        d->ops->extent_destroy(e, true);
        d->ops->extent_destroy(f, true);
        device_close(d);
}

static void import_both(void)
{
        struct peer p = peer_start(own);
        struct device *d = open_gpu(DEVICE_USER, TRANSPORT_CUDAIPC);
        const struct device_ops *ops = d->ops;
        struct device_arena *a = reserve(d, 4 * STEP), *b = NULL;
        struct extent_handle of_e = receive_handle(p.fd), of_f = receive_handle(p.fd), none;
        struct extent *e, *f;

        CHECK(!ops->arena_base(a) && !cuda_device(d)->context);
        GIVES(ops->arena_reserve(d, STEP, 2 * STEP, &b), -EOPNOTSUPP);
        CHECK(!b && strcmp(d->why, "") != 0);
        alloc_fail_at(1);
        GIVES(ops->extent_import(d, &of_e, 2 * STEP, &e), -ENOMEM);
        alloc_fail_end();
        e = import(a, 0, of_e);
        f = import(a, 2 * STEP, of_f);
        CHECK(ops->extent_address(e) && ops->extent_address(f));
        CHECK(holds(e, 0, 2 * STEP, 5) && holds(f, 0, 2 * STEP, 0));
        GIVES(ops->extent_export(e, &none), -EINVAL);
        fill(e, 6);
        OK(ops->arena_unmap(a, 0, e));
        CHECK(!ops->extent_address(e));
        GIVES(ops->extent_zero(e, 0, 1), -EINVAL);
        ops->extent_destroy(e, false);
        unimport(a, 2 * STEP, f);
        ops->arena_release(a);
        device_close(d);
        peer_join(&p);
}

/* Two connections of one process import the same extent: the driver counts. */
static void import_twice(void)
{
        struct peer p = peer_start(own);
        struct device *first = open_gpu(DEVICE_USER, TRANSPORT_CUDAIPC);
        struct device *second = open_gpu(DEVICE_USER, TRANSPORT_CUDAIPC);
        struct device_arena *a = reserve(first, 2 * STEP), *b = reserve(second, 2 * STEP);
        struct extent_handle handle = receive_handle(p.fd);
        struct extent *e = import(a, 0, handle), *f = import(b, 0, handle);

        (void)receive_handle(p.fd);
        unimport(a, 0, e);
        CHECK(holds(f, 0, 2 * STEP, 5));
        unimport(b, 0, f);
        first->ops->arena_release(a);
        second->ops->arena_release(b);
        device_close(first);
        device_close(second);
        peer_join(&p);
}

static void own_handle(void)
{
        struct device *d = open_gpu(DEVICE_OWNER, TRANSPORT_CUDAIPC);
        struct device *user = open_gpu(DEVICE_USER, TRANSPORT_CUDAIPC);
        struct device_arena *a = reserve(d, STEP);
        struct extent *mine = create(d, STEP), *e = NULL;
        struct extent_handle handle = export(mine), junk = {.fd = -1, .bytes = {1, 2, 3}};

        GIVES(user->ops->extent_import(user, &handle, STEP, &e), -EINVAL);
        CHECK(!e && strstr(user->why, "the process that it is from"));
        GIVES(d->ops->extent_import(d, &junk, 4096, &e), -EINVAL);
        OK(d->ops->extent_import(d, &junk, STEP, &e));
        GIVES(d->ops->arena_map(a, 0, e, DEVICE_READ_WRITE), -EINVAL);
        CHECK(strstr(d->why, "cuIpcOpenMemHandle"));
        d->ops->extent_destroy(e, false);
        /* An owner's own lies where it is. */
        OK(d->ops->arena_map(a, 0, mine, DEVICE_READ_WRITE));
        CHECK(d->ops->extent_address(mine));
        OK(d->ops->arena_map(a, 0, mine, DEVICE_READ_WRITE));
        OK(d->ops->arena_unmap(a, 0, mine));
        OK(d->ops->arena_unmap(a, 0, mine));
        CHECK(!d->ops->extent_address(mine) && holds(mine, 0, STEP, 0));
        d->ops->arena_release(a);
        d->ops->extent_destroy(mine, true);
        /* No longer known here. */
        OK(user->ops->extent_import(user, &handle, STEP, &e));
        user->ops->extent_destroy(e, false);
        device_close(user);
        device_close(d);
}

static void owner_is_gone(int fd)
{
        struct device *d = open_gpu(DEVICE_OWNER, TRANSPORT_CUDAIPC);
        struct extent *e = create(d, 2 * STEP);
        struct extent_handle handle = export(e);

        send_handle(fd, &handle);
        d->ops->extent_destroy(e, true);
        device_close(d);
}

static void import_stale(void)
{
        struct peer p = peer_start(owner_is_gone);
        struct extent_handle handle = receive_handle(p.fd);
        struct device *d = open_gpu(DEVICE_USER, TRANSPORT_CUDAIPC);
        struct device_arena *a = reserve(d, 2 * STEP);
        struct extent *e = NULL;

        peer_join(&p);
        OK(d->ops->extent_import(d, &handle, 2 * STEP, &e));
        CHECK(d->ops->arena_map(a, 0, e, DEVICE_READ_WRITE) < 0);
        d->ops->extent_destroy(e, false);
        d->ops->arena_release(a);
        device_close(d);
}

TEST(test_import)
{
        run(import_both, NULL);
        run(import_both, "FAKECUDA_NO=vmm");
        run(import_stale, NULL);
        run(import_twice, NULL);
}

TEST(test_own_handle)
{
        run(own_handle, NULL);
}

int main(int argc, char **argv)
{
        use_double(argv);
        return test_run_all(NULL, NULL);
}
