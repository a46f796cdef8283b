/* cuMemAlloc and legacy IPC. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/macros.h"
#include "tests/fakecuda/fake.h"

/* Layout of a handle's 64 bytes. */
struct ipc_handle {
        uint64_t magic, bytes, start;
        int32_t pid, device;
        uint32_t serial, reserved[7];
};
_Static_assert(sizeof(struct ipc_handle) == sizeof(cu_ipc_mem_handle), "64 bytes");

#define IPC_MAGIC UINT64_C(0xfa4ecada1bc00001)

static bool is_supported(void)
{
        return !fake_lacks("ipc") && !fake_lacks("ipc-calls");
}

/* Locked. Memory of its own range; takes the fd. NULL: no addresses. */
static struct range *add_range(
        enum range_kind kind, int fd, const char *name, const struct store_name *parsed)
{
        cu_context context = fake_current();
        size_t bytes = round_up_u64(parsed->bytes, FAKE_GRANULARITY);
        struct range *range = range_new(kind, bytes, FAKE_GRANULARITY, 0);
        struct mapping *m;

        if (!range)
                return NULL;
        m = mapping_new(range, range->at, parsed->bytes, phys_new(fd, name, parsed));
        m->access[context->device] = CU_ACCESS_READ_WRITE;
        range->context = context;
        context->allocations++;
        return range;
}

/* Locked. Unlike a mapping's, this memory's fd stays until here: its lock marks importers. */
static void drop_range(struct range *range)
{
        struct mapping *m = range->slots[0];
        int fd = m->phys->fd;

        /* Explicitly, not only by closing: a forked child may have a copy of it. */
        (void)flock(fd, LOCK_UN);
        close(fd);
        m->phys->fd = -1;
        mapping_free(m);
        range->context->allocations--;
        range_free(range);
}

cu_result cuMemAlloc_v2(cu_deviceptr *at, size_t bytes)
{
        cu_result r = fake_enter("cuMemAlloc", ENTER_BOUND);
        struct store_name parsed;
        char name[FAKE_NAME_BYTES];
        struct range *range;
        int fd, e;

        if (r != CU_OK)
                return r;
        if (!bytes)
                return CU_INVALID_VALUE;
        e = store_create(STORE_IPC, fake_current()->device, bytes, &fd, name);
        if (e < 0)
                return e == -ENOMEM ? CU_OUT_OF_MEMORY : CU_OPERATING_SYSTEM;
        store_parse(name, &parsed);
        fake_lock();
        range = add_range(RANGE_ALLOCATED, fd, name, &parsed);
        if (range)
                *at = range->at;
        fake_unlock();
        if (!range) {
                close(fd);
                store_forget(name);
                return CU_OUT_OF_MEMORY;
        }
        return CU_OK;
}

/* Locked. */
static struct range *find_base(cu_deviceptr at, enum range_kind kind, const char *what)
{
        struct range *range = range_find(at);

        if (!range || range->kind != kind || range->at != at)
                fake_die("%#llx is not %s", at, what);
        if (range->context != fake_current())
                fake_die("%#llx is of another context", at);
        return range;
}

cu_result cuMemFree_v2(cu_deviceptr at)
{
        cu_result r = fake_enter("cuMemFree", ENTER_BOUND | ENTER_FREES);
        struct range *range;
        struct phys *p;
        int e;

        if (r != CU_OK)
                return r;
        fake_lock();
        range = find_base(at, RANGE_ALLOCATED, "the start of an allocation (freed already?)");
        if (range->slots[0]->pins)
                fake_die("%#llx is used by work that isn't done", at);
        p = range->slots[0]->phys;
        e = store_free(p->name, p->fd);
        if (e == -EBUSY)
                fake_die("another process has the memory open");
        drop_range(range);
        fake_unlock();
        return e < 0 ? CU_OPERATING_SYSTEM : CU_OK;
}

