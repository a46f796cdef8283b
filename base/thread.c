#include "base/thread.h"

#include <signal.h>

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
