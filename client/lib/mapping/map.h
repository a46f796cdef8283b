/*
 * Where a namespace's pages are in this process: its device, its addresses, and what of it is
 * mapped.
 */
#ifndef KVL_LIB_MAP_H
#define KVL_LIB_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "gpu/device.h"
#include "proto/kvlease.pb-c.h"

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

/* Copies bytes of a page, as kvl_page_read() and kvl_page_write() do. */
int ns_copy(const struct kvl_ns *ns, uint32_t page, uint32_t plane, uint64_t offset, void *memory,
        uint64_t bytes, enum device_direction direction);

/* What kvl_page_read() and kvl_page_write() refuse of pages, whatever is copied of them. */
int ns_check_copies(const struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages,
        enum device_direction direction);

/* [L] The page can be mapped, and isn't. */
bool ns_wants_map(const struct kvl_ns *ns, uint32_t page);

/* [L] 0; -errno: some planes are mapped still, and the set isn't. */
int ns_unmap_set(struct kvl_ns *ns, uint32_t set);

/* Unmaps all sets at the end, and closes the device. */
void ns_unmap_all(struct kvl_ns *ns);

#endif
