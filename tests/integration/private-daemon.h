/*
 * A kvleased of one's own in a temporary directory, for tests and benchmarks: configuration,
 * runtime and state directory, log. Nothing here asserts; everything returns 0 or -errno.
 *
 *   init (directory, configuration) -> start (READY seen) -> stop (exit status) -> start ... ->
 * deinit
 *
 * With KVL_VALGRIND=1 in the environment the daemon runs under valgrind, which then decides its
 * exit status. One thread.
 */
#ifndef KVL_TEST_PRIVATE_DAEMON_H
#define KVL_TEST_PRIVATE_DAEMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/fault-point.h"

#define PRIVATE_PATH_MAX 108

struct private_tenant {
        const char *name;
        const char *lines; /* of its section: "limit = 8MiB\n"; NULL: none */
};

/* Borrowed during private_daemon_init(). */
struct private_options {
        const char *daemon_lines; /* more lines of [daemon]; NULL: none */
        const char *device_lines; /* of the device's section; NULL: 256 MiB in extents of 2 MiB */
        const char *devices; /* of [daemon]; NULL: private_device(). The section is of the latter */
        const char *const
                *env;          /* more environment, ends with NULL; kept until deinit. NULL: none */
        bool has_control;      /* private_daemon_inject() is going to be called */
        bool is_kept;          /* under kvleased --keep, which starts it again when it dies */
        const char *keep_max;  /* "512": of its --keep-max; NULL: the default */
        bool has_faults;       /* the program with fault points; private_daemon_arm() */
        const char *disk_size; /* the device has a disk of that; NULL: none */
        const struct private_tenant *tenants; /* ends with a NULL name; NULL: one tenant "a" */
        pid_t net_pid; /* kvlease-exchange is in the network of this process (host-net.h); 0: here
                        */
};

struct private_daemon {
        char dir[PRIVATE_PATH_MAX]; /* "" while there is none */
        char config[PRIVATE_PATH_MAX], log[PRIVATE_PATH_MAX];
        char runtime[PRIVATE_PATH_MAX], state[PRIVATE_PATH_MAX];
        char admin[PRIVATE_PATH_MAX];    /* admin socket */
        char disk[PRIVATE_PATH_MAX];     /* the file of a disk, where it has one */
        char control[PRIVATE_PATH_MAX];  /* "" where nothing is injected */
        char exchange[PRIVATE_PATH_MAX]; /* socket of kvlease-exchange; "": there is no remote */
        pid_t exchange_pid;              /* started with the daemon, until deinit; 0: none runs */
        bool is_kept, has_faults;
        const char *keep_max;
        struct fault_table *faults; /* NULL without fault points */
        const char *const *env;
        pid_t net_pid; /* as private_options has it */
        pid_t pid;     /* 0: not running. The keeper's pid with `--keep` */
        int status;    /* as of waitpid(), after -ECHILD */
        int notify_fd; /* -1: none */
};

int private_daemon_init(struct private_daemon *d, const struct private_options *o);

/* Writes the configuration again, for reloads. */
int private_daemon_configure(struct private_daemon *d, const struct private_options *o);

/* Starts it and waits for READY. -ECHILD: it exited first (the log says why); -ETIMEDOUT. */
int private_daemon_start(struct private_daemon *d);

/* Starts kvlease-exchange, which private_daemon_start() does the first time. Waits until it
 * listens. Returns as that. */
int private_exchange_start(struct private_daemon *d);

/* SIGTERM and wait, as private_daemon_stop(). */
int private_exchange_stop(struct private_daemon *d, int *ret_status);

/* Waits for READY of a daemon that was started again. Returns like private_daemon_start(). */
int private_daemon_await(struct private_daemon *d);

/* Replaces all aims by this pass (from 1) of each of n fault points (base/fault-point.h), at most
 * FAULT_MAX_AIMS. Copies the names. The daemon dies only once it is armed. */
void private_daemon_aim(
        struct private_daemon *d, const char *const *points, size_t n, unsigned pass);

/* Arms: SIGKILL at the first aim that is hit from now on, once; the other aims stay. */
void private_daemon_arm(struct private_daemon *d);

/* Removes all aims. Returns false if it wasn't armed, since it has died at a point. */
bool private_daemon_disarm(struct private_daemon *d);

/* Has it died at a point since it was armed? That aim is removed. */
bool private_daemon_has_died(const struct private_daemon *d);

/* Is number i still aimed at? */
bool private_daemon_is_aimed_at(const struct private_daemon *d, size_t i);

/* SIGTERM and wait; *ret_status is waitpid()'s. -ETIMEDOUT: it had to be killed. */
int private_daemon_stop(struct private_daemon *d, int *ret_status);

/*
 * Injects faults into the daemon's driver from now on: lines of the simulated driver's
 * FAKECUDA_CONTROL, "fail=cuMemCreate:2\n" (tests/fakecuda). "": none. Not on a real device.
 * Returns 0 or -errno.
 */
