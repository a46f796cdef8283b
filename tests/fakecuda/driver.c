#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "tests/fakecuda/fake.h"

struct fake fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

static __thread const char *this_call = "a thread's end";
static __thread bool in_host_function;

void fake_die(const char *format, ...)
{
        char line[1024];
        int n = snprintf(line, sizeof(line), "fakecuda: %s: ", this_call);
        va_list ap;

        va_start(ap, format);
        vsnprintf(line + n, sizeof(line) - (size_t)n - 1, format, ap);
        va_end(ap);
        strcat(line, "\n");
        n = (int)strlen(line);
        if (write(STDERR_FILENO, line, (size_t)n) != n) {
                /* There is no place for a message. */
        }
        abort();
}

int fake_version(void)
{
        const char *text = getenv("FAKECUDA_VERSION");

        return text ? atoi(text) : 13000;
}

bool fake_lacks(const char *capability)
{
        const char *list = getenv("FAKECUDA_NO");
        char copy[256], *save = NULL;

        snprintf(copy, sizeof(copy), "%s", list ? list : "");
        for (char *one = strtok_r(copy, ", ", &save); one; one = strtok_r(NULL, ", ", &save)) {
                if (strcmp(one, capability) == 0)
                        return true;
        }
        return false;
}

void fake_host_function(bool runs)
{
        in_host_function = runs;
}

cu_result fake_enter_work(const char *name)
{
        this_call = name;
        fake_delay(name);
        return fake_fault(name);
}

static cu_result check_context(unsigned flags)
{
        cu_context current = fake_current();
        cu_result broken = CU_OK;

        if ((flags & ENTER_CONTEXT) && !current)
                fake_die("no current context in this thread");
        if ((flags & ENTER_STICKY) && current) {
                fake_lock();
                broken = current->broken;
                fake_unlock();
        }
        return broken;
}

cu_result fake_enter(const char *call, unsigned flags)
{
        pid_t pid = __atomic_load_n(&fake.pid, __ATOMIC_ACQUIRE);
        cu_result result;

        this_call = call;
        if (in_host_function)
                fake_die("called by a host function, which must not call the driver");
        if (pid && pid != getpid())
                fake_die("called in a child of the process that called cuInit");
        if ((flags & ENTER_INIT) && !pid)
                return CU_NOT_INITIALIZED;
        fake_delay(call);
        result = fake_fault(call);
        if (result != CU_OK) {
                fake_lock();
                if (flags & ENTER_FREES)
                        fake.gave_up_a_free = true;
                if (fake_is_fatal(result) && pid)
                        fake_break(fake_current(), result);
                fake_unlock();
                return result;
        }
        return check_context(flags);
}

/* The driver's description of itself */

