/* "Kernels" for the double's own tests. */
#include <string.h>

#include "tests/fakecuda/kernel.h"

#define KERNEL(name)                                                                         \
        __attribute__((visibility("default"))) extern const size_t name##_parameter_bytes[]; \
        __attribute__((visibility("default"))) void name(                                    \
                const struct fake_launch *l, void **parameters)

/* n bytes at an address get a value. */
KERNEL(test_fill);
const size_t test_fill_parameter_bytes[] = {8, 4, 4, 0};

void test_fill(const struct fake_launch *l, void **parameters)
{
        uint32_t n = *(uint32_t *)parameters[1];

        memset(l->host_of(*(uint64_t *)parameters[0], n), (int)*(uint32_t *)parameters[2], n);
}
