/* The CUDA backend over the driver double: devices, transports, extents, VMM memory. */
#include <fcntl.h>

#include "tests/unit/cuda-process.h"
#include "tests/unit/test-support.h"

static char why[DEVICE_WHY_BYTES];

/* ---- finding devices ------------------------------------------------------------------------ */

static void open_by_name(void)
{
        static const char *const names[] = {
                NULL, "", UUID0, "gpu-FA4ECADA-0000-0000-0000-000000000000"};
        struct device *d = NULL;

        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
                OK(device_open(names[i], NULL, &d, why));
                CHECK(strcmp(d->props.name, UUID0) == 0 && strcmp(why, "") == 0);
                CHECK(!cuda_device(d)->context);
                device_close(d);
        }
        OK(device_open(UUID1, NULL, &d, why));
        CHECK(strcmp(d->props.name, UUID1) == 0);
        device_close(d);
        OK(device_open("host", NULL, &d, why));
        CHECK(strcmp(d->props.name, "host") == 0);
        device_close(d);
}

static void open_unknown(void)
{
        struct device *d = NULL;

        GIVES(device_open("GPU-fa4ecada-0000-0000-0000-00000000000f", NULL, &d, why), -ENODEV);
        CHECK(strstr(why, "00000000000f") && strstr(why, UUID0) && strstr(why, UUID1));
        CHECK(!strstr(why, "VISIBLE"));
        GIVES(device_open("nonsense", NULL, &d, why), -ENODEV);
        CHECK(!d);
}

static void open_hidden(void)
{
        struct device *d = NULL;

        GIVES(device_open(UUID0, NULL, &d, why), -ENODEV);
        CHECK(strstr(why, "CUDA_VISIBLE_DEVICES is '1'") && strstr(why, UUID1));
        OK(device_open("", NULL, &d, why));
        CHECK(strcmp(d->props.name, UUID1) == 0);
        device_close(d);
}

static void open_mig(void)
{
        static const char name[] = "MIG-fa4ecada-0000-4000-0000-000000000000";
        struct device *d = NULL;

        OK(device_open(name, NULL, &d, why));
        CHECK(strcmp(d->props.name, name) == 0);
        device_close(d);
        /* A request for the whole GPU isn't given a part of it. */
        GIVES(device_open(UUID0, NULL, &d, why), -ENODEV);
        CHECK(strstr(why, name));
}

static void open_without_driver(void)
{
        struct device_props props;
        struct device *d = NULL;

        OK(device_open("", NULL, &d, why));
        CHECK(strcmp(d->props.name, "host") == 0 && strcmp(why, "") == 0);
        device_close(d);
        GIVES(cuda_backend.enumerate(&props, 1, why), 0);
        CHECK(strcmp(why, "") != 0);
        why[0] = '\0';
        GIVES(cuda_backend.open("", NULL, &d, why), -ENODEV);
        CHECK(strcmp(why, "") == 0);
        GIVES(device_open(UUID0, NULL, &d, why), -ENODEV);
        CHECK(strcmp(why, "") != 0);
}

/* A driver that doesn't work is no reason to serve from the host's memory instead. */
static void open_with_mismatch(void)
{
        struct device_props props;
        struct device *d = NULL;

        GIVES(device_open("", NULL, &d, why), -ELIBBAD);
        CHECK(strcmp(why, "") != 0);
        GIVES(cuda_backend.enumerate(&props, 1, why), -ELIBBAD);
        OK(device_open("host", NULL, &d, why));
        device_close(d);
}

static void enumerate(void)
{
        struct device_props props[3] = {0};

        GIVES(cuda_backend.enumerate(props, 1, why), 2);
        CHECK(strcmp(props[0].name, UUID0) == 0 && strcmp(props[1].name, "") == 0);
        GIVES(cuda_backend.enumerate(props, 3, why), 2);
        CHECK(strcmp(props[1].name, UUID1) == 0);
        CHECK(strcmp(props[0].backend, "cuda") == 0 && props[0].transport == TRANSPORT_VMM);
        CHECK(props[0].granularity_bytes == STEP && props[0].total_bytes == 64 * STEP);
        CHECK(props[0].survives_restart && props[0].may_block);
        CHECK(props[0].writes_linger && !props[0].is_cpu_memory && props[0].is_contiguous);
}

