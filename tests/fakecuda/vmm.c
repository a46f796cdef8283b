/* cuMem*: physical memory by handle, address ranges, mappings. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "tests/fakecuda/fake.h"

struct handle {
        struct list_link link;
        cu_mem_handle id;
        struct phys *phys;
};

static struct list_link handles = {&handles, &handles};

unsigned vmm_handles(void)
{
        unsigned n = 0;
        struct list_link *l;

        for (l = handles.next; l != &handles; l = l->next)
                n++;
        return n;
}

static bool is_supported(void)
{
        return !fake_lacks("vmm") && !fake_lacks("vmm-attribute");
}

static cu_result enter(const char *call, unsigned flags)
{
        cu_result r = fake_enter(call, flags);

        return r == CU_OK && !is_supported() ? CU_NOT_SUPPORTED : r;
}

static void check_granular(const char *what, uint64_t value)
{
        if (!value || value % FAKE_GRANULARITY)
                fake_die("%s %#llx is no multiple of the granularity %#zx", what,
                        (unsigned long long)value, FAKE_GRANULARITY);
}

/* Ids mean nothing in another process, and none is used twice. */
static cu_mem_handle handle_add(struct phys *p)
{
        static uint32_t serial;
        struct handle *h = calloc(1, sizeof(*h));

        if (!h)
                fake_die("out of the host's memory");
        *h = (struct handle){.id = (cu_mem_handle)(uint32_t)fake.pid << 32 | ++serial, .phys = p};
        list_append(&handles, &h->link);
        p->handles++;
        return h->id;
}

static struct handle *handle_find(cu_mem_handle id)
{
        list_for_each (h, &handles, struct handle, link) {
                if (h->id == id)
                        return h;
        }
        fake_die("%#llx is no memory handle of this process (released already?)", id);
}

static cu_result check_prop(const cu_mem_allocation_prop *prop)
{
        static const unsigned char zero[4];

        if (prop->type != CU_ALLOC_PINNED || prop->location.type != CU_LOCATION_DEVICE)
                fake_die("only pinned memory of a device is supported");
        if (prop->requested_handle_type != CU_HANDLE_NONE &&
                prop->requested_handle_type != CU_HANDLE_POSIX_FD)
                fake_die("unknown handle type %d", prop->requested_handle_type);
        if (prop->win32_handle_meta_data || prop->flags.compression_type || prop->flags.usage ||
                memcmp(prop->flags.reserved, zero, sizeof(zero)) != 0 ||
                prop->flags.gpu_direct_rdma_capable > 1)
                fake_die("unused members of the properties must be zero");
        if (fake_index(prop->location.id) < 0)
                return CU_INVALID_DEVICE;
        if (prop->requested_handle_type == CU_HANDLE_POSIX_FD && fake_lacks("fd"))
                return CU_NOT_SUPPORTED;
        if (prop->flags.gpu_direct_rdma_capable && fake_lacks("rdma"))
                return CU_NOT_SUPPORTED;
        return CU_OK;
}

cu_result cuMemGetAllocationGranularity(
        size_t *bytes, const cu_mem_allocation_prop *prop, cu_granularity option)
{
        cu_result r = enter("cuMemGetAllocationGranularity", ENTER_VMM);

        if (r == CU_OK)
                r = check_prop(prop);
        if (r != CU_OK)
                return r;
        if (option != CU_GRANULARITY_MINIMUM && option != CU_GRANULARITY_RECOMMENDED)
                return CU_INVALID_VALUE;
        *bytes = FAKE_GRANULARITY;
        return CU_OK;
}

static cu_result result_of(int r)
{
        return r == -ENOMEM ? CU_OUT_OF_MEMORY : CU_OPERATING_SYSTEM;
}

cu_result cuMemCreate(cu_mem_handle *handle, size_t bytes, const cu_mem_allocation_prop *prop,
        unsigned long long flags)
{
        cu_result r = enter("cuMemCreate", ENTER_VMM);
        struct store_name parsed;
        char name[FAKE_NAME_BYTES];
        struct phys *p;
        int fd, e;

        if (r != CU_OK)
                return r;
        if (flags)
                fake_die("flags must be zero");
        check_granular("the size", bytes);
        r = check_prop(prop);
        if (r != CU_OK)
                return r;
        e = store_create(STORE_VMM, fake_index(prop->location.id), bytes, &fd, name);
        if (e < 0)
                return result_of(e);
        store_parse(name, &parsed);
        fake_lock();
        p = phys_new(fd, name, &parsed);
        p->can_export = prop->requested_handle_type == CU_HANDLE_POSIX_FD;
        *handle = handle_add(p);
        fake_unlock();
        return CU_OK;
}

