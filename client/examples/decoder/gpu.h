/*
 * K, V and attention on a GPU: pages are in its memory, which only the kernels of attention.cu
 * access. The rest of the model stays on the CPU, so q, k, v and the result of attention are copied
 * for each layer: simple, not fast.
 *
 * All work is put on one stream in order; append() and attend() return when it is done. The thread
 * that calls gpu_new() makes all calls. It has the device's primary context current until
 * ops->free().
 */
#pragma once

#include <stdbool.h>

#include "client/examples/decoder/model.h"

struct gpu_options {
        const struct model_shape *shape;
        uint32_t page_tokens, max_pages;
        unsigned char *const *tensors; /* GPU addresses: struct model_kv */
        const char *device;            /* UUID, "GPU-..." or "MIG-..." */
        /* File with the compiled kernels (PTX, cubin or fatbin). NULL: $KVLEASE_DECODER_KERNELS,
         * else the built-in ones. */
        const char *kernels;
};

/* Returns 0: *ret_kv is owned (ops->free()). -ENODEV: no driver, or no such device; -ENOEXEC: no
 * kernels; -ENOMEM; -errno. gpu_error() says why. */
int gpu_new(const struct gpu_options *options, struct model_kv **ret_kv);

/* Allocates device memory until ops->free(): the oracle's pages. At most once. Returns 0; -ENOMEM;
 * -EIO. */
int gpu_alloc(struct model_kv *kv, uint64_t bytes, unsigned char **ret_address);

/* Returns its stream, a CUstream. Borrowed. */
void *gpu_stream(struct model_kv *kv);

/* Waits until all work on the stream is done. Returns 0; -EIO. */
int gpu_wait(struct model_kv *kv);

/* Returns true if kernels were built in: options.kernels isn't needed. */
bool gpu_has_kernels(void);

/* Returns a sentence for the last failure here; "" if there was none. Static. */
const char *gpu_error(void);