/* The second GPU answers, so it opens by name. For another name the dead GPU's error is returned.
 */
static void open_beside_a_dead_one(void)
{
        struct device *d = NULL;

        control("fail=cuDeviceTotalMem:214");
        OK(device_open(UUID1, NULL, &d, why));
        device_close(d);
        control("fail=cuDeviceTotalMem:214\n");
        GIVES(device_open(UUID0, NULL, &d, why), -ENXIO);
        CHECK(strstr(why, "cuDeviceTotalMem"));
}

TEST(test_open)
{
        run(open_by_name, "FAKECUDA_DEVICES=2");
        run(open_by_name, "FAKECUDA_DEVICES=2 FAKECUDA_VERSION=11030");
        run(open_unknown, "FAKECUDA_DEVICES=2");
        run(open_hidden, "FAKECUDA_DEVICES=2 CUDA_VISIBLE_DEVICES=1");
        run(open_mig, "FAKECUDA_MIG=1");
        run(open_without_driver, "FAKECUDA_DIR=");
        run(open_with_mismatch, "FAKECUDA_FAIL=cuInit:803:1:0");
        run(enumerate, "FAKECUDA_DEVICES=2 FAKECUDA_MEMORY=134217728");
        run_broken(open_beside_a_dead_one, "FAKECUDA_DEVICES=2");
}

/* An older driver's answer for an attribute that it doesn't know. */
static void numa_node_unknown(void)
{
        struct device *d = NULL;

        GIVES(device_open(UUID0, NULL, &d, why), 0);
        CHECK(d->props.numa_node == -1 && strcmp(why, "") == 0);
        device_close(d);
}

static void numa_node_known(void)
{
        struct device *d = NULL;

        GIVES(device_open(UUID0, NULL, &d, why), 0);
        CHECK(d->props.numa_node == 0);
        device_close(d);
}

TEST(test_numa_node)
{
        run(numa_node_known, "FAKECUDA_DEVICES=1");
        run(numa_node_unknown, "FAKECUDA_DEVICES=1 FAKECUDA_FAIL=cuDeviceGetAttribute:1:1:1");
}

static int open_as(enum device_side side, enum device_transport transport)
{
        struct device_options options = {.side = side, .transport = transport};
        struct device *d = NULL;
        int r = device_open(UUID0, &options, &d, why);

        if (r == 0) {
                r = d->props.transport;
                CHECK(d->props.survives_restart == (r == TRANSPORT_VMM));
                CHECK(d->props.is_contiguous == (r == TRANSPORT_VMM));
                device_close(d);
        }
        return r;
}

static void transports(void)
{
        GIVES(open_as(DEVICE_OWNER, 0), TRANSPORT_VMM);
        GIVES(open_as(DEVICE_USER, TRANSPORT_VMM), TRANSPORT_VMM);
        GIVES(open_as(DEVICE_USER, TRANSPORT_CUDAIPC), TRANSPORT_CUDAIPC);
        CHECK(strcmp(why, "") == 0);
        GIVES(open_as(DEVICE_OWNER, TRANSPORT_MEMFD), -EOPNOTSUPP);
        CHECK(strcmp(why, "") != 0);
}

