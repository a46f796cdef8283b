/*
 * A page gets another number: its bytes are somewhere else, in the same tier (compact.h) or in
 * another one (transfer.h). Index, tree, policy, sessions and tags follow. Loop thread only.
 */
#ifndef KVL_CORE_PLACES_H
#define KVL_CORE_PLACES_H

#include <stdbool.h>
#include <stdint.h>

struct ns;

/*
 * `from` is SEALED, not stale, in no window; `to` is MOVING, and has its bytes. Nobody pins `from`
 * over the socket; it is RETIRING, and no segment pins it either (shared_retire()). From now on
 * `to` is what `from` was, which is FREE.
 *
 * content: of a page below the device, base/sum.h of the bytes that are stored there.
 */
void places_change(struct ns *ns, uint32_t from, uint32_t to, uint64_t content);

/* The same as places_change() for a page that is pinned, or may be: `from` is DETACHED where
 * somebody reads it, until nobody does. It isn't RETIRING. `to` may be GRANTED, too, and out of its
 * group's grants. */
void places_change_pinned(struct ns *ns, uint32_t from, uint32_t to, uint64_t content);

/* Cached, pinned by nobody the daemon knows of, and in no window. */
bool places_is_idle(const struct ns *ns, uint32_t page);

#endif
