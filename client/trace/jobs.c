#include "client/trace/jobs.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"

#define LOOK_NSEC (100 * NSEC_PER_MSEC) /* the caller's progress bar */

/* Memory that parent and children share. */
struct board {
        _Atomic size_t next;
        _Atomic uint64_t n_done;
        int *errors; /* of each job: -errno, 1: not run */
        char *results;
};

/* ---- children -------------------------------------------------------------------------------- */

static void work_on_jobs(const struct jobs *jobs, struct board *board)
{
        size_t i;

        while ((i = atomic_fetch_add(&board->next, 1)) < jobs->n)
                board->errors[i] = jobs->run(
                        jobs->data, i, board->results + i * jobs->result_bytes, &board->n_done);
}

static pid_t start_child(const struct jobs *jobs, struct board *board)
{
        pid_t parent = getpid(), child = fork();

        if (child != 0)
                return child < 0 ? -errno : child;
        /* No process would read the results of an orphan. */
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
                work_on_jobs(jobs, board);
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

/* Reaps children that have ended. Returns how many are left. */
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
        /* A short run shouldn't wait for a long pause. */
        uint64_t pause = NSEC_PER_MSEC;

        /* progress() is called at least once, however fast they are. */
        for (;;) {
                if (progress && !progress(atomic_load(&board->n_done), total, data))
                        return -ECANCELED;
                if (reap_children(children, n) == 0)
                        return 0;
                nanosleep(&(struct timespec){.tv_nsec = (long)pause}, NULL);
                pause = MIN(pause * 2, LOOK_NSEC);
        }
}

static int collect(const struct jobs *jobs, const struct board *board, void *results)
{
        for (size_t i = 0; i < jobs->n; i++)
                if (board->errors[i] != 0)
                        return board->errors[i] > 0 ? -ECHILD : board->errors[i];
        memcpy(results, board->results, jobs->n * jobs->result_bytes);
        return 0;
}

static int run_on(const struct jobs *jobs, struct board *board, void *results, unsigned n_processes,
        bool (*progress)(uint64_t done, uint64_t total, void *data), void *data)
{
        unsigned n = (unsigned)MIN((size_t)n_processes, jobs->n);
        _cleanup_free_ pid_t *children = calloc(MAX(n, 1u), sizeof(*children));
        int r = children ? 0 : -ENOMEM;

        for (size_t i = 0; i < jobs->n; i++)
                board->errors[i] = 1;
        for (unsigned i = 0; i < n && r == 0; i++) {
                children[i] = start_child(jobs, board);
                r = MIN(children[i], 0);
        }
        if (r == 0)
                r = wait_all(children, n, board, jobs->total, progress, data);
        if (children)
                stop(children, n);
        return r == 0 ? collect(jobs, board, results) : r;
}

int jobs_run(const struct jobs *jobs, void *results, unsigned n_processes,
        bool (*progress)(uint64_t done, uint64_t total, void *data), void *data)
{
        size_t errors_at = round_up_u64(sizeof(struct board), _Alignof(max_align_t));
        size_t results_at = round_up_u64(errors_at + jobs->n * sizeof(int), _Alignof(max_align_t));
        size_t bytes = results_at + jobs->n * jobs->result_bytes;
        struct board *board =
                mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        int r;

        if (board == MAP_FAILED)
                return -ENOMEM;
        board->errors = (int *)(void *)((char *)board + errors_at);
        board->results = (char *)board + results_at;
        r = run_on(jobs, board, results, n_processes, progress, data);
        (void)munmap(board, bytes);
        return r;
}
