/*
 * Invalidates cached pages: pages with a key or a tag, and all below them, or all pages of a
 * namespace; for a client of this host, an administrator, or another host. cache/drop.h drops
 * pages, a slice at a time. Loop thread only.
 */
#ifndef KVL_CORE_INVALIDATE_H
#define KVL_CORE_INVALIDATE_H

#include "daemon/core/cache/drop.h"

/* Begin a drop and do its first slice: of the page with `key` and all below it; of the pages with
 * `tag` (> 0) and all below them. Remove unclaimed entries of a disk at once. Return 0: it is over,
 * or must be queued (drop_is_over()). KVL_STATUS_STALE: the attachment is of another version;
 * -EAGAIN with the sentence: DROPS_MAX (nothing changed). */
int drop_key(struct drop *d, struct attach *a, const uint8_t key[KEY_BYTES], struct detail *detail);
int drop_tag(struct drop *d, struct attach *a, uint64_t tag, struct detail *detail);

/* Makes all cached pages unfindable at once, at a constant cost; ns_sweep() frees them later.
 * Doesn't notify other hosts (life/namespace.h: ns_invalidate()). cause: the reason that the
 * history of keys gets. *ret_pages: pages that were findable. Calls store.owner.on_stale. Returns 0
 * or -ENOMEM (nothing changed). */
int ns_empty(struct ns *ns, enum drop_cause cause, uint64_t *ret_pages);

/* Repeats another host's invalidation here: of a key, or (NULL) of a tag, or (0) of all pages. Key
 * and tag: in tasks_work(). Returns 0; -EAGAIN: DROPS_MAX; -ENOMEM: nothing changed, or repeating
 * it does no harm. */
int ns_follow_change(struct ns *ns, const uint8_t *key, uint64_t tag);

#endif
