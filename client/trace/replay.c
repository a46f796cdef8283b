#include "client/trace/replay.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"

#define STEP_REQUESTS 256                   /* not tuned: between two looks at the counter */
#define LOOK_NSEC     (100 * NSEC_PER_MSEC) /* the caller's progress bar */

/* What parent and children share. */
struct board {
        _Atomic size_t next;
        _Atomic uint64_t n_done; /* requests */
        struct {
                struct sim_result result;
                int error; /* -errno, 1: not run */
        } jobs[];
};

/* ---- children -------------------------------------------------------------------------------- */

static int run_job(const struct sim_trace *trace, const struct sim_options *options,
        struct sim_result *ret, _Atomic uint64_t *n_done)
{
        struct sim *s;
        int64_t left = trace->n_requests, next;
        int r = sim_new(trace, options, &s);

        if (r < 0)
                return r;
        do {
                next = sim_run(s, STEP_REQUESTS);
                atomic_fetch_add(n_done, (uint64_t)(left - MAX(next, 0)));
                left = next;
        } while (left > 0);
        sim_result(s, ret);
        sim_free(s);
        return (int)left;
}

static void work_on_jobs(const struct sim_trace *trace, const struct replay_job *jobs,
        size_t n_jobs, struct board *board)
{
        size_t i;

        while ((i = atomic_fetch_add(&board->next, 1)) < n_jobs)
                board->jobs[i].error =
                        run_job(trace, &jobs[i].options, &board->jobs[i].result, &board->n_done);
}

static pid_t start_child(const struct sim_trace *trace, const struct replay_job *jobs,
        size_t n_jobs, struct board *board)
{
        pid_t parent = getpid(), child = fork();

        if (child != 0)
                return child < 0 ? -errno : child;
        /* Nobody would read the results of an orphan. */
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
                work_on_jobs(trace, jobs, n_jobs, board);
        _exit(0);
}

/* ---- the parent ------------------------------------------------------------------------------ */

static void stop(pid_t *children, unsigned n)
{
        for (unsigned i = 0; i < n; i++)
                if (children[i] > 0) {
                        (void)kill(children[i], SIGKILL);
                        (void)waitpid(children[i], NULL, 0);
                }
}

/* Takes away children that have ended. How many are left. */
static unsigned reap_children(pid_t *children, unsigned n)
{
        unsigned left = 0;

        for (unsigned i = 0; i < n; i++) {
                if (children[i] > 0 && waitpid(children[i], NULL, WNOHANG) != 0)
                        children[i] = 0;
                left += children[i] > 0;
        }
        return left;
}

static int wait_all(pid_t *children, unsigned n, const struct board *board, uint64_t total,
        bool (*progress)(uint64_t done, uint64_t total, void *data), void *data)
{
        /* A short run shouldn't wait for a long look. */
        uint64_t pause = NSEC_PER_MSEC;

        /* Asked once at least, however fast they are. */
        for (;;) {
                if (progress && !progress(atomic_load(&board->n_done), total, data))
                        return -ECANCELED;
                if (reap_children(children, n) == 0)
                        return 0;
                nanosleep(&(struct timespec){.tv_nsec = (long)pause}, NULL);
                pause = MIN(pause * 2, LOOK_NSEC);
        }
}

static int collect(struct replay_job *jobs, size_t n_jobs, const struct board *board)
{
        for (size_t i = 0; i < n_jobs; i++) {
                int error = board->jobs[i].error;

                if (error != 0)
                        return error > 0 ? -ECHILD : error;
                jobs[i].result = board->jobs[i].result;
        }
        return 0;
}

static int run_on(struct board *board, const struct sim_trace *trace, struct replay_job *jobs,
        size_t n_jobs, unsigned n_processes,
        bool (*progress)(uint64_t done, uint64_t total, void *data), void *data)
{
        unsigned n = (unsigned)MIN((size_t)n_processes, n_jobs);
        _cleanup_free_ pid_t *children = calloc(MAX(n, 1u), sizeof(*children));
        int r = children ? 0 : -ENOMEM;

        for (size_t i = 0; i < n_jobs; i++)
                board->jobs[i].error = 1;
        for (unsigned i = 0; i < n && r == 0; i++) {
                children[i] = start_child(trace, jobs, n_jobs, board);
                r = MIN(children[i], 0);
        }
        if (r == 0)
                r = wait_all(
                        children, n, board, (uint64_t)n_jobs * trace->n_requests, progress, data);
        if (children)
                stop(children, n);
        return r == 0 ? collect(jobs, n_jobs, board) : r;
}

int replay_run(const struct sim_trace *trace, struct replay_job *jobs, size_t n_jobs,
        unsigned n_processes, bool (*progress)(uint64_t done, uint64_t total, void *data),
        void *data)
{
        size_t bytes = sizeof(struct board) + n_jobs * sizeof(((struct board *)NULL)->jobs[0]);
        struct board *board =
                mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        int r;

        if (board == MAP_FAILED)
                return -ENOMEM;
        r = run_on(board, trace, jobs, n_jobs, n_processes, progress, data);
        (void)munmap(board, bytes);
        return r;
}

unsigned replay_cpus(void)
{
        cpu_set_t cpus;

        return sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? MAX((unsigned)CPU_COUNT(&cpus), 1u)
                                                              : 1;
}

double replay_hit_ratio(const struct sim_result *r)
{
        return r->input_tokens > 0 ? (double)r->hit_tokens / (double)r->input_tokens : 0;
}
