/* Helpers of the GPU tests. */
#ifndef KVL_TEST_GPU_SUPPORT_H
#define KVL_TEST_GPU_SUPPORT_H

#include "tests/integration/harness.h"

/* Ends the test as skipped where it injects faults and the device is a real one. */
void gpu_needs_double(void);

/* Faults of the daemon's driver from now on (private_daemon_inject()); "": none. */
void gpu_inject(struct harness *h, const char *lines);

/* The daemon's log so far has these words; fails with the log where not. */
void gpu_assert_logged(struct harness *h, const char *words);

/* The only device's "state" in `kvleasectl devices`; another member by name. Returned owned. */
char *gpu_device_text(struct harness *h, const char *member);

/* Waits until it is that, at most 10 s. */
void gpu_wait_state(struct harness *h, const char *state);

/* Worker with more environment, not connected. */
struct worker *gpu_spawn(struct harness *h, const char *const *env);

/* The rest of the last answer has these words. */
void gpu_assert_says(const struct worker *w, const char *words);

#endif