cu_result cuMemRelease(cu_mem_handle handle)
{
        cu_result r = enter("cuMemRelease", ENTER_VMM | ENTER_FREES);
        struct handle *h;

        if (r != CU_OK)
                return r;
        fake_lock();
        h = handle_find(handle);
        phys_unref(h->phys, &h->phys->handles);
        list_remove(&h->link);
        free(h);
        fake_unlock();
        return CU_OK;
}

cu_result cuMemExportToShareableHandle(
        void *fd, cu_mem_handle handle, cu_handle_type type, unsigned long long flags)
{
        cu_result r = enter("cuMemExportToShareableHandle", ENTER_VMM);
        struct handle *h;
        int copy;

        if (r != CU_OK)
                return r;
        if (flags)
                fake_die("flags must be zero");
        if (type != CU_HANDLE_POSIX_FD)
                return CU_NOT_SUPPORTED;
        fake_lock();
        h = handle_find(handle);
        if (!h->phys->can_export)
                fake_die("the memory wasn't made for export as a file descriptor");
        copy = fcntl(h->phys->fd, F_DUPFD_CLOEXEC, 0);
        fake_unlock();
        if (copy < 0)
                return CU_OPERATING_SYSTEM;
        *(int *)fd = copy;
        return CU_OK;
}

/* Like the driver: the caller's fd stays the caller's, and a foreign fd is an invalid value. */
cu_result cuMemImportFromShareableHandle(cu_mem_handle *handle, void *fd, cu_handle_type type)
{
        cu_result r = enter("cuMemImportFromShareableHandle", ENTER_VMM);
        struct store_name parsed;
        char name[FAKE_NAME_BYTES];
        bool is_visible = false;
        struct phys *p;
        int copy;

        if (r != CU_OK)
                return r;
        if (type != CU_HANDLE_POSIX_FD || fake_lacks("fd"))
                return CU_NOT_SUPPORTED;
        if (!store_identify((int)(intptr_t)fd, name, &parsed))
                return CU_INVALID_VALUE;
        for (int i = 0; i < (int)fake.visible; i++)
                is_visible |= fake.by_ordinal[i] == parsed.device;
        if (!is_visible)
                return CU_INVALID_VALUE;
        copy = fcntl((int)(intptr_t)fd, F_DUPFD_CLOEXEC, 0);
        if (copy < 0)
                return CU_OPERATING_SYSTEM;
        if (fake_is_bad(BAD_CLEARED) && store_clear(copy, parsed.bytes) < 0)
                fake_die("the memory can't be cleared: %s", strerror(errno));
        fake_lock();
        p = phys_new(copy, name, &parsed);
        p->can_export = true;
        *handle = handle_add(p);
        fake_unlock();
        return CU_OK;
}

cu_result cuMemAddressReserve(cu_deviceptr *at, size_t bytes, size_t alignment, cu_deviceptr wanted,
        unsigned long long flags)
{
        cu_result r = enter("cuMemAddressReserve", ENTER_VMM);
        struct range *range;

        if (r != CU_OK)
                return r;
        if (flags)
                fake_die("flags must be zero");
        check_granular("the size", bytes);
        if (alignment & (alignment - 1))
                fake_die("the alignment %zu is no power of two", alignment);
        if (wanted)
                check_granular("the wanted address", wanted);
        fake_lock();
        range = range_new(RANGE_RESERVED, bytes, alignment, wanted);
        if (range)
                *at = range->at;
        fake_unlock();
        return range ? CU_OK : CU_OUT_OF_MEMORY;
}

/* Locked. */
static struct range *find_reserved(cu_deviceptr at, size_t bytes)
{
        struct range *range = range_find(at);

        if (!range || range->kind != RANGE_RESERVED || bytes > range->bytes - (at - range->at))
                fake_die("%#llx, %zu bytes: not in one reserved range", at, bytes);
        return range;
}

