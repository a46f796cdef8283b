/*
 * Wakes client threads that sleep on a page's state word in shared memory (FUTEX_WAIT). The kernel
 * takes some 8 us for each, and a tenant can have tens of thousands of threads asleep. So a call
 * wakes WAKE_SLICE at most, and the namespace's task wakes the others, a slice at a time, in its
 * tenant's turns. None is left out unless the namespace is freed: then libkvlease looks again by
 * itself within 100 ms. Loop thread only.
 */
#ifndef KVL_CORE_WAKE_H
#define KVL_CORE_WAKE_H

#include <stdint.h>

struct ns;

/* Threads that are woken between two slices of tasks, and in each slice; looking for threads at a
 * page counts as one. Some 0.5 ms. Not tuned. */
#define WAKE_SLICE 64u

void wake_init(struct ns *ns);

/* Stops waking threads. Idempotent. */
void wake_deinit(struct ns *ns);

/* Wakes the threads that wait for the page's state word, which has changed: now, or in
 * tasks_work(). */
void wake_waiters(struct ns *ns, uint32_t page);

#endif
