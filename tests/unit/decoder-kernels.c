/*
 * The decoder's kernels as the driver double runs them: the source that nvcc compiles, one thread
 * after the other. Built as a module for the double, and into the unit test, which plays it.
 */
#include "tests/fakecuda/kernel.h"

struct emulated_index {
        unsigned x;
};

static _Thread_local struct emulated_index blockIdx, blockDim, threadIdx;
static _Thread_local const struct fake_launch *launch;

/* A place in the source where an address is translated remembers the last one of this launch. */
struct site {
        uint64_t launch_no, address;
        size_t bytes;
        void *at;
};

static _Thread_local uint64_t launch_no;

static inline void *translate(struct site *s, uint64_t address, size_t bytes)
{
        if (s->launch_no != launch_no || s->address != address || s->bytes != bytes)
                *s = (struct site){launch_no, address, bytes, launch->host_of(address, bytes)};
        return s->at;
}

static inline const void *translate_const(struct site *s, uint64_t address, size_t bytes)
{
        if (s->launch_no != launch_no || s->address != address || s->bytes != bytes)
                *s = (struct site){launch_no, address, bytes,
                        (void *)(uintptr_t)launch->host_of_const(address, bytes)};
        return s->at;
}

#define EXPORT __attribute__((visibility("default")))

/* The last threads first: nothing may depend on their order. */
#define KERNEL(name, type)                                                          \
        static inline void name##_thread(struct type a);                            \
        EXPORT void name(const struct fake_launch *l, void **parameters);           \
        EXPORT extern const size_t name##_parameter_bytes[];                        \
        const size_t name##_parameter_bytes[] = {sizeof(struct type), 0};           \
        void name(const struct fake_launch *l, void **parameters)                   \
        {                                                                           \
                launch = l;                                                         \
                launch_no++;                                                        \
                blockDim.x = l->block[0];                                           \
                for (blockIdx.x = l->grid[0]; blockIdx.x-- > 0;)                    \
                        for (threadIdx.x = l->block[0]; threadIdx.x-- > 0;)         \
                                name##_thread(*(const struct type *)parameters[0]); \
        }                                                                           \
        static inline void name##_thread(struct type a)

#define AT(type, address, n)                                             \
        ({                                                               \
                static _Thread_local struct site site;                   \
                (type *)translate(&site, (address), (n) * sizeof(type)); \
        })
#define READ(type, address, n)                                                       \
        ({                                                                           \
                static _Thread_local struct site site;                               \
                (const type *)translate_const(&site, (address), (n) * sizeof(type)); \
        })

/* NOLINTNEXTLINE(bugprone-suspicious-include): it is C, too. */
#include "client/examples/decoder/attention.cu"
