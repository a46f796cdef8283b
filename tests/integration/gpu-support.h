/* Helpers of the GPU tests. */
#ifndef KVL_TEST_GPU_SUPPORT_H
#define KVL_TEST_GPU_SUPPORT_H

#include "tests/integration/harness.h"

/* Skips a test that injects faults if the device is a real one. */
void gpu_needs_double(void);

/* Injects faults into the daemon's driver from now on (private_daemon_inject()); "": none. */
void gpu_inject(struct harness *h, const char *lines);

/* The daemon's log so far has these words; else fails and shows the log. */
void gpu_assert_logged(struct harness *h, const char *words);

/* The only device's "state" in `kvleasectl devices`, or another member by name. Returned owned. */
char *gpu_device_text(struct harness *h, const char *member);

/* Waits for this state, at most 10 s. */
void gpu_wait_state(struct harness *h, const char *state);

/* Starts a worker with more environment, not connected. */
struct worker *gpu_spawn(struct harness *h, const char *const *env);

/* The rest of the last answer must have these words. */
void gpu_assert_says(const struct worker *w, const char *words);

#endif
