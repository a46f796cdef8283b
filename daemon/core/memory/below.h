/*
 * What lies below a tier of a namespace, and whether its pages can go there. Loop thread only.
 */
#ifndef KVL_CORE_BELOW_H
#define KVL_CORE_BELOW_H

#include "daemon/core/objects/ns.h"

/* Does the namespace's space on a disk take pages? It was loaded, and the disk works. */
bool space_takes(const struct ns *ns);

/* The tier where what leaves `kind` goes; TIER_COUNT: it goes nowhere. */
enum tier_kind tier_below(const struct ns *ns, enum tier_kind kind);

/* Can pages of the tier go down? */
bool tier_may_sink(const struct ns *ns, enum tier_kind kind);

/* Can pages of the namespace's device go anywhere? */
bool sink_is_possible(const struct ns *ns);

/* A page of the device was taken: there may be too few FREE ones now, so that others have to go
 * down. Says so (store.owner.on_transfer_work). */
void sink_note_taken(struct ns *ns);

#endif
