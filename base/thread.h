/* Threads for processes in which another thread handles the signals. */
#ifndef KVL_BASE_THREAD_H
#define KVL_BASE_THREAD_H

#include <pthread.h>

/* Starts a thread with all signals blocked: they go to the other threads. `attr` is as for
 * pthread_create(), NULL for a joinable thread. Returns 0 or -errno (*ret is unspecified). */
int thread_start(pthread_t *ret, const pthread_attr_t *attr, void *(*fn)(void *), void *data);

#endif
