#include "tests/gpu/more-calls.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "gpu/cuda_load.h"

typedef cu_result (*find_fn)(
        const char *name, void **address, int version, uint64_t flags, int *status);
typedef cu_result (*find_old_fn)(const char *name, void **address, int version, uint64_t flags);

static void *find(void *library, const char *name, int version)
{
        find_fn fn = (find_fn)dlsym(library, "cuGetProcAddress_v2");
        find_old_fn old = (find_old_fn)dlsym(library, "cuGetProcAddress");
        cu_result r = CU_NOT_FOUND;
        void *address = NULL;

        if (fn)
                r = fn(name, &address, version, 0, NULL);
        else if (old)
                r = old(name, &address, version, 0);
        return r == CU_OK ? address : NULL;
}

void more_calls_find(struct more_calls *ret_calls)
{
        void *library = dlopen(CUDA_LIBRARY, RTLD_NOW | RTLD_NOLOAD), *address;

        *ret_calls = (struct more_calls){0};
        if (!library)
                return;
#define MORE_FIND(field, name, version, parameters) \
        address = find(library, name, version);     \
        memcpy(&ret_calls->field, &address, sizeof(address));
        MORE_CALLS(MORE_FIND)
#undef MORE_FIND
        dlclose(library);
}
