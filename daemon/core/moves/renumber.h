/*
 * Gives a page another number after its bytes were copied, in the same tier (compact.h) or to
 * another one (transfer.h). Index, tree, policy, sessions and tags follow. Loop thread only.
 */
#ifndef KVL_CORE_RENUMBER_H
#define KVL_CORE_RENUMBER_H

#include <stdbool.h>
#include <stdint.h>

struct ns;

/* Makes `to` take the place of `from`, which becomes FREE. `from` is SEALED, not stale, in no
 * window, without pins over the socket, RETIRING and without pins in segments (shared_retire()).
 * `to` is MOVING and has the bytes. content: base/sum.h of the stored bytes, if `to` is in a lower
 * tier. */
void renumber_page(struct ns *ns, uint32_t from, uint32_t to, uint64_t content);

/* Does what renumber_page() does for a page that is or may be pinned, and isn't RETIRING: `from`
 * stays DETACHED while clients read it. `to` may also be GRANTED, but not in its group's grants. */
void renumber_pinned_page(struct ns *ns, uint32_t from, uint32_t to, uint64_t content);

#endif
