/*
 * What a member holds in a namespace that it has open: its pin segment and the sets that it has
 * mapped. Its pins: pin.h.
 * What an attachment is: objects/group.h; how one is opened and closed: lifetimes/open.h, leave.h.
 * Loop thread only.
 */
#ifndef KVL_CORE_ATTACH_H
#define KVL_CORE_ATTACH_H

#include "daemon/core/objects/group.h"
#include "gpu/device.h"

/* Gives the attachment a pin segment and a magazine. 0; -EEXIST: it has them; -ENOMEM, -EMFILE. */
int attach_share(struct attach *a, struct detail *d);

/* For recovery: the attachment gets the segment that it had, with what lies in its magazine. Takes
 * the fd, which has the right size, on success only. 0; -ENOMEM. */
int attach_adopt_share(struct attach *a, int fd);

/* Takes over what the client did in its pin segment: pages claimed, lookups counted. Returns as
 * magazine_settle(); true where the attachment has no segment. */
bool attach_settle(struct attach *a);

/*
 * Exports the extents of a bound set for planes first..first+max-1 and notes that the member has
 * the set mapped from now on. Returns their number (> 0) with owned handles in ret_handles;
 * -ENOENT: the set is not bound, or recalled and nothing in it is held; -EINVAL: plane out of
 * range; -EACCES: metadata-only; -EBUSY: another client has a lease of its memory; -ENOMEM, -EIO.
 */
int attach_map_set(struct attach *a, uint32_t set_index, uint32_t first_plane, uint32_t max,
        struct extent_handle *ret_handles, struct detail *d);

/* The member counts as having mapped the set. 0; -ENOMEM. */
int attach_note_mapped(struct attach *a, struct extent_set *set);

/* The member hasn't mapped the set, or not any more. Nothing is done where the member didn't count
 * as having mapped it. */
void attach_forget_mapped(struct attach *a, uint32_t set_index);

/*
 * The member has unmapped a set that is recalled and idle. 0: it may be unbound now. -ENOENT: the
 * member doesn't have it mapped; -EBUSY: the set isn't recalled, or pages of it are held.
 */
int attach_unmapped(struct attach *a, uint32_t set_index, struct detail *d);

#endif
