#include "base/thread.h"

#include <signal.h>
#include <time.h>

#include "base/clock.h"

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
