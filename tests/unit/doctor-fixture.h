/* A host below a directory, for the checks of kvleasectl doctor: files as a test writes them. */
#ifndef KVL_TESTS_DOCTOR_FIXTURE_H
#define KVL_TESTS_DOCTOR_FIXTURE_H

#include "client/ctl/doctor.h"

struct host {
        char dir[256];
        struct doctor d; /* d.root is dir */
};

/* A test with a host that has no files: struct host * in *state. */
#define HOST_TEST(fn) TEST_WITH(fn, host_setup, host_teardown, NULL)
int host_setup(void **state);
int host_teardown(void **state);

/* Writes a file, with the directories above it; `format` is its text. */
KVL_PRINTF(3, 4) void host_write(struct host *h, const char *path, const char *format, ...);

/* Path below the root; static storage, until the next call. */
const char *host_path(const struct host *h, const char *path);

/* [device ...] and the like, as the configuration has it; replaces what was there. */
void host_configure(struct host *h, const char *text);

/* A daemon that is up, of process 42 and version KVLEASE_VERSION, without devices or tenants. */
void host_start_daemon(struct host *h);

/* Device of the daemon's or one below it. */
struct figures_device *host_add_device(struct host *h, const char *name, const char *tier,
        const char *backend, uint64_t budget_bytes);

/* A GPU of a driver that answers. */
struct driver_gpu *host_add_gpu(struct host *h, const char *name, uint64_t total_bytes);

/* A unit file of the service's name, read anew with its drop-ins. */
void host_write_unit(struct host *h, const char *text);

/*
 * Runs the check alone: one of its findings must be of that state, with `found` in what was found
 * and `remedy` in what is to be done (NULL: nothing is).
 */
void host_expect(struct host *h, const char *check, enum doctor_state state, const char *found,
        const char *remedy);

#endif
