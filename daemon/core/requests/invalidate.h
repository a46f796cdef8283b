/*
 * What is cached is invalidated: the pages with a key or a tag, and everything below them, or all
 * of a namespace; by a client of this host, by an administrator, or by another host. How pages go,
 * a slice at a time: catalog/drop.h. Loop thread only.
 */
#ifndef KVL_CORE_INVALIDATE_H
#define KVL_CORE_INVALIDATE_H

#include "daemon/core/catalog/drop.h"
#include "daemon/exchange/change.h"

/*
 * Begin, and take the first slice. The page with `key` and everything below it; the pages with
 * `tag` (> 0) and everything below them. What of a disk isn't claimed yet goes at once. 0: it is
 * over, or has to be queued (drop_is_over()); KVL_STATUS_STALE: the attachment is of another
 * version; -EAGAIN with the sentence: DROPS_MAX. Nothing was done then.
 */
int drop_key(struct drop *d, struct attach *a, const uint8_t key[KEY_BYTES], struct detail *detail);
int drop_tag(struct drop *d, struct attach *a, uint64_t tag, struct detail *detail);

/*
 * Everything cached becomes unfindable at once, at a cost that doesn't depend on how much there is;
 * ns_sweep() frees it later. Other hosts aren't told (lifetimes/namespace.h: ns_invalidate()).
 * cause: as keys are told of it that went. *ret_pages: pages that were findable. Tells
 * store.owner.on_stale. 0 or -ENOMEM (unchanged).
 */
int ns_empty(struct ns *ns, enum drop_cause cause, uint64_t *ret_pages);

/*
 * Another host has invalidated that, and this one does the same. Key and tag: in chores_work(). 0;
 * -EAGAIN: DROPS_MAX; -ENOMEM: nothing was done, or what is repeated does no harm.
 */
int ns_follow_change(struct ns *ns, const struct change_item *what);

#endif
