/*
 * A client invalidates what is cached: the pages with a key or a tag, and everything below them.
 * How pages go, a slice at a time: catalog/drop.h. Loop thread only.
 */
#ifndef KVL_CORE_INVALIDATE_H
#define KVL_CORE_INVALIDATE_H

#include "daemon/core/catalog/drop.h"

/*
 * Begin, and take the first slice. The page with `key` and everything below it; the pages with
 * `tag` (> 0) and everything below them. What of a disk isn't claimed yet goes at once. 0: it is
 * over, or has to be queued (drop_is_over()); KVL_STATUS_STALE: the attachment is of another
 * version; -EAGAIN with the sentence: DROPS_MAX. Nothing was done then.
 */
int drop_key(struct drop *d, struct attach *a, const uint8_t key[KEY_BYTES], struct detail *detail);
int drop_tag(struct drop *d, struct attach *a, uint64_t tag, struct detail *detail);

#endif