static void transports_without_vmm(void)
{
        struct device_props props;

        GIVES(open_as(DEVICE_OWNER, 0), TRANSPORT_CUDAIPC);
        CHECK(strstr(why, "a restart of kvleased loses what is cached there"));
        GIVES(open_as(DEVICE_OWNER, TRANSPORT_VMM), TRANSPORT_CUDAIPC);
        CHECK(strstr(why, "a restart of kvleased loses what is cached there"));
        GIVES(open_as(DEVICE_USER, TRANSPORT_VMM), -EOPNOTSUPP);
        CHECK(strstr(why, "cudaipc"));
        GIVES(open_as(DEVICE_OWNER, TRANSPORT_CUDAIPC), TRANSPORT_CUDAIPC);
        CHECK(strcmp(why, "") == 0);
        GIVES(cuda_backend.enumerate(&props, 1, why), 1);
        CHECK(props.transport == TRANSPORT_CUDAIPC && props.granularity_bytes == STEP);
}

static void transports_without_any(void)
{
        struct device_props props;

        GIVES(open_as(DEVICE_OWNER, 0), -EOPNOTSUPP);
        CHECK(strcmp(why, "") != 0);
        why[0] = '\0';
        GIVES(cuda_backend.enumerate(&props, 1, why), -EOPNOTSUPP);
        CHECK(strcmp(why, "") != 0);
}

TEST(test_transports)
{
        run(transports, NULL);
        run(transports_without_vmm, "FAKECUDA_NO=fd");
        run(transports_without_vmm, "FAKECUDA_NO=vmm");
        run(transports_without_any, "FAKECUDA_NO=vmm,ipc");
}

/* ---- extents -------------------------------------------------------------------------------- */

static void extents(enum device_transport transport)
{
        struct device *d = open_gpu(DEVICE_OWNER, transport);
        const struct device_ops *ops = d->ops;
        struct extent *a = create(d, 2 * STEP), *b = create(d, STEP);
        uint8_t seen[5];

        CHECK(holds(a, 0, 2 * STEP, 0) && holds(b, 0, STEP, 0));
        fill(a, 7);
        CHECK(holds(a, 0, 2 * STEP, 7));
        OK(ops->extent_write(b, STEP - 5, "kvlea", 5));
        OK(ops->extent_read(b, STEP - 5, seen, 5));
        CHECK(memcmp(seen, "kvlea", 5) == 0);
        OK(ops->extent_zero(a, 3, STEP));
        CHECK(holds(a, 0, 3, 7) && holds(a, 3, STEP, 0) && holds(a, STEP + 3, STEP - 3, 7));
        OK(ops->extent_copy(b, 1, a, STEP + 3, 4096));
        CHECK(holds(b, 0, 1, 0) && holds(b, 1, 4096, 7) && holds(b, 4097, 4096, 0));
        OK(ops->extent_copy(a, 0, a, STEP + 3, 3));
        OK(ops->extent_zero(a, 0, 0));
        OK(ops->extent_copy(a, 0, b, 0, 0));
        OK(ops->extent_write(a, 2 * STEP, "", 0));
        OK(ops->extent_read(a, 2 * STEP, seen, 0));
        ops->extent_destroy(a, true);
        ops->extent_destroy(b, true);
        device_close(d);
}

static void extents_vmm(void)
{
        extents(TRANSPORT_VMM);
}

static void extents_ipc(void)
{
        extents(TRANSPORT_CUDAIPC);
}

static void too_large(enum device_transport transport)
{
        struct device *d = open_gpu(DEVICE_OWNER, transport);
        struct extent *a = create(d, 3 * STEP), *b = NULL;

        GIVES(d->ops->extent_create(d, 2 * STEP, &b), -ENOMEM);
        CHECK(!b && strstr(d->why, "OUT_OF_MEMORY"));
        CHECK(strstr(d->why, "2 of 8 MiB of " UUID0 " are free"));
        b = create(d, STEP);
        d->ops->extent_destroy(a, true);
        d->ops->extent_destroy(b, true);
        device_close(d);
}

static void too_large_vmm(void)
{
        too_large(TRANSPORT_VMM);
}

static void too_large_ipc(void)
{
        too_large(TRANSPORT_CUDAIPC);
}

