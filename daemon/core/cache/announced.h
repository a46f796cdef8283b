/*
 * Announced pages: a key is reserved for each of them (clients/announce.h). They are listed by set.
 * These functions find them and end reservations. Loop thread only.
 */
#ifndef KVL_CORE_ANNOUNCED_H
#define KVL_CORE_ANNOUNCED_H

#include <stdint.h>

#include "daemon/core/state/group.h"

/* Enters a page, shown as PENDING and with a slot in the index, as announced by this client. */
void announce_enter(struct ns *ns, uint32_t page, uint64_t client_id);

/* Ends the announcement of a GRANTED page: removes its slot and wakes the threads that wait for it.
 * Does nothing if the page isn't announced. */
void announce_withdraw(struct ns *ns, uint32_t page);

/* Withdraws all announcements of this attachment's member, because it leaves, lingers, or may only
 * read. Withdraws all of them now if the namespace has no more announcements than a slice
 * (store.drop_slice_pages). Else it withdraws a slice now, and tasks_work() the rest. Does nothing
 * if the attachment has announced nothing since the last call. Returns the number of looks. */
uint64_t announce_withdraw_all(struct attach *a);

/* Continues announce_withdraw_all() with about `budget` looks and returns their number. Sets
 * attach.withdraw_at to PAGE_NONE at the end. */
uint64_t announce_withdraw_some(struct attach *a, uint64_t budget);

/* The namespace was invalidated, so its announcements are of an older epoch and can't be found:
 * withdraws them, or a slice of them now and the rest in tasks_work(). */
void announce_withdraw_ns(struct ns *ns);

/* Withdraws the announcements in this set, because pages published there can't be found. Returns
 * the number of looks. O(announced pages of the set). */
uint64_t announce_withdraw_set(struct extent_set *set);

/* The page was SEALED under a key that is reserved, for itself or for another page. It has the
 * key's slot from now on; another page that the key was reserved for becomes a plain GRANTED page.
 * Wakes waiting threads. Returns false if the key isn't reserved: the page has no slot. */
bool announce_fulfil(struct ns *ns, uint64_t hash, uint32_t page);

/* Returns the announced page with the key of this hash, or PAGE_NONE. */
uint32_t announce_find(const struct ns *ns, uint64_t hash, const uint8_t key[KEY_BYTES]);

/* For the checker: returns NULL, or a static sentence about an announced page (it has a slot, a key
 * of its own, a client that may publish it); about the list. */
const char *announce_check_page(const struct ns *ns, uint32_t page);
const char *announce_check(const struct ns *ns);

/*
 * Wakes client threads that sleep on a page's state word in shared memory (FUTEX_WAIT). The kernel
 * takes some 8 us for each, and a tenant can have tens of thousands of threads asleep. So a call
 * wakes WAKE_SLICE at most, and the namespace's task wakes the others, a slice at a time, in its
 * tenant's turns. None is left out unless the namespace is freed: then libkvlease looks again by
 * itself within 100 ms. Loop thread only.
 */

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
