/* Internals of a namespace's space on a disk, shared by space.c and space-gone.c. */
#ifndef KVL_CORE_SPACE_IMPL_H
#define KVL_CORE_SPACE_IMPL_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/moves/space.h"

/* Callback for disk calls without a waiting caller; space_promise() waits for their result. */
void space_on_durable(int result, void *data);

/* Removes an entry; the namespace has a space. */
void space_remove_entry(struct ns *ns, uint64_t at, const uint8_t key[DISK_KEY_BYTES]);

/* Are the page's bytes at `at` of the disk? */
bool space_is_at(const struct ns *ns, uint32_t page, uint64_t at);

/* Drops a page that isn't on the disk, and all pages below it. */
void space_drop_page(struct ns *ns, uint32_t page);

/* Removes entries that belong to no page: a first slice at once, the rest by space_clean(). May
 * remove an entry that is being written; its write then fails. */
void space_remove_unknown(struct ns *ns);

/* All entries were removed, or the space is closed. Idempotent. */
void space_stop_removing(struct ns *ns);

/* Continues space_drop_missing() and space_remove_unknown(). Returns the number of entries and
 * pages looked at, at most `budget`. */
uint32_t space_clean(struct ns *ns, uint32_t budget);

/* Begins the promises that waited for removals, if no removal is left. */
void space_begin_promises(struct store *s);

#endif
