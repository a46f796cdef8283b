#include "client/llama/symbols.h"

#include "client/llama/error.h"

#include <dlfcn.h>
#include <errno.h>

int llama_functions_find(const char *library, struct llama_functions *ret, void **ret_handle)
{
        void *handle = library ? dlopen(library, RTLD_NOW | RTLD_NOLOAD) : NULL;
        void *in = library ? handle : RTLD_DEFAULT;
        const char *missing = NULL;

        if (library && !handle)
                return fail(-ENOENT,
                        "this process hasn't loaded %s: give the path of the libllama in use",
                        library);
#define X(type, name, arguments)                                  \
        ret->name = (type(*) arguments)dlsym(in, "llama_" #name); \
        if (!ret->name)                                           \
                missing = missing ? missing : "llama_" #name;
        LLAMA_FUNCTIONS(X)
#undef X
        ret->version = (const char *(*)(void))dlsym(in, "llama_version");
        if (missing) {
                if (handle)
                        dlclose(handle);
                return fail(-ENOENT,
                        "%s has no function %s: it is too old for kvlease, or not libllama",
                        library ? library : "this process", missing);
        }
        *ret_handle = handle;
        return 0;
}
