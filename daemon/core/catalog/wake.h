/*
 * Clients that wait for a page's state word to change sleep on it in shared memory (FUTEX_WAIT).
 * Here they are woken. The kernel takes some 8 us for each that sleeps, and a tenant can have tens
 * of thousands of threads asleep: so a call wakes WAKE_SLICE at most, and the namespace's chore
 * wakes the others, a slice at a time, on its tenant's account. None is forgotten but where the
 * namespace goes: libkvlease looks again by itself within 100 ms. Loop thread only.
 */
#ifndef KVL_CORE_WAKE_H
#define KVL_CORE_WAKE_H

#include <stdint.h>

struct ns;

/* Waiters that are woken between two slices of chores, and in each: a look for those of a page
 * counts as one, too. Some 0.5 ms. Not tuned. */
#define WAKE_SLICE 64u

void wake_init(struct ns *ns);

/* Nobody is woken any more. Safe to repeat. */
void wake_deinit(struct ns *ns);

/* Wakes who waits for a change of the page's state word, after it: now, or in chores_work(). */
void wake_waiters(struct ns *ns, uint32_t page);

#endif