cu_result cuIpcGetMemHandle(cu_ipc_mem_handle *handle, cu_deviceptr at)
{
        struct ipc_handle h = {.magic = IPC_MAGIC};
        cu_result r = fake_enter("cuIpcGetMemHandle", ENTER_BOUND);
        struct store_name parsed;
        struct range *range;

        if (r != CU_OK)
                return r;
        if (!is_supported())
                return CU_NOT_SUPPORTED;
        fake_lock();
        range = range_find(at);
        if (range && range->kind == RANGE_RESERVED) {
                fake_unlock();
                return CU_INVALID_VALUE;
        }
        range = find_base(at, RANGE_ALLOCATED, "the start of an allocation");
        store_parse(range->slots[0]->phys->name, &parsed);
        fake_unlock();
        if (parsed.bytes % FAKE_GRANULARITY)
                fake_die("%zu bytes: only multiples of 2 MiB are safe to share", parsed.bytes);
        h.bytes = parsed.bytes;
        h.start = parsed.start;
        h.pid = parsed.pid;
        h.device = parsed.device;
        h.serial = parsed.serial;
        memcpy(handle, &h, sizeof(h));
        return CU_OK;
}

/* Locked. A range that this process has open already is only counted. */
static struct range *find_open(const char *name)
{
        struct range *range;

        for (range = range_next(NULL); range; range = range_next(range)) {
                if (range->kind == RANGE_OPENED && strcmp(range->slots[0]->phys->name, name) == 0)
                        return range;
        }
        return NULL;
}

/* Locked. -ENOMEM: no addresses; -errno. */
static int open_range(const char *name, const struct store_name *parsed, struct range **ret_range)
{
        int fd, e = store_open(name, &fd);

        if (e < 0)
                return e;
        *ret_range = add_range(RANGE_OPENED, fd, name, parsed);
        if (*ret_range)
                return 0;
        close(fd);
        return -ENOMEM;
}

cu_result cuIpcOpenMemHandle_v2(cu_deviceptr *at, cu_ipc_mem_handle handle, unsigned flags)
{
        cu_result r = fake_enter("cuIpcOpenMemHandle", ENTER_BOUND);
        char name[FAKE_NAME_BYTES];
        struct store_name parsed;
        struct range *range;
        struct ipc_handle h;
        int e = 0;

        if (r != CU_OK)
                return r;
        if (!is_supported())
                return CU_NOT_SUPPORTED;
        if (flags != CU_IPC_LAZY_ENABLE_PEER_ACCESS)
                fake_die("flags must be LAZY_ENABLE_PEER_ACCESS");
        memcpy(&h, &handle, sizeof(h));
        if (h.magic != IPC_MAGIC)
                return CU_INVALID_VALUE;
        if (h.pid == fake.pid && h.start == fake.start)
                fake_die("the handle is of this process");
        if (h.device != fake_current()->device)
                return CU_INVALID_VALUE;
        snprintf(name, sizeof(name), "ipc.%d.%zu.%d.%llu.%u", h.device, (size_t)h.bytes, h.pid,
                (unsigned long long)h.start, h.serial);
        if (!store_parse(name, &parsed))
                return CU_INVALID_VALUE;
        fake_lock();
        range = find_open(name);
        if (!range)
                e = open_range(name, &parsed, &range);
        if (e == 0) {
                range->opens++;
                *at = range->at;
        }
        fake_unlock();
        return e == 0 ? CU_OK : e == -ENOMEM ? CU_OUT_OF_MEMORY : CU_INVALID_HANDLE;
}

cu_result cuIpcCloseMemHandle(cu_deviceptr at)
{
        cu_result r = fake_enter("cuIpcCloseMemHandle", ENTER_BOUND | ENTER_FREES);
        struct range *range;

        if (r != CU_OK)
                return r;
        fake_lock();
        range = find_base(at, RANGE_OPENED, "an opened handle's address (closed already?)");
        if (--range->opens == 0)
                drop_range(range);
        fake_unlock();
        return CU_OK;
}
