/*
 * A GPU for tests of the library: its memory is the process', its streams run when the test says
 * so, on a thread of their own as a driver's. device_open() is wrapped: any name but "host" opens
 * the one fake_gpu. Link with -Wl,--wrap=device_open.
 */
#ifndef KVL_TESTS_FAKE_GPU_H
#define KVL_TESTS_FAKE_GPU_H

#include <pthread.h>
#include <stdbool.h>

#include "gpu/device.h"

#define FAKE_GPU_NAME      "GPU-00000000-0000-0000-0000-000000000001"
#define FAKE_GPU_MAX_CALLS 64

struct fake_gpu_call {
        void *stream;
        void (*fn)(void *data);
        void *data;
};

struct fake_gpu {
        /* Set by the test before the device is opened. */
        enum device_transport transport;
        int open_error; /* what opening fails with, 0: it doesn't */
        const char *open_why;
        /* Counts of calls. */
        unsigned n_open, n_mapped, n_unmapped, n_waits, n_queries;
        void *waited_for; /* stream of the last wait */
        /* At any time. */
        int unmap_error;             /* what unmapping fails with */
        int create_error;            /* what making an extent fails with */
        void (*on_wait)(void *data); /* runs in a wait */
        void *on_wait_data;
        /* Streams. */
        pthread_mutex_t lock;
        bool is_broken;
        struct fake_gpu_call calls[FAKE_GPU_MAX_CALLS];
        unsigned n_calls, n_run; /* put; started to run */
        unsigned n_to_run;
        pthread_t thread;
};

extern struct fake_gpu fake_gpu;

/* Resets it; nothing of it may be open. */
void fake_gpu_reset(enum device_transport transport);

/* Runs the next n host functions in a thread of their own, and waits for it. */
void fake_gpu_run(unsigned n);

/* fake_gpu_run() in two steps: start doesn't wait. */
void fake_gpu_run_start(unsigned n);
void fake_gpu_run_join(void);

/* Nothing on any stream runs any more, nothing is mapped or copied. */
void fake_gpu_break(void);

#endif
