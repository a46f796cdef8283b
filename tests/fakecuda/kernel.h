/*
 * A "kernel" of the simulated driver: a function in a shared object, run by the CPU in the stream's
 * order. The image for cuModuleLoadData() is the text "FAKECUDA-MODULE\n", the path of the
 * shared object, "\n".
 *
 * For each kernel NAME the object exports
 *   void NAME(const struct fake_launch *l, void **parameters);
 *   const size_t NAME_parameter_bytes[] = {8, 4, 0};
 * parameters[i] points to a copy of the i-th value, made at the launch.
 */
#ifndef KVL_TESTS_FAKECUDA_KERNEL_H
#define KVL_TESTS_FAKECUDA_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#define FAKE_MODULE_MAGIC "FAKECUDA-MODULE\n"

struct fake_launch {
        unsigned grid[3], block[3];
        /*
         * The CPU's address of `bytes` of device memory, valid until the kernel returns. Aborts if
         * the range isn't mapped, or the kernel's device has no access. Only for the thread that
         * runs the kernel. host_of() needs read and write access, host_of_const() read access.
         */
        void *(*host_of)(uint64_t device_address, size_t bytes);
        const void *(*host_of_const)(uint64_t device_address, size_t bytes);
};

typedef void (*fake_kernel_fn)(const struct fake_launch *l, void **parameters);

#endif