static const struct {
        cu_result result;
        const char *name;
} error_names[] = {
        {CU_OK, "CUDA_SUCCESS"},
        {CU_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
        {CU_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
        {CU_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
        {CU_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED"},
        {CU_STUB_LIBRARY, "CUDA_ERROR_STUB_LIBRARY"},
        {CU_DEVICE_UNAVAILABLE, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
        {CU_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
        {CU_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
        {CU_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"},
        {CU_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
        {CU_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
        {CU_ECC_UNCORRECTABLE, "CUDA_ERROR_ECC_UNCORRECTABLE"},
        {CU_INVALID_PTX, "CUDA_ERROR_INVALID_PTX"},
        {CU_UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
        {CU_OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM"},
        {CU_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"},
        {CU_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE"},
        {CU_NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
        {CU_NOT_READY, "CUDA_ERROR_NOT_READY"},
        {CU_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
        {CU_LAUNCH_TIMEOUT, "CUDA_ERROR_LAUNCH_TIMEOUT"},
        {CU_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED"},
        {CU_HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
        {CU_HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"},
        {CU_HARDWARE_STACK_ERROR, "CUDA_ERROR_HARDWARE_STACK_ERROR"},
        {CU_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"},
        {CU_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED"},
        {CU_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"},
        {CU_SYSTEM_NOT_READY, "CUDA_ERROR_SYSTEM_NOT_READY"},
        {CU_SYSTEM_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
        {CU_COMPAT_NOT_SUPPORTED_ON_DEVICE, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"},
        {CU_UNKNOWN, "CUDA_ERROR_UNKNOWN"},
};

/* Not a call on the device, so allowed everywhere. */
cu_result cuGetErrorName(cu_result error, const char **name)
{
        *name = NULL;
        for (size_t i = 0; i < ARRAY_SIZE(error_names); i++) {
                if (error_names[i].result == error) {
                        *name = error_names[i].name;
                        return CU_OK;
                }
        }
        return CU_INVALID_VALUE;
}

cu_result cuDriverGetVersion(int *version)
{
        cu_result r = fake_enter("cuDriverGetVersion", 0);

        if (r != CU_OK)
                return r;
        *version = fake_version();
        return CU_OK;
}

/* cuGetProcAddress */

enum { GROUP_BASE, GROUP_VMM, GROUP_IPC, GROUP_BATCH, GROUP_BATCH2, GROUP_UUID2, GROUP_KERNEL };

/* The function pointers as the table's type; each is called through its own again. */
typedef void (*any_fn)(void);

static const struct {
        int group;
        const char *name;
        int version;
        any_fn fn;
} symbols[] = {
#define CUDA_CALL(group, field, name, version, exported, parameters) \
        {GROUP_##group, name, version, (any_fn)exported},
#include "gpu/cuda_calls.h"
#undef CUDA_CALL
        {GROUP_BASE, "cuGetProcAddress", 11030, (any_fn)cuGetProcAddress},
        {GROUP_BASE, "cuGetProcAddress", 12000, (any_fn)cuGetProcAddress_v2},
};

static bool lacks_group(int group)
{
        static const char *const names[] = {
                "base", "vmm", "ipc", "batch", "batch", "uuid2", "kernel"};

        return fake_lacks(names[group]);
}

/* CU_GET_PROC_ADDRESS_* */
enum { SYMBOL_FOUND, SYMBOL_NOT_FOUND, SYMBOL_TOO_OLD };

static cu_result find_symbol(const char *name, void **pfn, int version, int *ret_status)
{
        int best = 0;
        bool is_known = false;

        *pfn = NULL;
        if (version > fake_version() || !name)
                return CU_INVALID_VALUE;
        for (size_t i = 0; i < ARRAY_SIZE(symbols); i++) {
                if (strcmp(symbols[i].name, name) != 0 || symbols[i].version > fake_version() ||
                        lacks_group(symbols[i].group))
                        continue;
                is_known = true;
                if (symbols[i].version <= version && symbols[i].version > best) {
                        best = symbols[i].version;
                        memcpy(pfn, &symbols[i].fn, sizeof(*pfn));
                }
        }
        *ret_status = best ? SYMBOL_FOUND : is_known ? SYMBOL_TOO_OLD : SYMBOL_NOT_FOUND;
        return is_known ? CU_OK : CU_NOT_FOUND;
}

/* Drivers before 12.0 lack this function: a library can imitate that only so far at run time. */
cu_result cuGetProcAddress_v2(
        const char *name, void **pfn, int version, unsigned long long flags, int *status)
{
        cu_result r = fake_enter("cuGetProcAddress_v2", 0);
        int ignored;

        if (r != CU_OK)
                return r;
        if (fake_version() < 12000)
                return CU_NOT_SUPPORTED;
        return find_symbol(name, pfn, version, status ? status : &ignored);
}

cu_result cuGetProcAddress(const char *name, void **pfn, int version, unsigned long long flags)
{
        cu_result r = fake_enter("cuGetProcAddress", 0);
        int status;

        if (r != CU_OK)
                return r;
        if (fake_version() < 11030)
                return CU_NOT_SUPPORTED;
        r = find_symbol(name, pfn, version, &status);
        return r == CU_OK && !*pfn ? CU_NOT_FOUND : r;
}

/* The end */

void leak_add(char *text, size_t size, unsigned n, const char *what)
{
        size_t len = strlen(text);

        if (n)
                snprintf(text + len, size - len, "%s%u %s%s", len ? ", " : "", n, what,
                        n == 1 ? "" : "s");
}

static void find_leaks(char *text, size_t size)
{
        unsigned retained = 0, events = 0;

        for (unsigned i = 0; i < fake.devices; i++) {
                retained += fake.contexts[i].retained;
                events += fake.contexts[i].events;
        }
        memory_leaks(text, size);
        leak_add(text, size, stream_count(), "stream");
        leak_add(text, size, events, "event");
        leak_add(text, size, host_count(), "host registration");
        leak_add(text, size, module_count(), "module");
        leak_add(text, size, retained, "retained primary context");
        leak_add(text, size, fake_stack_depth(), "pushed context");
}

static bool is_lenient(void)
{
        const char *lenient = getenv("FAKECUDA_LENIENT");
        bool is_broken = false;

        for (unsigned i = 0; i < fake.devices; i++)
                is_broken |= fake.contexts[i].broken != CU_OK;
        return fake.gave_up_a_free || is_broken || (lenient && strstr(lenient, "exit"));
}

__attribute__((destructor)) static void at_exit(void)
{
        char text[512] = "";

        if (!fake.pid || fake.pid != getpid())
                return;
        this_call = "exit";
        fake_lock();
        if (!is_lenient())
                find_leaks(text, sizeof(text));
        fake_unlock();
        if (*text)
                fake_die("leaked %s", text);
}
