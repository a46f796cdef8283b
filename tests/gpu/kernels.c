/* Running kernels.ptx. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/fakecuda/kernel.h"
#include "tests/gpu/facts.h"

#define MAX_ARGUMENTS 4

static const char kernels[] =
#include "kernels.inc"
        ;

bool gpu_has_kernels(void)
{
        return the_device.capabilities & CUDA_HAS_KERNEL &&
               (!the_device.is_double || getenv("KVL_GPU_FAKE_KERNELS"));
}

/* The simulated driver's kernels are functions in a shared object (tests/fakecuda/kernel.h). */
static void load_kernels(struct gpu *g)
{
        char fake[4096];

        snprintf(fake, sizeof(fake), "%s%s\n", FAKE_MODULE_MAGIC, getenv("KVL_GPU_FAKE_KERNELS"));
        need(g->c->ModuleLoadData(&g->module, the_device.is_double ? fake : kernels),
                "cuModuleLoadData");
}

void gpu_launch(struct gpu *g, cu_stream stream, const char *kernel, unsigned blocks,
        unsigned threads, const uint64_t *args, unsigned n_args)
{
        cu_function function;
        void *pointers[MAX_ARGUMENTS];

        if (!g->module)
                load_kernels(g);
        need(g->c->ModuleGetFunction(&function, g->module, kernel), "cuModuleGetFunction");
        for (unsigned i = 0; i < n_args && i < MAX_ARGUMENTS; ++i)
                pointers[i] = (void *)&args[i];
        need(g->c->LaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, pointers, NULL),
                "cuLaunchKernel");
}
