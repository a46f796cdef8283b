/* Threads, locks and conditions, for processes in which another thread handles the signals. */
#ifndef KVL_BASE_THREAD_H
#define KVL_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Starts a thread with all signals blocked: they go to the other threads. `attr` is as for
 * pthread_create(), NULL for a joinable thread. Returns 0 or -errno (*ret is unspecified). */
int thread_start(pthread_t *ret, const pthread_attr_t *attr, void *(*fn)(void *), void *data);

/* Initializes an adaptive lock: waiting threads spin first. For a lock that is held for less time
 * than a sleep and a wake take. */
void thread_lock_init(pthread_mutex_t *lock);

/* Initializes a condition for thread_cond_wait(). */
void thread_cond_init(pthread_cond_t *cond);

/* pthread_cond_wait() until a time of CLOCK_MONOTONIC at most; UINT64_MAX: without end. Returns
 * false if it is over. */
bool thread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t until_nsec);

/* Calls work() for each piece 0..n-1, once each, in this thread and in others; returns when all are
 * done. Pieces begin in ascending order. work() synchronises what pieces share. There are no other
 * threads if n is 1, the process may use one processor, or none can be started. */
void spread(uint32_t n, void (*work)(void *data, uint32_t piece), void *data);

#endif
