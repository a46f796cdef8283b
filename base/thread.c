#include "base/thread.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

#include "base/clock.h"
#include "base/macros.h"

int thread_start(pthread_t *ret, const pthread_attr_t *attr, void *(*fn)(void *), void *data)
{
        sigset_t all, before;
        int r;

        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before); /* the thread inherits it */
        r = pthread_create(ret, attr, fn, data);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        return -r;
}

void thread_lock_init(pthread_mutex_t *lock)
{
        pthread_mutexattr_t attr;

        pthread_mutexattr_init(&attr);
        pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
        pthread_mutex_init(lock, &attr);
        pthread_mutexattr_destroy(&attr);
}

void thread_cond_init(pthread_cond_t *cond)
{
        pthread_condattr_t attr;

        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(cond, &attr);
        pthread_condattr_destroy(&attr);
}

bool thread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t until_nsec)
{
        const struct timespec until = {
                (time_t)(until_nsec / NSEC_PER_SEC), (long)(until_nsec % NSEC_PER_SEC)};

        if (until_nsec == UINT64_MAX)
                return pthread_cond_wait(cond, lock) == 0;
        return pthread_cond_timedwait(cond, lock, &until) == 0;
}

/* ---- work in several threads ----------------------------------------------------------------- */

/* With more threads, memory is the limit. Not tuned. */
#define THREADS_MAX 8u

struct pieces {
        _Atomic uint32_t next;
        uint32_t n;
        void (*work)(void *data, uint32_t piece);
        void *data;
};

static void *do_pieces(void *data)
{
        struct pieces *p = data;
        uint32_t piece;

        while ((piece = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed)) < p->n)
                p->work(p->data, piece);
        return NULL;
}

static uint32_t count_processors(void)
{
        cpu_set_t set;

        return sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

void spread(uint32_t n, void (*work)(void *data, uint32_t piece), void *data)
{
        struct pieces p = {.n = n, .work = work, .data = data};
        uint32_t most = n > 1 ? MIN(count_processors(), THREADS_MAX) : 1, n_threads = 0;
        pthread_t threads[THREADS_MAX];

        most = MIN(n, most);
        while (n_threads + 1 < most && thread_start(&threads[n_threads], NULL, do_pieces, &p) == 0)
                n_threads++;
        (void)do_pieces(&p);
        while (n_threads > 0)
                pthread_join(threads[--n_threads], NULL);
}