static void not_zeroed(enum device_transport transport)
{
        struct device *d = open_gpu(DEVICE_OWNER, transport);
        struct extent *e = NULL;

        GIVES(d->ops->extent_create(d, STEP, &e), -EIO);
        CHECK(!e && strcmp(d->why, "memory read back as nonzero after it was zeroed") == 0);
        device_close(d);
}

static void not_zeroed_vmm(void)
{
        not_zeroed(TRANSPORT_VMM);
}

static void not_zeroed_ipc(void)
{
        not_zeroed(TRANSPORT_CUDAIPC);
}

TEST(test_extents)
{
        run(extents_vmm, NULL);
        run(extents_vmm, "FAKECUDA_NO=rdma");
        run(extents_ipc, NULL);
        run(too_large_vmm, "FAKECUDA_MEMORY=8388608");
        run(too_large_ipc, "FAKECUDA_MEMORY=8388608");
        run(not_zeroed_vmm, "FAKECUDA_BAD=memset");
        run(not_zeroed_ipc, "FAKECUDA_BAD=memset");
}

/* ---- VMM: handing over ---------------------------------------------------------------------- */

static void kept_handle(void)
{
        struct device *d = open_gpu(DEVICE_OWNER, TRANSPORT_VMM);
        struct device_arena *a = reserve(d, 4 * STEP);
        struct extent *e = create(d, 2 * STEP), *f = create(d, 2 * STEP);
        struct extent_handle of_e = export(e), of_f = export(f);

        CHECK(fcntl(of_e.fd, F_GETFD) & FD_CLOEXEC);
        fill(e, 7);
        fill(f, 8);
        d->ops->extent_destroy(e, true);
        d->ops->extent_destroy(f, false);
        e = import(a, 0, of_e);
        f = import(a, 2 * STEP, of_f);
        CHECK(holds(e, 0, 2 * STEP, 0) && holds(f, 0, 2 * STEP, 8));
        unimport(a, 0, e);
        unimport(a, 2 * STEP, f);
        d->ops->arena_release(a);
        device_close(d);
}

static void arena(void)
{
        struct device *d = open_gpu(DEVICE_OWNER, TRANSPORT_VMM);
        const struct device_ops *ops = d->ops;
        struct extent *mine = create(d, 2 * STEP), *theirs;
        struct device_arena *a = reserve(d, 4 * STEP), *b = NULL;
        uint8_t *base = ops->arena_base(a);
        struct extent_handle handle;

        CHECK(base && (uintptr_t)base % STEP == 0);
        GIVES(ops->arena_reserve(d, STEP, (uintptr_t)base, &b), -EBUSY);
        GIVES(ops->arena_reserve(d, STEP, (uintptr_t)base + 4096, &b), -EINVAL);
        GIVES(ops->arena_reserve(d, UINT64_MAX, 0, &b), -ENOMEM);
        control("fail=cuMemAddressReserve:2");
        GIVES(ops->arena_reserve(d, STEP, 1024 * STEP, &b), -EBUSY);
        CHECK(!b);
        theirs = import(a, 2 * STEP, export(mine));
        OK(ops->arena_map(a, 0, mine, DEVICE_READ_WRITE));
        CHECK(ops->extent_address(mine) == base && ops->extent_address(theirs) == base + 2 * STEP);
        /* An owner can take over an extent, which is then like its own. */
        OK(ops->extent_export(theirs, &handle));
        close(handle.fd);
        fill(mine, 3);
        CHECK(holds(theirs, 0, 2 * STEP, 3));
        OK(ops->arena_unmap(a, 0, mine));
        CHECK(!ops->extent_address(mine) && holds(mine, 0, STEP, 3));
        /* An extent that was made here may be mapped at several places. */
        OK(ops->arena_unmap(a, 2 * STEP, theirs));
        OK(ops->arena_map(a, 0, mine, DEVICE_READ_WRITE));
        OK(ops->arena_map(a, 2 * STEP, mine, DEVICE_READ_WRITE));
        CHECK(ops->extent_address(mine) == base + 2 * STEP);
        OK(ops->arena_unmap(a, 2 * STEP, mine));
        OK(ops->arena_unmap(a, 0, mine));
        CHECK(!ops->extent_address(mine));
        OK(ops->arena_map(a, 2 * STEP, theirs, DEVICE_READ_WRITE));
        OK(ops->arena_unmap(a, 2 * STEP, theirs));
        CHECK(holds(theirs, 0, 2 * STEP, 3));
        ops->extent_destroy(theirs, false);
        theirs = import(a, 0, export(mine));
        unimport(a, 0, theirs);
        ops->arena_release(a);
        OK(ops->arena_reserve(d, STEP + 1, (uintptr_t)base, &b));
        CHECK(ops->arena_base(b) == base && b->bytes == STEP + 1);
        ops->arena_release(b);
        ops->extent_destroy(mine, true);
        device_close(d);
}