cu_result cuMemAddressFree(cu_deviceptr at, size_t bytes)
{
        cu_result r = enter("cuMemAddressFree", ENTER_VMM | ENTER_FREES);
        struct range *range;

        if (r != CU_OK)
                return r;
        fake_lock();
        range = range_find(at);
        if (!range || range->kind != RANGE_RESERVED || range->at != at || range->bytes != bytes)
                fake_die("%#llx, %zu bytes: not a whole reserved range", at, bytes);
        for (size_t i = 0; i < bytes / FAKE_GRANULARITY; i++) {
                if (range->slots[i])
                        fake_die("memory is still mapped at %#llx",
                                (unsigned long long)range->slots[i]->at);
        }
        range_free(range);
        fake_unlock();
        return CU_OK;
}

cu_result cuMemMap(cu_deviceptr at, size_t bytes, size_t offset, cu_mem_handle handle,
        unsigned long long flags)
{
        cu_result r = enter("cuMemMap", ENTER_VMM);
        struct range *range;
        struct handle *h;

        if (r != CU_OK)
                return r;
        if (offset)
                fake_die("offset must be zero");
        if (flags)
                fake_die("flags must be zero");
        check_granular("the address", at);
        check_granular("the size", bytes);
        fake_lock();
        h = handle_find(handle);
        if (h->phys->bytes != bytes)
                fake_die("%zu bytes of a handle of %zu: map the whole", bytes, h->phys->bytes);
        range = find_reserved(at, bytes);
        for (size_t i = 0; i < bytes / FAKE_GRANULARITY; i++) {
                if (range->slots[(at - range->at) / FAKE_GRANULARITY + i])
                        fake_die("something is mapped there already");
        }
        mapping_new(range, at, bytes, h->phys);
        fake_unlock();
        return CU_OK;
}

cu_result cuMemUnmap(cu_deviceptr at, size_t bytes)
{
        cu_result r = enter("cuMemUnmap", ENTER_VMM | ENTER_FREES);
        struct range *range;
        struct mapping *m;

        if (r != CU_OK)
                return r;
        check_granular("the address", at);
        fake_lock();
        range = find_reserved(at, bytes);
        m = range->slots[(at - range->at) / FAKE_GRANULARITY];
        if (!m)
                fake_die("nothing is mapped at %#llx", at);
        if (m->at != at || m->bytes != bytes)
                fake_die("%#llx, %zu bytes: not one whole mapping", at, bytes);
        mapping_free(m);
        fake_unlock();
        return CU_OK;
}

/* Locked. */
static void set_access(struct range *range, cu_deviceptr at, size_t bytes, int device, int flags)
{
        for (cu_deviceptr pos = at; pos < at + bytes;) {
                struct mapping *m = range->slots[(pos - range->at) / FAKE_GRANULARITY];

                if (!m)
                        fake_die("nothing is mapped at %#llx", pos);
                if (m->at < at || m->at + m->bytes > at + bytes)
                        fake_die("a part of a mapping: set the access of the whole");
                m->access[device] = (uint8_t)flags;
                pos = m->at + m->bytes;
        }
}

cu_result cuMemSetAccess(cu_deviceptr at, size_t bytes, const cu_mem_access_desc *descs, size_t n)
{
        cu_result r = enter("cuMemSetAccess", ENTER_VMM);
        struct range *range;

        if (r != CU_OK)
                return r;
        check_granular("the address", at);
        check_granular("the size", bytes);
        for (size_t i = 0; i < n; i++) {
                if (descs[i].location.type != CU_LOCATION_DEVICE)
                        fake_die("only locations on a device are supported");
                if (fake_index(descs[i].location.id) < 0)
                        return CU_INVALID_DEVICE;
                if (descs[i].flags != CU_ACCESS_NONE && descs[i].flags != CU_ACCESS_READ &&
                        descs[i].flags != CU_ACCESS_READ_WRITE)
                        return CU_INVALID_VALUE;
        }
        fake_lock();
        range = find_reserved(at, bytes);
        for (size_t i = 0; i < n; i++)
                set_access(range, at, bytes, fake_index(descs[i].location.id), descs[i].flags);
        fake_unlock();
        return CU_OK;
}
