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

/* What a key is: 0 cached; KVL_STATUS_PENDING; KVL_STATUS_MISS; for an attachment KVL_STATUS_STALE,
 * too. */
int announce_state_in(const struct ns *ns, const uint8_t key[KEY_BYTES]);
int announce_state(const struct attach *a, const uint8_t key[KEY_BYTES], struct detail *d);

#endif
