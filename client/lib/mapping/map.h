/*
 * Where a namespace's pages are in this process: its device, its addresses, and what of it is
 * mapped.
 */
#ifndef KVL_LIB_MAP_H
#define KVL_LIB_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/kvlease.pb-c.h"

struct extent;
struct frame;
struct kvl_ns;

/* Opens the device and reserves the addresses of everything the namespace can ever hold, backed as
 * the flags (enum kvl_ns_flags) say. 0; -ENOENT, -EOPNOTSUPP, -EBUSY, another -errno, with the
 * sentence; ns_free() undoes. */
int ns_reserve(struct kvl_ns *ns, unsigned flags);

/*
 * [L] Maps what a MAP reply brought for `set` from `first_plane` on. 0: as much of it as is of use;
 * -EPROTO: it doesn't fit what was asked; -ENOMEM; -EIO. Takes the frame's fds that it used.
 */
int ns_map(struct kvl_ns *ns, uint32_t set, uint32_t first_plane, const Kvlease__V1__MapReply *m,
        struct frame *frame);

/* Where a page on the device begins in the extent of its set, in every plane. */
uint64_t ns_offset_in_extent(const struct kvl_ns *ns, uint32_t page);

/* [L] The extent in which a page on the device lies in this plane; NULL: it isn't mapped. */
struct extent *ns_device_extent(const struct kvl_ns *ns, uint32_t page, uint32_t plane);

/* [L] Notes the result of a call of the device, and returns it: what breaks the device breaks more
 * than the call. */
int ns_note_result(const struct kvl_ns *ns, int r);

/* [L] Whether the page can be mapped, and isn't. */
bool ns_wants_map(const struct kvl_ns *ns, uint32_t page);

/* [L] Unmaps the set. 0; -errno: some planes are mapped still, and the set isn't. */
int ns_unmap_set(struct kvl_ns *ns, uint32_t set);

/* Unmaps all sets at the end, and closes the device. */
void ns_unmap_all(struct kvl_ns *ns);

#endif