int private_daemon_inject(struct private_daemon *d, const char *lines);

/* Kills its processes and removes the directory. */
void private_daemon_deinit(struct private_daemon *d);

/* Path of a tenant's socket; into `buf` of PRIVATE_PATH_MAX bytes. */
char *private_daemon_socket(const struct private_daemon *d, const char *tenant, char *buf);

/* Copies the log to stderr, after a failed test. */
void private_daemon_show_log(const struct private_daemon *d);

/*
 * ---- the device that a run of the tests is on: $KVL_DEVICE -----------------------------------
 *
 * Unset or "host": memory of the host. "vmm", "cudaipc": a GPU, with that transport: the driver
 * double in $KVL_FAKECUDA_LIB; with KVL_DEVICE_REAL=1 the machine's own, $KVL_DEVICE_UUID or the
 * first.
 */

#define PRIVATE_FAKE_UUID "GPU-fa4ecada-0000-0000-0000-000000000000"

/* "host", "vmm", "cudaipc". */
const char *private_transport(void);

bool private_on_gpu(void);
bool private_on_real_gpu(void);

/* Are pages contiguous? */
bool private_is_contiguous(void);

/* The device's name: "host" or a UUID. */
const char *private_device(void);

/* Makes the simulated driver's state directory, one for this process. Sets it and the driver's path
 * in the environment of later processes. private_daemon_init() calls it. Returns 0 or -errno. */
int private_device_init(void);

/* ---- processes ------------------------------------------------------------------------------ */

/* Paths of our programs: $KVLEASED, $KVLEASED_FAULT, $KVLEASECTL, $KVL_WORKER, $KVL_WORKER_FAULT,
 * $KVLEASE_EXPORTER, $KVLEASE_EXCHANGE, $KVL_DECODER, $KVL_MANUAL, $KVL_SESSION, else where meson
 * built them. */
const char *program_daemon(void);
const char *program_daemon_fault(void); /* dies at fault points, as a worker does */
const char *program_ctl(void);
const char *program_worker(void);
const char *program_worker_fault(void); /* dies at fault points */
const char *program_exporter(void);
const char *program_exchange(void);
const char *program_decoder(void);
const char *program_manual(void);
const char *program_session(void);

/* Room for the longest command line of the tests, valgrind's words included. */
#define PROGRAM_ARGS_MAX 48

/* Copies argv, behind valgrind's words if KVL_VALGRIND is set. */
void program_wrap(const char *const *argv, const char *ret_argv[PROGRAM_ARGS_MAX]);

/* Standard files of a child of proc_spawn(); a member that is -1 is inherited. */
struct proc_files {
        int in, out, err;
};

/*
 * Starts argv[0] (a path, or a name in $PATH) with more environment (may be NULL). The child dies
 * with its parent. Returns its pid or -errno.
 */
pid_t proc_spawn(const char *const *argv, const char *const *env, struct proc_files files);

/* Runs a command to its end; output NUL-terminated, owned. 0; -ETIMEDOUT (it was killed); -errno.
 */
struct proc_output {
        int status; /* as of waitpid() */
        char *out, *err;
};
int proc_run(const char *const *argv, const char *const *env, int timeout_msec,
        struct proc_output *ret_output);
void proc_output_free(struct proc_output *o);

/* Waits for a child. Returns 0, or -ETIMEDOUT (it still runs). */
int proc_wait(pid_t pid, int timeout_msec, int *ret_status);

/* Number of a process' descriptors, or -errno. */
int proc_count_fds(pid_t pid);

/* Milliseconds that the hypervisor took from this machine's processors since the start, summed over
 * them. 0 if it doesn't report them. */
uint64_t proc_stolen_msec(void);

/* Does the kernel give memory files huge pages on request? Does it, or can a process make them of
 * memory that is there (gpu/host.c)? */
bool proc_has_huge_pages(void);
bool proc_can_make_huge_pages(void);

/* Does kvleased hold the descriptors that it reserves for administrators? It doesn't while one is
 * connected, and a moment after: daemon/server/peers/descriptors.h. */
bool proc_holds_reserve(pid_t pid);

/* A number of /proc/PID/status: "RssAnon" (KiB), "voluntary_ctxt_switches". -errno. */
int64_t proc_status_value(pid_t pid, const char *name);

bool private_under_valgrind(void);

/* Is a daemon's RssAnon its own memory, without that of a sanitizer's allocator or valgrind? */
bool private_measures_memory(void);

/* KVL_FULL=1: everything at the full numbers. */
bool private_full(void);

/* Small numbers are enough: the long run was on the host, and this isn't KVL_FULL. */
bool private_short(void);

void sleep_msec(unsigned msec);

/* Monotonic. */
uint64_t now_nsec(void);

#endif
