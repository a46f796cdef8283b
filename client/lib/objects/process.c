#include "client/lib/objects/process.h"

#include <errno.h>
#include <pthread.h>

#include "client/lib/connection/error.h"

_Atomic unsigned process_n_forks;

static void note_fork(void)
{
        atomic_fetch_add_explicit(&process_n_forks, 1, memory_order_relaxed);
}

static int watched_forks;

static void watch_forks_once(void)
{
        watched_forks = -pthread_atfork(NULL, NULL, note_fork);
}

int process_watch_forks(void)
{
        static pthread_once_t once = PTHREAD_ONCE_INIT;

        pthread_once(&once, watch_forks_once);
        return watched_forks;
}

int process_refuse(void)
{
        return error_set(-ECHILD,
                "a connection belongs to the process that made it: connect again after fork()");
}
