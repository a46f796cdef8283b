/* Modules are shared objects, kernels their functions (kernel.h). */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "tests/fakecuda/fake.h"
#include "tests/fakecuda/kernel.h"

#define PATH_BYTES        4096
#define THREADS_PER_BLOCK 1024 /* the limit of every GPU so far */

struct CUmod_st {
        struct list_link link, functions;
        cu_context context;
        void *object;
        unsigned launches; /* not run yet */
};

struct CUfunc_st {
        struct list_link link;
        cu_module module;
        fake_kernel_fn fn;
        const size_t *parameter_bytes;
};

struct launch {
        cu_function function;
        struct fake_launch public;
        void **parameters; /* NULL at the end */
};

static struct list_link modules = {&modules, &modules};

unsigned module_count(void)
{
        unsigned n = 0;

        for (struct list_link *l = modules.next; l != &modules; l = l->next)
                n++;
        return n;
}

/* Locked. */
static cu_module module_find(cu_module module)
{
        list_for_each (m, &modules, struct CUmod_st, link) {
                if (m == module)
                        return m;
        }
        fake_die("%p is no module (unloaded already?)", (void *)module);
}

static void *open_image(const char *image)
{
        char path[PATH_BYTES];
        const char *from, *end;

        if (strncmp(image, FAKE_MODULE_MAGIC, strlen(FAKE_MODULE_MAGIC)) != 0)
                return NULL;
        from = image + strlen(FAKE_MODULE_MAGIC);
        end = strchr(from, '\n');
        if (!end || end - from >= (ptrdiff_t)sizeof(path))
                return NULL;
        memcpy(path, from, (size_t)(end - from));
        path[end - from] = '\0';
        return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

cu_result cuModuleLoadData(cu_module *module, const void *image)
{
        cu_result r = fake_enter("cuModuleLoadData", ENTER_BOUND);
        struct CUmod_st *m;

        if (r != CU_OK)
                return r;
        m = calloc(1, sizeof(*m));
        if (!m)
                return CU_OUT_OF_MEMORY;
        m->object = open_image(image);
        if (!m->object) {
                free(m);
                return CU_INVALID_IMAGE;
        }
        m->context = fake_current();
        list_init(&m->functions);
        fake_lock();
        m->context->modules++;
        list_append(&modules, &m->link);
        fake_unlock();
        *module = m;
        return CU_OK;
}

cu_result cuModuleUnload(cu_module module)
{
        cu_result r = fake_enter("cuModuleUnload", ENTER_BOUND | ENTER_FREES);
        cu_module m;

        if (r != CU_OK)
                return r;
        fake_lock();
        m = module_find(module);
        if (m->launches)
                fake_die("%u of its kernels aren't done", m->launches);
        list_for_each_safe (f, &m->functions, struct CUfunc_st, link)
                free(f);
        list_remove(&m->link);
        m->context->modules--;
        fake_unlock();
        dlclose(m->object);
        free(m);
        return CU_OK;
}

cu_result cuModuleGetFunction(cu_function *function, cu_module module, const char *name)
{
        cu_result r = fake_enter("cuModuleGetFunction", ENTER_BOUND);
        char symbol[256];
        struct CUfunc_st *f;
        void *fn;

        if (r != CU_OK)
                return r;
        f = calloc(1, sizeof(*f));
        if (!f)
                return CU_OUT_OF_MEMORY;
        snprintf(symbol, sizeof(symbol), "%s_parameter_bytes", name);
        fake_lock();
        f->module = module_find(module);
        fn = dlsym(f->module->object, name);
        f->parameter_bytes = dlsym(f->module->object, symbol);
        if (fn && f->parameter_bytes) {
                memcpy(&f->fn, &fn, sizeof(f->fn));
                list_append(&f->module->functions, &f->link);
                *function = f;
        } else {
                free(f);
                r = CU_NOT_FOUND;
        }
        fake_unlock();
        return r;
}

/* Kernels */

static char *host_of(uint64_t at, size_t bytes, bool writes)
{
        cu_context context;
        struct work *w = stream_running(&context);
        char *host;

        if (!w)
                fake_die("host_of() is for the thread that runs the kernel");
        fake_lock();
        host = fake_pin(&w->pins, at, bytes, context->device, writes, "a kernel");
        fake_unlock();
        return host;
}

static void *host_of_mutable(uint64_t at, size_t bytes)
{
        return host_of(at, bytes, true);
}

static const void *host_of_const(uint64_t at, size_t bytes)
{
        return host_of(at, bytes, false);
}

void launch_run(struct launch *l)
{
        l->function->fn(&l->public, l->parameters);
}

void launch_free(struct launch *l)
{
        l->function->module->launches--;
        for (size_t i = 0; l->parameters[i]; i++)
                free(l->parameters[i]);
        free(l->parameters);
        free(l);
}

static void **copy_parameters(const size_t *bytes, void **parameters)
{
        size_t n = 0;
        void **copy;

        while (bytes[n])
                n++;
        copy = calloc(n + 1, sizeof(*copy));
        for (size_t i = 0; copy && i < n; i++) {
                copy[i] = malloc(bytes[i]);
                if (!copy[i])
                        fake_die("out of the host's memory");
                memcpy(copy[i], parameters[i], bytes[i]);
        }
        if (!copy)
                fake_die("out of the host's memory");
        return copy;
}

/* Locked. */
static void check_function(cu_function function)
{
        list_for_each (m, &modules, struct CUmod_st, link) {
                list_for_each (f, &m->functions, struct CUfunc_st, link) {
                        if (f != function)
                                continue;
                        if (m->context != fake_current())
                                fake_die("the kernel is of another context than the current one");
                        return;
                }
        }
        fake_die("%p is no function of a loaded module", (void *)function);
}

cu_result cuLaunchKernel(cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
        cu_stream stream, void **parameters, void **extra)
{
        cu_result r = fake_enter("cuLaunchKernel", ENTER_BOUND);
        struct launch *l;
        struct work *w;

        if (r != CU_OK)
                return r;
        if (extra)
                fake_die("extra is not supported");
        if (!grid_x || !grid_y || !grid_z || !block_x || !block_y || !block_z ||
                (uint64_t)block_x * block_y * block_z > THREADS_PER_BLOCK)
                return CU_INVALID_VALUE;
        l = calloc(1, sizeof(*l));
        w = calloc(1, sizeof(*w));
        if (!l || !w)
                fake_die("out of the host's memory");
        l->function = function;
        l->public = (struct fake_launch){.grid = {grid_x, grid_y, grid_z},
                .block = {block_x, block_y, block_z},
                .host_of = host_of_mutable,
                .host_of_const = host_of_const};
        w->kind = WORK_KERNEL;
        w->launch = l;
        fake_lock();
        check_function(function);
        l->parameters = copy_parameters(function->parameter_bytes, parameters);
        function->module->launches++;
        stream_add(stream_find(stream), w);
        fake_unlock();
        return CU_OK;
}