static void bad_handles(void)
{
        struct device *d = open_gpu(DEVICE_OWNER, TRANSPORT_VMM);
        struct device *u = open_gpu(DEVICE_USER, TRANSPORT_VMM);
        struct device_arena *a = reserve(u, 4 * STEP);
        struct extent *mine = create(d, 2 * STEP), *e = NULL;
        struct extent_handle handle = {.fd = open("/dev/null", O_RDONLY | O_CLOEXEC)};

        GIVES(u->ops->extent_import(u, &handle, STEP, &e), -EINVAL);
        CHECK(handle.fd == -1 && !e);
        GIVES(u->ops->extent_import(u, &handle, STEP, &e), -EINVAL);
        handle = export(mine);
        GIVES(u->ops->extent_import(u, &handle, 4096, &e), -EINVAL);
        CHECK(handle.fd == -1);
        /* A size that isn't the memory's: the driver's word counts, as nothing tells it before. */
        handle = export(mine);
        OK(u->ops->extent_import(u, &handle, 2 * STEP, &e));
        control("fail=cuMemMap:1");
        GIVES(u->ops->arena_map(a, 0, e, DEVICE_READ_WRITE), -EINVAL);
        CHECK(strstr(u->why, "cuMemMap") && !u->ops->extent_address(e));
        OK(u->ops->arena_map(a, 0, e, DEVICE_READ_WRITE));
        unimport(a, 0, e);
        u->ops->arena_release(a);
        device_close(u);
        /* An owner's import maps the extent at once. */
        handle = export(mine);
        e = NULL;
        control("fail=cuMemMap:1");
        GIVES(d->ops->extent_import(d, &handle, 2 * STEP, &e), -EINVAL);
        CHECK(handle.fd == -1 && !e && strstr(d->why, "cuMemMap"));
        d->ops->extent_destroy(mine, true);
        device_close(d);
}

/* A call that breaks a rule of device.h ends no process, and changes nothing; either transport. */
static void broken_rules(void)
{
        for (enum device_transport t = TRANSPORT_VMM; t <= TRANSPORT_CUDAIPC; t++) {
                struct device *d = open_gpu(DEVICE_OWNER, t);
                const struct device_ops *ops = d->ops;
                struct extent *e = create(d, 2 * STEP), *none = NULL;
                struct device_arena *a = reserve(d, 4 * STEP);
                uint8_t byte;
                struct device_copy copy = {e, 2 * STEP, &byte, 1};
                struct device_batch *batch;

                GIVES(ops->extent_create(d, 0, &none), -EINVAL);
                GIVES(ops->extent_create(d, STEP + 1, &none), -EINVAL);
                GIVES(ops->extent_zero(e, 2 * STEP, 1), -EINVAL);
                GIVES(ops->extent_read(e, UINT64_MAX, &byte, 2), -EINVAL);
                GIVES(ops->extent_write(e, 2 * STEP, &byte, 1), -EINVAL);
                GIVES(ops->extent_copy(e, 0, e, STEP, STEP + 1), -EINVAL);
                GIVES(ops->batch_start(d, DEVICE_TO_HOST, &copy, 1, &batch), -EINVAL);
                GIVES(ops->arena_unmap(a, 0, e), -EINVAL);
                GIVES(ops->arena_map(a, 3 * STEP, e, DEVICE_READ_WRITE), -EINVAL);
                GIVES(ops->arena_map(a, UINT64_MAX - STEP + 1, e, DEVICE_READ_WRITE), -EINVAL);
                CHECK(!none && !ops->extent_address(e));
                fill(e, 3);
                CHECK(holds(e, 0, 2 * STEP, 3));
                ops->arena_release(a);
                ops->extent_destroy(e, true);
                device_close(d);
        }
}

