/*
 * K, V and attention on a GPU: pages are its memory, which only the kernels of attention.cu reach.
 * The rest of the model stays on the CPU, so q, k, v and the result of attention are copied for
 * each layer: simple, not fast.
 *
 * One stream, on which everything is put in order; append() and attend() return when it is done.
 * The thread that calls gpu_new() has the device's primary context current until ops->free(), and
 * makes all calls.
 */
#pragma once

#include <stdbool.h>

#include "client/examples/decoder/model.h"

struct gpu_options {
        const struct model_shape *shape;
        uint32_t page_tokens, max_pages;
        unsigned char *const *tensors; /* addresses of the GPU: struct model_kv */
        const char *device;            /* UUID, "GPU-..." or "MIG-..." */
        /*
         * File with the compiled kernels (PTX, cubin or fatbin). NULL: $KVLEASE_DECODER_KERNELS,
         * else those that were built in.
         */
        const char *kernels;
};

/*
 * 0: *ret_kv is returned owned (ops->free()). -ENODEV: no driver, or no such device; -ENOEXEC: no
 * kernels; -ENOMEM; -errno. gpu_error() says why.
 */
int gpu_new(const struct gpu_options *options, struct model_kv **ret_kv);

/* Memory of the device until ops->free(): the oracle's pages. At most one. 0; -ENOMEM; -EIO. */
int gpu_alloc(struct model_kv *kv, uint64_t bytes, unsigned char **ret_address);

/* Its stream, a CUstream. Borrowed. */
void *gpu_stream(struct model_kv *kv);

/* Waits until everything on the stream is done. 0; -EIO. */
int gpu_wait(struct model_kv *kv);

/* True where kernels were built in: options.kernels isn't needed. */
bool gpu_has_kernels(void);

/* A sentence for what failed here last; "" where nothing has. Static. */
const char *gpu_error(void);
