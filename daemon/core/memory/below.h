/*
 * The tiers below a namespace's tier, and whether pages can be demoted to them. Loop thread only.
 */
#ifndef KVL_CORE_BELOW_H
#define KVL_CORE_BELOW_H

#include "daemon/core/state/ns.h"

/* Does the namespace's space on a disk take pages? It was loaded, and the disk works. */
bool space_takes(const struct ns *ns);

/* Returns the tier that pages of `kind` are demoted to; TIER_COUNT: none. */
enum tier_kind tier_below(const struct ns *ns, enum tier_kind kind);

/* Can pages of the tier be demoted? */
bool tier_may_demote(const struct ns *ns, enum tier_kind kind);

/* Can pages of the namespace's device be demoted? */
bool demote_is_possible(const struct ns *ns);

/* A page of the device was taken, so FREE pages may be too few and others must be demoted: calls
 * store.owner.on_transfer_work(). */
void demote_note_taken(struct ns *ns);

#endif
