#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"
#include "tests/fakecuda/fake.h"

#define MEMORY_DEFAULT ((size_t)8 << 30)

struct stack {
        cu_context contexts[FAKE_STACK_MAX];
        unsigned n;
};

static __thread struct stack stack;
static pthread_key_t stack_key;

cu_context fake_current(void)
{
        return stack.n ? stack.contexts[stack.n - 1] : NULL;
}

unsigned fake_stack_depth(void)
{
        return stack.n;
}

static void thread_ends(void *data)
{
        struct stack *s = data;

        if (s->n)
                fake_die("the thread ends with %u contexts pushed and not popped", s->n);
}

void fake_break(cu_context context, cu_result result)
{
        for (unsigned i = 0; i < fake.devices; i++) {
                cu_context c = &fake.contexts[i];

                if ((!context || context == c) && c->broken == CU_OK)
                        c->broken = result;
        }
        pthread_cond_broadcast(&fake.changed);
}

int fake_index(int ordinal)
{
        return ordinal < 0 || ordinal >= (int)fake.visible ? -1 : fake.by_ordinal[ordinal];
}

static void format_uuid(int index, char *text, size_t size)
{
        snprintf(text, size, "GPU-fa4ecada-0000-0000-0000-%012x", (unsigned)index);
}

/* An entry of CUDA_VISIBLE_DEVICES: an index or a UUID. -1: no such device. */
static int parse_visible(const char *text)
{
        char uuid[64], *end;
        long index = strtol(text, &end, 10);

        if (end != text && !*end)
                return index < 0 || index >= (long)fake.devices ? -1 : (int)index;
        for (unsigned i = 0; i < fake.devices; i++) {
                format_uuid((int)i, uuid, sizeof(uuid));
                if (strcmp(uuid, text) == 0)
                        return (int)i;
        }
        return -1;
}

/* Like the driver, ends the list at the first invalid entry. */
static void find_visible(void)
{
        const char *list = getenv("CUDA_VISIBLE_DEVICES");
        char copy[1024], *save = NULL;

        if (!list) {
                for (unsigned i = 0; i < fake.devices; i++)
                        fake.by_ordinal[i] = (int)i;
                fake.visible = fake.devices;
                return;
        }
        snprintf(copy, sizeof(copy), "%s", list);
        for (char *one = strtok_r(copy, ",", &save); one; one = strtok_r(NULL, ",", &save)) {
                int index = parse_visible(one);

                if (index < 0 || fake.visible == FAKE_DEVICES_MAX)
                        return;
                fake.by_ordinal[fake.visible++] = index;
        }
}

static cu_result start(void)
{
        const char *dir = getenv("FAKECUDA_DIR"), *n = getenv("FAKECUDA_DEVICES"),
                   *memory = getenv("FAKECUDA_MEMORY");
        unsigned long devices = n ? strtoul(n, NULL, 10) : 1;
        pthread_condattr_t attr;
        struct stat st;

        if (!dir || strlen(dir) >= sizeof(fake.dir) || stat(dir, &st) < 0 || !S_ISDIR(st.st_mode))
                return CU_NO_DEVICE;
        snprintf(fake.dir, sizeof(fake.dir), "%s", dir);
        fake.devices = (unsigned)MIN(devices, (unsigned long)FAKE_DEVICES_MAX);
        fake.visible = 0;
        find_visible();
        if (!fake.visible)
                return CU_NO_DEVICE;
        fake.memory = memory ? strtoull(memory, NULL, 10) : MEMORY_DEFAULT;
        for (unsigned i = 0; i < fake.devices; i++)
                fake.contexts[i] = (struct CUctx_st){.device = (int)i};
        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(&fake.changed, &attr);
        pthread_condattr_destroy(&attr);
        if (pthread_key_create(&stack_key, thread_ends) != 0)
                return CU_OPERATING_SYSTEM;
        fake.start = store_start_time(getpid());
        __atomic_store_n(&fake.pid, getpid(), __ATOMIC_RELEASE);
        return CU_OK;
}

cu_result cuInit(unsigned flags)
{
        cu_result r = fake_enter("cuInit", 0);

        if (r != CU_OK)
                return r;
        if (flags != 0)
                return CU_INVALID_VALUE;
        fake_lock();
        if (!fake.pid)
                r = start();
        fake_unlock();
        return r;
}

