/*
 * Single flight: a client announces the text that it is about to compute, and other clients wait
 * for it instead of computing it again. An announcement reserves a key for a page that the client
 * was granted: the index has a slot for it, and the page's line says PENDING. Loop thread only.
 *
 *   GRANTED -> announced (PENDING for readers) -> SEALED
 *                      \-> withdrawn: freed; its client left or lingers; another client published
 *                          the key (and waiters find that page); the namespace was invalidated.
 *
 * A client waits on the state word of the line in shared memory (FUTEX_WAIT), or by a request
 * (WAIT). The daemon wakes or answers it at each of these changes. A waiter that finds the key
 * neither cached nor PENDING computes it itself: the first to announce it gets the key, the others
 * wait again. An announced page is in no tree, and is a miss for every lookup.
 */
#ifndef KVL_CORE_ANNOUNCE_H
#define KVL_CORE_ANNOUNCE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/state/group.h"

/*
 * Reserves keys[i] for pages[i], n of them, in order, until one fails; *ret_n: the number
 * announced, in any case. Returns 0: all. KVL_STATUS_DUPLICATE: key *ret_n is cached;
 * KVL_STATUS_PENDING: it is reserved for another page; both with *ret_page. -EINVAL: a page isn't
 * granted to the caller's group, or is announced. KVL_STATUS_STALE; -ENOSPC: the index has no slot.
 */
int announce_pages(struct attach *a, const uint32_t *pages, const uint8_t *keys, uint32_t n,
        uint32_t *ret_n, uint32_t *ret_page, struct detail *d);

/* Return the state of a key: 0: cached; KVL_STATUS_PENDING; KVL_STATUS_MISS. For an attachment also
 * KVL_STATUS_STALE. */
int announce_state_in(const struct ns *ns, const uint8_t key[KEY_BYTES]);
int announce_state(const struct attach *a, const uint8_t key[KEY_BYTES], struct detail *d);

#endif
