/* The clock. All other code takes the time as a parameter. */
#ifndef KVL_BASE_CLOCK_H
#define KVL_BASE_CLOCK_H

#include <stdint.h>

#define NSEC_PER_SEC  UINT64_C(1000000000)
#define NSEC_PER_MSEC UINT64_C(1000000)
#define NSEC_PER_USEC UINT64_C(1000)

/* CLOCK_MONOTONIC in nanoseconds. */
uint64_t clock_now_nsec(void);

#endif