cu_result cuDeviceGetCount(int *count)
{
        cu_result r = fake_enter("cuDeviceGetCount", ENTER_PLAIN);

        if (r != CU_OK)
                return r;
        *count = (int)fake.visible;
        return CU_OK;
}

cu_result cuDeviceGet(cu_device *device, int ordinal)
{
        cu_result r = fake_enter("cuDeviceGet", ENTER_PLAIN);

        if (r != CU_OK)
                return r;
        if (fake_index(ordinal) < 0)
                return CU_INVALID_DEVICE;
        *device = ordinal;
        return CU_OK;
}

cu_result cuDeviceGetName(char *name, int size, cu_device device)
{
        cu_result r = fake_enter("cuDeviceGetName", ENTER_PLAIN);

        if (r != CU_OK)
                return r;
        if (fake_index(device) < 0)
                return CU_INVALID_DEVICE;
        if (size <= 0)
                return CU_INVALID_VALUE;
        snprintf(name, (size_t)size, "Driver double %d", fake_index(device));
        return CU_OK;
}

static cu_result get_uuid(cu_uuid *uuid, cu_device device)
{
        int index = fake_index(device);

        if (index < 0)
                return CU_INVALID_DEVICE;
        memset(uuid, 0, sizeof(*uuid));
        memcpy(uuid->bytes, "\xfa\x4e\xca\xda", 4);
        uuid->bytes[15] = (char)index;
        return CU_OK;
}

cu_result cuDeviceGetUuid(cu_uuid *uuid, cu_device device)
{
        cu_result r = fake_enter("cuDeviceGetUuid", ENTER_PLAIN);

        return r != CU_OK ? r : get_uuid(uuid, device);
}

cu_result cuDeviceGetUuid_v2(cu_uuid *uuid, cu_device device)
{
        cu_result r = fake_enter("cuDeviceGetUuid", ENTER_PLAIN);

        if (r == CU_OK)
                r = get_uuid(uuid, device);
        /* A MIG instance has its own UUID; the older call gives the GPU's. */
        if (r == CU_OK && getenv("FAKECUDA_MIG"))
                uuid->bytes[6] = 0x40;
        return r;
}

cu_result cuDeviceTotalMem_v2(size_t *bytes, cu_device device)
{
        cu_result r = fake_enter("cuDeviceTotalMem", ENTER_PLAIN);

        if (r != CU_OK)
                return r;
        if (fake_index(device) < 0)
                return CU_INVALID_DEVICE;
        *bytes = fake.memory;
        return CU_OK;
}

cu_result cuDeviceGetAttribute(int *value, cu_device_attribute attribute, cu_device device)
{
        cu_result r = fake_enter("cuDeviceGetAttribute", ENTER_PLAIN);
        bool vmm = !fake_lacks("vmm") && !fake_lacks("vmm-attribute");

        if (r != CU_OK)
                return r;
        if (fake_index(device) < 0)
                return CU_INVALID_DEVICE;
        switch (attribute) {
        case CU_ATTR_COMPUTE_MAJOR:
                *value = 9;
                return CU_OK;
        case CU_ATTR_COMPUTE_MINOR:
        case CU_ATTR_HOST_NUMA_ID:
                *value = 0;
                return CU_OK;
        case CU_ATTR_VMM:
                *value = vmm;
                return CU_OK;
        case CU_ATTR_VMM_POSIX_FD:
                *value = vmm && !fake_lacks("fd");
                return CU_OK;
        case CU_ATTR_RDMA_WITH_VMM:
                *value = vmm && !fake_lacks("rdma");
                return CU_OK;
        case CU_ATTR_READ_ONLY_HOST:
                *value = !fake_lacks("read-only-host");
                return CU_OK;
        case CU_ATTR_MEMOPS_64:
                *value = 1;
                return CU_OK;
        default:
                return CU_INVALID_VALUE;
        }
}

