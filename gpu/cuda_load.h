/*
 * The CUDA driver, found at run time: one binary runs with and without it. Loaded once per process
 * (libcuda.so.1, never libcuda.so, which may be the toolkit's stub) and never unloaded; a child of
 * a fork must not use it.
 *
 * Threads: cuda_get() from any, the calls as the driver allows (any thread, where the right context
 * is current).
 */
#ifndef KVL_GPU_CUDA_LOAD_H
#define KVL_GPU_CUDA_LOAD_H

#include <stdbool.h>
#include <stddef.h>

#include "gpu/cuda_decl.h"

#define CUDA_LIBRARY     "libcuda.so.1"
#define CUDA_MIN_VERSION 11030 /* the first with cuGetProcAddress() */
#define CUDA_WHY_BYTES   256

/* Complete groups of functions (cuda_calls.h). BASE always is. */
enum cuda_capability {
        CUDA_HAS_VMM = 1 << 0,
        CUDA_HAS_IPC = 1 << 1,
        CUDA_HAS_BATCH = 1 << 2,  /* with the index of the failed copy: 12.8 */
        CUDA_HAS_BATCH2 = 1 << 3, /* without: 13.0 */
        CUDA_HAS_UUID2 = 1 << 4,
        CUDA_HAS_KERNEL = 1 << 5,
};

struct cuda {
        int version;           /* the driver's, 13000 for 13.0 */
        unsigned capabilities; /* enum cuda_capability */
#define CUDA_CALL(group, field, name, version, exported, parameters) cu_result(*field) parameters;
#include "gpu/cuda_calls.h"
#undef CUDA_CALL
};

/*
 * Loads and initialises the driver at the first call; later calls return the same, except -EAGAIN,
 * which is tried again. Returns 0: *ret_cuda is borrowed forever. Otherwise `why` is one sentence
 * with cause and remedy, and: -ENODEV: no driver here, or no device (not an error on a machine
 * without a GPU); -ELIBBAD: a stub, too old, lacks a required function, or doesn't match the
 * kernel's module; -EAGAIN: the fabric manager isn't ready; -EIO: another error of the driver;
 * -ECHILD: this is a child of the process that loaded it. Blocks in the driver.
 */
int cuda_get(const struct cuda **ret_cuda, char why[CUDA_WHY_BYTES]);

/*
 * The -errno for a result: 0; -ENOMEM out of memory; -ENODEV no such device; -EINVAL a wrong
 * argument; -EBUSY not ready (cuStreamQuery, cuEventQuery); -EOPNOTSUPP; -EAGAIN system not ready;
 * -ELIBBAD driver mismatch or stub; -ENXIO context or device broken (ECC, illegal address, launch
 * failure, device lost); -EACCES not permitted; -EIO the rest.
 */
int cuda_errno(cu_result result);

/* True for results that break this context for good (cuda_errno() is -ENXIO). */
bool cuda_is_fatal(cu_result result);

/* "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (2)". Returns buf. */
char *cuda_describe(const char *call, cu_result result, char *buf, size_t size);

#endif
