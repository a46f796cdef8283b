/*
 * Single flight: a client that is about to compute a text says so, and who else wants it waits
 * instead of computing the same again. Announcing reserves a key for a page that the client was
 * granted: the index has a slot for it, and the page's line says PENDING. Loop thread only.
 *
 *   GRANTED -> announced (PENDING for readers) -> SEALED
 *                      \-> withdrawn: freed; its client is gone or lingers; somebody else published
 * the key (they win: who waits finds their page); the namespace was invalidated
 *
 * Whoever waits does so on the state word of the line, in shared memory (FUTEX_WAIT), which the
 * daemon wakes at each of these changes; or by a request that is answered then (WAIT). A waiter
 * that finds the key neither cached nor PENDING any more computes it itself: the first to announce
 * it is granted, the others wait again. An announced page is in no tree, and a miss for every
 * lookup.
 */
#ifndef KVL_CORE_ANNOUNCE_H
#define KVL_CORE_ANNOUNCE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/objects/group.h"

/*
 * Reserves keys[i] for pages[i], n of them, in order, as far as it goes. 0: all.
 * KVL_STATUS_DUPLICATE: key *ret_n is cached; KVL_STATUS_PENDING: it is reserved for another page
 * already; both with *ret_page. -EINVAL: a page isn't granted to the caller's group, or is
 * announced; KVL_STATUS_STALE; -ENOSPC: the index has no slot for it. *ret_n: announced, in any
 * case.
 */
int announce_pages(struct attach *a, const uint32_t *pages, const uint8_t *keys, uint32_t n,
        uint32_t *ret_n, uint32_t *ret_page, struct detail *d);

/* What a key is: 0 cached; KVL_STATUS_PENDING; KVL_STATUS_MISS; KVL_STATUS_STALE. */
int announce_state(const struct attach *a, const uint8_t key[KEY_BYTES], struct detail *d);

/* The page, GRANTED, isn't announced any more (nothing where it wasn't): its slot is gone. Who
 * waits is woken. */
void announce_withdraw(struct ns *ns, uint32_t page);

/*
 * Those of this attachment's member, because it goes, lingers, or may only read; where the
 * attachment has announced nothing since the last time, nothing is done. All of them now, where the
 * namespace has no more than a slice of announcements (store.drop_slice_pages), by looking at
 * these; else a slice now, and the rest in chores_work(). Returns how many looks it took.
 */
uint64_t announce_withdraw_all(struct attach *a);

/* Of what announce_withdraw_all() left, with about so many looks; returns how many. Nothing is left
 * where attach.withdraw_at is PAGE_NONE. */
uint64_t announce_withdraw_some(struct attach *a, uint64_t budget);

/* All of the namespace: it was invalidated, and they are of an older epoch from now on, so that
 * nobody finds them. All of them now, or a slice and the rest in chores_work(), as in
 * announce_withdraw_all(). */
void announce_withdraw_ns(struct ns *ns);

/* All in this set: what is published there won't be found. O(announced in the set); returns how
 * many it looked at. */
uint64_t announce_withdraw_set(struct extent_set *set);

/*
 * The page was SEALED under a key that is reserved, for itself or for another: it has the slot from
 * now on (a page that it was reserved for besides is GRANTED as any). Who waits is woken. False:
 * the key isn't reserved, the page has no slot.
 */
bool announce_fulfil(struct ns *ns, uint64_t hash, uint32_t page);

/* The announced page, or PAGE_NONE. */
uint32_t announce_find(const struct ns *ns, uint64_t hash, const uint8_t key[KEY_BYTES]);

/* Debug: NULL, or a static sentence naming what is wrong with an announced page (it has a slot,
 * nobody else its key, a client that may publish it); with the namespace's list. */
const char *announce_check_page(const struct ns *ns, uint32_t page);
const char *announce_check(const struct ns *ns);

#endif