cu_result cuDevicePrimaryCtxRetain(cu_context *context, cu_device device)
{
        cu_result r = fake_enter("cuDevicePrimaryCtxRetain", ENTER_PLAIN);
        int index;

        if (r != CU_OK)
                return r;
        index = fake_index(device);
        if (index < 0)
                return CU_INVALID_DEVICE;
        fake_lock();
        fake.contexts[index].retained++;
        *context = &fake.contexts[index];
        fake_unlock();
        return CU_OK;
}

/* Objects left in a context that ends. */
static void check_empty(cu_context c)
{
        char text[256] = "";

        if (c->broken != CU_OK)
                return;
        leak_add(text, sizeof(text), c->streams, "stream");
        leak_add(text, sizeof(text), c->events, "event");
        leak_add(text, sizeof(text), c->allocations, "allocation");
        leak_add(text, sizeof(text), c->registrations, "host registration");
        leak_add(text, sizeof(text), c->modules, "module");
        leak_add(text, sizeof(text), c->pushed, "place on a thread's stack");
        if (*text && !fake.gave_up_a_free)
                fake_die("the context still has %s", text);
}

cu_result cuDevicePrimaryCtxRelease_v2(cu_device device)
{
        cu_result r = fake_enter("cuDevicePrimaryCtxRelease", ENTER_PLAIN | ENTER_FREES);
        cu_context c;

        if (r != CU_OK)
                return r;
        if (fake_index(device) < 0)
                return CU_INVALID_DEVICE;
        fake_lock();
        c = &fake.contexts[fake_index(device)];
        if (!c->retained)
                fake_die("the primary context isn't retained");
        if (c->retained == 1) {
                check_empty(c);
                stream_end_legacy(c);
        }
        c->retained--;
        fake_unlock();
        return CU_OK;
}

cu_result cuCtxPushCurrent_v2(cu_context context)
{
        cu_result r = fake_enter("cuCtxPushCurrent", ENTER_PLAIN);

        if (r != CU_OK)
                return r;
        fake_lock();
        if (context < fake.contexts || context >= fake.contexts + fake.devices ||
                !context->retained)
                fake_die("not a context that is retained");
        if (stack.n == FAKE_STACK_MAX)
                fake_die("%d contexts pushed and not popped", FAKE_STACK_MAX);
        context->pushed++;
        stack.contexts[stack.n++] = context;
        pthread_setspecific(stack_key, &stack);
        fake_unlock();
        return CU_OK;
}

cu_result cuCtxPopCurrent_v2(cu_context *context)
{
        cu_result r = fake_enter("cuCtxPopCurrent", ENTER_PLAIN | ENTER_FREES);

        if (r != CU_OK)
                return r;
        if (!stack.n)
                fake_die("no context was pushed in this thread");
        fake_lock();
        stack.n--;
        stack.contexts[stack.n]->pushed--;
        fake_unlock();
        if (context)
                *context = stack.contexts[stack.n];
        return CU_OK;
}

cu_result cuCtxGetCurrent(cu_context *context)
{
        cu_result r = fake_enter("cuCtxGetCurrent", ENTER_PLAIN);

        if (r != CU_OK)
                return r;
        *context = fake_current();
        return CU_OK;
}

cu_result cuCtxGetDevice(cu_device *device)
{
        cu_result r = fake_enter("cuCtxGetDevice", ENTER_INIT | ENTER_CONTEXT);

        if (r != CU_OK)
                return r;
        for (int i = 0; i < (int)fake.visible; i++)
                if (fake.by_ordinal[i] == fake_current()->device)
                        *device = i;
        return CU_OK;
}

cu_result cuCtxSynchronize(void)
{
        cu_result r = fake_enter("cuCtxSynchronize", ENTER_BOUND);

        if (r != CU_OK)
                return r;
        fake_lock();
        r = stream_drain_all(fake_current());
        fake_unlock();
        return r;
}

cu_result cuMemGetInfo_v2(size_t *free, size_t *total)
{
        cu_result r = fake_enter("cuMemGetInfo", ENTER_BOUND);
        size_t used;

        if (r != CU_OK)
                return r;
        if (store_used(fake_current()->device, &used) < 0)
                return CU_OPERATING_SYSTEM;
        *total = fake.memory;
        *free = used < fake.memory ? fake.memory - used : 0;
        return CU_OK;
}
