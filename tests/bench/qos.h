/*
 * Shared by the parts of the benchmark `qos`. One daemon with host memory has a pinned tenant
 * "pinned" and QOS_DYNAMIC dynamic ones, "t0" and on. Competitors are processes that run in one of
 * two phases: dynamic tenants (LOADED), or as many burners, which don't know the daemon (ALONE).
 */
#ifndef KVL_BENCH_QOS_H
#define KVL_BENCH_QOS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "client/lib/kvlease.h"
#include "tests/bench/bench.h"
#include "tests/integration/private-daemon.h"

#define QOS_DYNAMIC      8
#define QOS_PAGE_BYTES   16384
#define QOS_EXTENT_BYTES (UINT64_C(2) << 20)
#define QOS_PAGE_TOKENS  16
#define QOS_TEXT         16 /* pages of a text, at most */

extern const unsigned qos_weights[QOS_DYNAMIC];

enum qos_phase { QOS_ALONE, QOS_LOADED, QOS_N_PHASES };

/* Shared with the competitors, mapped. */
struct qos_words {
        _Atomic int phase; /* phase that runs; QOS_N_PHASES: none */
        _Atomic bool failed;
        _Atomic unsigned n_ready, n_running[QOS_N_PHASES];
        _Atomic uint64_t n_steps[QOS_N_PHASES];  /* of all competitors of a kind */
        _Atomic uint64_t n_copied[QOS_N_PHASES]; /* pages */
        _Atomic uint64_t n_refused;              /* leases of dynamic tenants */
        /* A burner's work: CPU time of a step, and pages copied in 1000 steps. */
        _Atomic uint64_t step_nsec, copies_per_1000;
};

struct qos {
        struct private_daemon daemon;
        int cores[N_CORES];
        uint64_t budget, reserve; /* bytes */
        struct qos_words *words;
        pid_t pids[QOS_N_PHASES][QOS_DYNAMIC];
};

/* Bytes of the dynamic pool. */
static inline uint64_t qos_pool(const struct qos *q)
{
        return q->budget - q->reserve;
}

/* A dynamic tenant's max-min share in bytes if all want more. */
uint64_t qos_fair(const struct qos *q, unsigned tenant);

/* Connects to a tenant of `d`, with a namespace of QOS_PAGE_BYTES a page. Returns 0 or -errno, with
 * a message. */
int qos_connect(const struct private_daemon *d, const char *tenant, unsigned flags,
        struct kvl_conn **ret_conn, struct kvl_ns **ret_ns);

/* Runs `kvleasectl --json WORDS...`. Returns its output, owned; NULL after a message. */
json_t *qos_ctl(const struct private_daemon *d, const char *words);

/* A number of a tenant in the reply to "tenants list"; NAN: there is none. */
double qos_tenant(const json_t *reply, const char *tenant, const char *number);

/* ---- qos-load.c: the competitors ------------------------------------------------------------ */

/* Starts all competitors, parked. Returns 0 or -errno, with a message. */
int qos_load_start(struct qos *q);
void qos_load_stop(struct qos *q);

/* Lets the competitors of one phase run, and waits until all others are parked. Returns 0 or
 * -errno, with a message. */
int qos_load_switch(struct qos *q, int phase);

/* Work of a phase's competitors so far. */
struct qos_work {
        uint64_t at_nsec, n_steps, n_copied;
};
struct qos_work qos_load_work(const struct qos *q, enum qos_phase phase);

/* From now on burners read as much memory a second as tenants did since `before`. */
void qos_load_burn_like(struct qos *q, struct qos_work before);

/* ---- qos-pinned.c: the pinned tenant -------------------------------------------------------- */

struct qos_pinned; /* its client, in this process */

int qos_pinned_open(struct qos *q, struct qos_pinned **ret);
void qos_pinned_close(struct qos_pinned *p);

/*
 * Runs `n_steps` at the tenant's pace. Each leases 1 to QOS_TEXT pages and hits a text, both timed
 * into their series (nanoseconds). Leased pages are published, or kept for a while and freed.
 * Returns 0 or -errno, with a message.
 */
int qos_pinned_run(
        struct qos_pinned *p, unsigned n_steps, struct series *alloc, struct series *hit);

/* Counts since it was opened. */
struct qos_pinned_counts {
        uint64_t refused, waited, missed, late;
};
struct qos_pinned_counts qos_pinned_counts(const struct qos_pinned *p);

/* ---- qos-queue.c ---------------------------------------------------------------------------- */

/* Waits of leases by priority, with a daemon of its own; adds its results. Returns 0 or -errno,
 * with a message. */
int qos_run_queue(struct bench_run *run);

#endif
