#include "gpu/cuda_load.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* cuGetProcAddress() of 12.0, and of 11.3. */
typedef cu_result (*get_proc_fn)(
        const char *name, void **address, int version, uint64_t flags, int *status);
typedef cu_result (*get_proc_old_fn)(const char *name, void **address, int version, uint64_t flags);

enum group {
        GROUP_BASE,
        GROUP_VMM,
        GROUP_IPC,
        GROUP_BATCH,
        GROUP_BATCH2,
        GROUP_UUID2,
        GROUP_KERNEL
};

static const unsigned capability_of[] = {
        [GROUP_VMM] = CUDA_HAS_VMM,
        [GROUP_IPC] = CUDA_HAS_IPC,
        [GROUP_BATCH] = CUDA_HAS_BATCH,
        [GROUP_BATCH2] = CUDA_HAS_BATCH2,
        [GROUP_UUID2] = CUDA_HAS_UUID2,
        [GROUP_KERNEL] = CUDA_HAS_KERNEL,
};

struct call {
        enum group group;
        const char *name;
        int version;
        size_t offset; /* in struct cuda */
};

static const struct call calls[] = {
#define CUDA_CALL(group, field, name, version, exported, parameters) \
        {GROUP_##group, name, version, offsetof(struct cuda, field)},
#include "gpu/cuda_calls.h"
#undef CUDA_CALL
};

struct loader {
        void *library; /* never closed */
        get_proc_fn get_proc;
        get_proc_old_fn get_proc_old;
};

static struct {
        pthread_mutex_t lock;
        struct cuda cuda;
        bool is_loaded, is_done;
        int result;
        char why[CUDA_WHY_BYTES];
        pid_t pid; /* of the loading process */
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- results --------------------------------------------------------------------------------- */

bool cuda_is_fatal(cu_result result)
{
        switch (result) {
        case CU_DEINITIALIZED:
        case CU_DEVICE_UNAVAILABLE:
        case CU_ECC_UNCORRECTABLE:
        case CU_ILLEGAL_ADDRESS:
        case CU_LAUNCH_TIMEOUT:
        case CU_CONTEXT_IS_DESTROYED:
        case CU_HARDWARE_STACK_ERROR:
        case CU_LAUNCH_FAILED:
        case CU_UNKNOWN:
                return true;
        default:
                /* 714 to 718: illegal instruction, misaligned address, invalid address space,
                 * invalid program counter: sticky, as 700 is. */
                return result >= CU_HARDWARE_STACK_ERROR && result <= CU_LAUNCH_FAILED;
        }
}

int cuda_errno(cu_result result)
{
        if (cuda_is_fatal(result))
                return -ENXIO;
        switch (result) {
        case CU_OK:
                return 0;
        case CU_OUT_OF_MEMORY:
                return -ENOMEM;
        case CU_NO_DEVICE:
        case CU_INVALID_DEVICE:
                return -ENODEV;
        case CU_INVALID_VALUE:
        case CU_INVALID_HANDLE:
        case CU_INVALID_CONTEXT:
        case CU_INVALID_IMAGE:
                return -EINVAL;
        case CU_NOT_READY:
                return -EBUSY;
        case CU_NOT_SUPPORTED:
                return -EOPNOTSUPP;
        case CU_NOT_PERMITTED:
                return -EACCES;
        case CU_SYSTEM_NOT_READY:
                return -EAGAIN;
        case CU_STUB_LIBRARY:
        case CU_SYSTEM_DRIVER_MISMATCH:
        case CU_COMPAT_NOT_SUPPORTED_ON_DEVICE:
                return -ELIBBAD;
        default:
                return -EIO;
        }
}

char *cuda_describe(const char *call, cu_result result, char *buf, size_t size)
{
        const char *name = NULL;

        if (state.cuda.GetErrorName && state.cuda.GetErrorName(result, &name) == CU_OK && name)
                snprintf(buf, size, "%s: %s (%d)", call, name, result);
        else
                snprintf(buf, size, "%s: CUDA error %d", call, result);
        return buf;
}

/* ---- loading --------------------------------------------------------------------------------- */

static int __attribute__((format(printf, 2, 3))) fail_because(int result, const char *format, ...)
{
        va_list args;

        va_start(args, format);
        vsnprintf(state.why, sizeof(state.why), format, args);
        va_end(args);
        return result;
}

static int fail_stub(void)
{
        return fail_because(-ELIBBAD,
                "%s is the stub of the CUDA toolkit, not a driver: take the toolkit's stubs directory out of LD_LIBRARY_PATH",
                CUDA_LIBRARY);
}

static cu_result find_call(
        const struct loader *l, const char *name, int version, void **ret_address)
{
        *ret_address = NULL;
        if (l->get_proc)
                return l->get_proc(name, ret_address, version, 0, NULL);
        return l->get_proc_old(name, ret_address, version, 0);
}

/* The way to functions that this driver has. */
static int find_loader(struct loader *l)
{
        cu_result r = CU_NOT_FOUND;
        void *init = NULL;

        l->library = dlopen(CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
        if (!l->library)
                return fail_because(-ENODEV, "no CUDA driver is installed here (%s)", dlerror());
        l->get_proc = (get_proc_fn)dlsym(l->library, "cuGetProcAddress_v2");
        l->get_proc_old = (get_proc_old_fn)dlsym(l->library, "cuGetProcAddress");
        if (l->get_proc)
                r = find_call(l, "cuInit", 2000, &init);
        if (r != CU_OK && r != CU_STUB_LIBRARY && l->get_proc_old) {
                l->get_proc = NULL;
                r = find_call(l, "cuInit", 2000, &init);
        }
        if (r == CU_STUB_LIBRARY)
                return fail_stub();
        if (r != CU_OK || !init)
                return fail_because(-ELIBBAD,
                        "the CUDA driver (%s) is older than 11.3: install a newer one",
                        CUDA_LIBRARY);
        return 0;
}

/* A group counts if all its functions exist. */
static int find_calls(const struct loader *l, struct cuda *cuda)
{
        unsigned missing = 0;

        for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
                const struct call *c = &calls[i];
                void *address;
                cu_result r = find_call(l, c->name, c->version, &address);

                /* Some drivers say OK and give nothing. */
                if (r != CU_OK)
                        address = NULL;
                memcpy((char *)cuda + c->offset, &address, sizeof(address));
                if (address)
                        continue;
                if (c->group == GROUP_BASE)
                        return fail_because(-ELIBBAD,
                                "the CUDA driver has no %s(): install a newer driver", c->name);
                missing |= capability_of[c->group];
        }
        for (size_t i = 0; i < sizeof(capability_of) / sizeof(*capability_of); i++)
                cuda->capabilities |= capability_of[i] & ~missing;
        return 0;
}

static int fail_init(cu_result r)
{
        const char *visible = getenv("CUDA_VISIBLE_DEVICES");
        char text[128];

        switch (r) {
        case CU_STUB_LIBRARY:
                return fail_stub();
        case CU_NO_DEVICE:
                if (!visible)
                        return fail_because(-ENODEV, "the CUDA driver finds no device");
                return fail_because(-ENODEV,
                        "the CUDA driver shows no device (CUDA_VISIBLE_DEVICES is '%.64s')",
                        visible);
        case CU_SYSTEM_DRIVER_MISMATCH:
        case CU_COMPAT_NOT_SUPPORTED_ON_DEVICE:
                return fail_because(-ELIBBAD,
                        "%s and the kernel's NVIDIA module are of versions that don't go together: "
                        "install the same driver version in both places (and in the container)",
                        CUDA_LIBRARY);
        case CU_SYSTEM_NOT_READY:
                return fail_because(-EAGAIN,
                        "the CUDA driver isn't ready: the fabric manager doesn't run yet; start nvidia-fabricmanager, or wait for it");
        default:
                return fail_because(cuda_errno(r) == -ELIBBAD ? -ELIBBAD : -EIO,
                        "the CUDA driver can't be used: %s",
                        cuda_describe("cuInit", r, text, sizeof(text)));
        }
}

static int initialise(struct cuda *cuda)
{
        cu_result r = cuda->Init(0);

        if (r != CU_OK)
                return fail_init(r);
        r = cuda->DriverGetVersion(&cuda->version);
        if (r != CU_OK || cuda->version < CUDA_MIN_VERSION)
                return fail_because(
                        -ELIBBAD, "the CUDA driver is older than 11.3: install a newer one");
        return 0;
}

static int load(void)
{
        struct loader l = {0};
        int r = 0;

        state.pid = getpid();
        if (!state.is_loaded) {
                r = find_loader(&l);
                if (r == 0)
                        r = find_calls(&l, &state.cuda);
                state.is_loaded = r == 0;
        }
        if (r == 0)
                r = initialise(&state.cuda);
        state.is_done = r != -EAGAIN;
        return r;
}

int cuda_get(const struct cuda **ret_cuda, char why[CUDA_WHY_BYTES])
{
        int r;

        pthread_mutex_lock(&state.lock);
        if (state.pid && state.pid != getpid()) {
                snprintf(why, CUDA_WHY_BYTES,
                        "the CUDA driver can't be used in a child of the process that uses it");
                pthread_mutex_unlock(&state.lock);
                return -ECHILD;
        }
        if (!state.is_done)
                state.result = load();
        r = state.result;
        if (r == 0)
                *ret_cuda = &state.cuda;
        else
                memcpy(why, state.why, sizeof(state.why));
        pthread_mutex_unlock(&state.lock);
        return r;
}
