/*
 * A member's holds in a namespace that it has open: its pin segment and the sets that it has
 * mapped. pin.h has its pins, state/group.h describes attachments, life/open.h and leave.h
 * open and close them. Loop thread only.
 */
#ifndef KVL_CORE_ATTACH_H
#define KVL_CORE_ATTACH_H

#include "daemon/core/state/group.h"
#include "gpu/device.h"

/* Gives the attachment a pin segment and a magazine. Returns 0; -EEXIST: it has them; -ENOMEM,
 * -EMFILE. */
int attach_share(struct attach *a, struct detail *d);

/* Recovery: gives the attachment its former segment, with the contents of its magazine. Takes the
 * fd, which has the right size, on success only. Returns 0 or -ENOMEM. */
int attach_adopt_share(struct attach *a, int fd);

/* Takes in the client's changes of its pin segment: claimed pages, counted lookups. Returns as
 * magazine_sync() does; true if the attachment has no segment. */
bool attach_sync(struct attach *a);

/* Exports the extents of a bound set for planes first..first+max-1 and notes that the member maps
 * the set from now on. Returns their number (> 0) with owned handles in ret_handles; -ENOENT: the
 * set isn't bound, or is recalled without held pages; -EINVAL: plane out of range; -EACCES:
 * metadata-only; -EBUSY: another client has a lease of its memory; -ENOMEM, -EIO. */
int attach_map_set(struct attach *a, uint32_t set_index, uint32_t first_plane, uint32_t max,
        struct extent_handle *ret_handles, struct detail *d);

/* Notes that the member maps the set. Returns 0 or -ENOMEM. */
int attach_note_mapped(struct attach *a, struct extent_set *set);

/* Notes that the member doesn't map the set any more. Does nothing if it wasn't noted as mapped. */
void attach_forget_mapped(struct attach *a, uint32_t set_index);

/* The member has unmapped a set that is recalled and idle. Returns 0: the set may be unbound now;
 * -ENOENT: the member doesn't have it mapped; -EBUSY: the set isn't recalled, or its pages are
 * held. */
int attach_unmapped(struct attach *a, uint32_t set_index, struct detail *d);

#endif
