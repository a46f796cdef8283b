/*
 * Base of every integration test: a private kvleased, real workers, kvleasectl. At the end it
 * checks: no leaked descriptor, no leaked page, `check` clean, usage exact, exit status 0. Asserts
 * by cmocka; a failing test kills its processes.
 */
#ifndef KVL_TEST_HARNESS_H
#define KVL_TEST_HARNESS_H

#include <jansson.h>

#include "tests/integration/private-daemon.h"
#include "tests/integration/worker.h"
#include "tests/unit/test-run.h"

#define HARNESS_MAX_WORKERS 512

/* The most connections of the daemon to one node of a shared store: the option `connections`, and
 * one for small operations. */
#define HARNESS_NODE_CONNECTIONS 3

struct worker {
        struct harness *harness;
        pid_t pid;  /* 0: none */
        int in;     /* its stdin */
        FILE *out;  /* its stdout */
        char *line; /* last answer */
        size_t line_size;
        int code;         /* number the last answer began with */
        const char *rest; /* the rest of the line, borrowed until the next answer */
};

struct harness {
        struct private_daemon daemon;
        struct worker workers[HARNESS_MAX_WORKERS];
        int daemon_fds; /* after READY, before the first client */
        int own_fds;
        unsigned n_tenants;   /* then */
        uint64_t violations;  /* of peers that the test expects */
        uint64_t stolen_msec; /* proc_stolen_msec() then */
        int n_connections;    /* the most connections of the daemon to others, at any moment */
        bool plays_others;    /* harness_play_others() */
        bool driver_keeps;    /* its context is broken, so that the driver gives nothing back */
};

/* Begins a test with a daemon of its own: options (static, NULL: the defaults). */
#define HARNESS_TEST(fn, options)                               \
        static void fn##_with(struct harness *h);               \
        TEST_WITH(fn, harness_setup, harness_teardown, options) \
        {                                                       \
                fn##_with(*state);                              \
                harness_stop_workers(*state);                   \
        }                                                       \
        static void fn##_with(struct harness *h)

/* Ends the workers that run still. */
void harness_stop_workers(struct harness *h);

/* A test's row, for a file that lists its tests in a table. */
#define harness_test(fn, options) \
        cmocka_unit_test_prestate_setup_teardown(fn, harness_setup, harness_teardown, options)
int harness_setup(void **state);
int harness_teardown(void **state);

/*
 * Lets processes of other users take part, until the test's end. program_ctl() and program_worker()
 * are then copies in the daemon's directory, which every user may enter. Skips the test without
 * root.
 */
void harness_play_others(struct harness *h);

/* Do clients of this run share memory with the daemon? Not with KVLEASE_NO_SHM=1. */
bool harness_shares(void);

/* Starts a stopped daemon, and counts its first descriptors. */
void harness_start(struct harness *h);

/* Stops the daemon (exit status 0) and starts it again. */
void harness_restart(struct harness *h);

/* Checks what every test's end demands; also usable between two steps of a test. */
void harness_assert_settled(struct harness *h);

/* ---- kvleasectl ---- */

/* Runs `kvleasectl --json WORDS...`, words separated by spaces; it must exit with 0. Returns the
 * reply, owned. */
json_t *ctl_json(struct harness *h, const char *words);

/* Runs kvleasectl and returns its exit status; *ret_output owned. */
int ctl_run(struct harness *h, const char *words, struct proc_output *ret_output);

/* Runs kvleasectl; fails unless it exits with 0. */
void ctl(struct harness *h, const char *words);

/* Skips the test if memory ends with its daemon, like that of cudaipc (test_gpu_restart.c). */
void harness_needs_kept_memory(void);

/* No iteration of the daemon's loop took longer than HARNESS_TURN_MSEC. Time that the hypervisor
 * has taken since the start is allowed on top. Checks nothing under valgrind and sanitizers. */
#define HARNESS_TURN_MSEC 20
void harness_assert_prompt(struct harness *h);

/* A number of `kvleasectl status`. */
uint64_t ctl_status(struct harness *h, const char *name);

/* Waits until the number is `value`, at most 10 s. */
void ctl_wait_status(struct harness *h, const char *name, uint64_t value);

/* Waits until `n_readings` readings in a row, 10 ms and more apart, are equal. No page is then
 * being demoted, moved up, or found on disk after a start. At most 1,000 readings. */
void ctl_wait_still(struct harness *h, unsigned n_readings);
#define STILL_BRIEFLY 5  /* between texts */
#define STILL_LOADED  25 /* where a start reads the disk in the background */

/* A number of a tenant. */
uint64_t ctl_tenant(struct harness *h, const char *tenant, const char *name);

/* The list in a reply of a list verb; borrowed. */
json_t *ctl_list(json_t *reply, const char *name);

/* ---- workers ---- */

/* Starts a worker program without connecting it. */
struct worker *worker_spawn(struct harness *h);

/* Starts another program that understands the worker's lines. */
struct worker *worker_spawn_as(struct harness *h, const char *program);

/* Starts a program with more environment (ends with NULL; may be NULL). */
struct worker *worker_spawn_with(struct harness *h, const char *program, const char *const *env);

/* Connects a worker to the tenant's socket and opens namespace `ns` of `n_planes`. */
void worker_attach(struct worker *w, const char *tenant, const char *ns, unsigned n_planes);

/* Starts a worker, connected to the tenant's socket, with namespace `ns` of `n_planes` open. */
struct worker *worker_start(
        struct harness *h, const char *tenant, const char *ns, unsigned n_planes);

/* Sends a line and waits for the answer; returns its code. */
int worker_ask(struct worker *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* worker_ask(); fails unless the code is 0. Returns the rest of the answer. */
const char *worker_tell(struct worker *w, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

/* Sends a line and doesn't wait. */
void worker_say(struct worker *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Waits for the answer to the last line. False: the worker is dead, or too slow; may be called
 * again. */
bool worker_answers(struct worker *w, int timeout_msec);

/* Parses numbers in the rest of the last answer; returns how many. */
unsigned worker_numbers(struct worker *w, uint32_t *ret_numbers, unsigned max);

/* Leases n pages and publishes them as chain:0..n-1, page i filled with 1000 * chain + i. Keeps the
 * pins. */
void worker_publish_chain(struct worker *w, unsigned chain, unsigned n, uint32_t *ret_pages);

/* Ends the worker: it says BYE and exits with 0. */
void worker_stop(struct worker *w);

/* Waits for the worker to kill itself. */
void worker_wait_killed(struct worker *w);

/* Not for a worker that was waited for. */
bool worker_is_running(const struct worker *w);

/* SIGKILL. */
void worker_kill(struct worker *w);

/* Starts a load worker (worker-load.c); n_ops 0: for ever. Its output is inherited. */
struct worker *worker_start_load(
        struct harness *h, const char *tenant, uint64_t seed, uint64_t n_ops, unsigned n_planes);

/* Starts a program of worker.h: "load", "serve", "read", "flight" or "witness"; job.socket is
 * ignored. */
struct worker *worker_start_job(
        struct harness *h, const char *what, const char *tenant, struct worker_job job);

/* Starts the job in another program, with more environment. */
struct worker *worker_start_job_as(struct harness *h, const char *program, const char *const *env,
        const char *what, const char *tenant, struct worker_job job);

/* Waits for a load worker's end; its exit status must be 0. */
void worker_wait(struct worker *w);

/* Seed of the run: $KVL_SEED, else random; printed once. */
uint64_t harness_seed(void);

#endif
