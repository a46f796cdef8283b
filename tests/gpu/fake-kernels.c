/* kernels.ptx for the simulated driver (tests/fakecuda/kernel.h): the same work by the CPU, to test
 * that the suite's programs run. poke() isn't here: the simulated driver aborts on it. */
#include <string.h>
#include <time.h>

#include "tests/fakecuda/kernel.h"

#define KERNEL(name, ...)                                                                        \
        __attribute__((visibility("default"))) extern const size_t name##_parameter_bytes[];     \
        const size_t name##_parameter_bytes[] = {__VA_ARGS__, 0};                                \
        __attribute__((visibility("default"))) void name(const struct fake_launch *l, void **p); \
        void name(const struct fake_launch *l, void **p)

static uint64_t argument(void **parameters, unsigned i)
{
        uint64_t value;

        memcpy(&value, parameters[i], sizeof(value));
        return value;
}

static uint64_t nsec_now(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

KERNEL(busy, 8)
{
        uint64_t nsec = argument(p, 0);
        struct timespec t = {(time_t)(nsec / 1000000000), (long)(nsec % 1000000000)};

        nanosleep(&t, NULL);
}

KERNEL(stamp, 8, 8)
{
        volatile uint64_t *at = l->host_of(argument(p, 0), 8);
        uint64_t end = nsec_now() + argument(p, 1);

        for (uint64_t count = 1; nsec_now() < end; ++count)
                *at = count;
}

KERNEL(touch, 8, 8, 8)
{
        uint64_t n = argument(p, 1);
        volatile uint64_t *at = l->host_of(argument(p, 0), n * 8);

        for (uint64_t i = 0; i < n; ++i)
                at[i] = at[i] + argument(p, 2);
}

KERNEL(copy, 8, 8, 8)
{
        uint64_t bytes = argument(p, 2) * 8;

        memcpy(l->host_of(argument(p, 0), bytes), l->host_of_const(argument(p, 1), bytes), bytes);
}