static struct extent *import_read_only(struct device_arena *a, struct extent *mine)
{
        struct extent_handle handle = export(mine);
        struct extent *e = NULL;

        OK(a->device->ops->extent_import(a->device, &handle, mine->bytes, &e));
        OK(a->device->ops->arena_map(a, 0, e, DEVICE_READ_ONLY));
        return e;
}

static void read_only(void)
{
        struct device *d = open_gpu(DEVICE_OWNER, TRANSPORT_VMM);
        struct device *u = open_gpu(DEVICE_USER, TRANSPORT_VMM);
        struct device_arena *a = reserve(u, 2 * STEP);
        struct extent *mine = create(d, 2 * STEP), *e = import_read_only(a, mine);

        fill(mine, 9);
        CHECK(holds(e, 0, 2 * STEP, 9));
        unimport(a, 0, e);
        /* A driver that can't. */
        control("fail=cuMemSetAccess:801");
        e = import_read_only(a, mine);
        fill(e, 4);
        CHECK(holds(mine, 0, 2 * STEP, 4));
        unimport(a, 0, e);
        u->ops->arena_release(a);
        device_close(u);
        d->ops->extent_destroy(mine, true);
        device_close(d);
}

static void write_read_only(void)
{
        struct device *d = open_gpu(DEVICE_OWNER, TRANSPORT_VMM);
        struct device *u = open_gpu(DEVICE_USER, TRANSPORT_VMM);
        struct device_arena *a = reserve(u, 2 * STEP);

        /* Nothing about it is news. */
        CHECK(freopen("/dev/null", "w", stderr));
        fill(import_read_only(a, create(d, 2 * STEP)), 1);
}

static void importer(int fd)
{
        struct device *d = open_gpu(DEVICE_USER, TRANSPORT_VMM);
        struct device_arena *a = reserve(d, 4 * STEP);
        struct extent *e = import(a, 2 * STEP, receive_handle(fd));

        CHECK(!cuda_device(d)->context);
        CHECK(d->ops->extent_address(e) == (uint8_t *)d->ops->arena_base(a) + 2 * STEP);
        CHECK(holds(e, 0, 2 * STEP, 5));
        fill(e, 6);
        say(fd);
        hear(fd);
        unimport(a, 2 * STEP, e);
        d->ops->arena_release(a);
        device_close(d);
}

static void two_processes(void)
{
        struct peer p = peer_start(importer);
        struct device *d = open_gpu(DEVICE_OWNER, TRANSPORT_VMM);
        struct extent *e = create(d, 2 * STEP);
        struct extent_handle handle = export(e);

        fill(e, 5);
        send_handle(p.fd, &handle);
        hear(p.fd);
        CHECK(holds(e, 0, 2 * STEP, 6));
        say(p.fd);
        peer_join(&p);
        d->ops->extent_destroy(e, true);
        device_close(d);
}

TEST(test_vmm)
{
        run(kept_handle, NULL);
        run(arena, NULL);
        run(bad_handles, NULL);
        run(broken_rules, NULL);
        run(read_only, NULL);
        run_abort(write_read_only);
        run(two_processes, NULL);
}

int main(int argc, char **argv)
{
        use_double(argv);
        return test_run_all(NULL, NULL);
}
