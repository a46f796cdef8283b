/* The places of a namespace's pages in this process: its device, its addresses, and its mapped
 * sets. */
#ifndef KVL_LIB_MAP_H
#define KVL_LIB_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/kvlease.pb-c.h"

struct extent;
struct frame;
struct kvl_ns;

/* Opens the device and reserves addresses for the namespace's full capacity, backed as the flags
 * (enum kvl_ns_flags) say. Returns 0; -ENOENT, -EOPNOTSUPP, -EBUSY or another -errno, with the
 * sentence; ns_free() undoes. */
int ns_reserve(struct kvl_ns *ns, unsigned flags);

/* [L] Maps the memory of a MAP reply for `set` from `first_plane` on. Takes the frame's fds that it
 * used. Returns 0 (all that is of use is mapped); -EPROTO: the reply doesn't fit the request;
 * -ENOMEM; -EIO. */
int ns_map(struct kvl_ns *ns, uint32_t set, uint32_t first_plane, const Kvlease__V1__MapReply *m,
        struct frame *frame);

/* Offset in bytes of a page on the device in the extent of its set, in every plane. */
uint64_t ns_offset_in_extent(const struct kvl_ns *ns, uint32_t page);

/* [L] Returns the extent of a page on the device in this plane; NULL: it isn't mapped. */
struct extent *ns_device_extent(const struct kvl_ns *ns, uint32_t page, uint32_t plane);

/* [L] Notes the result of a device call, and returns it. An error that breaks the device breaks
 * more than the call. */
int ns_note_result(const struct kvl_ns *ns, int r);

/* [L] Whether the page can be mapped, and isn't. */
bool ns_wants_map(const struct kvl_ns *ns, uint32_t page);

/* [L] Unmaps the set. 0; -errno: some planes are mapped still, and the set isn't. */
int ns_unmap_set(struct kvl_ns *ns, uint32_t set);

/* Unmaps all sets at the end, and closes the device. */
void ns_unmap_all(struct kvl_ns *ns);

/* The pages of a call are entered into the process' page tables before the call returns. Otherwise
 * the first access would fault for each 4 KiB (populate.c). */

/* Makes the bitmap of populated units; once, when sets are made. Returns 0; -ENOMEM with the
 * sentence. */
int ns_make_units(struct kvl_ns *ns);

/* Populates those of the pages that are mapped, once in each process. The caller holds the pages.
 * Thread-safe, without the lock: it takes microseconds for each 64 KiB. */
void ns_populate(const struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages);

/* [L] The set was unmapped, or is about to be and no longer counts as mapped. */
void ns_forget_populated(const struct kvl_ns *ns, uint32_t set);

/* Sets that the daemon recalls wait for a kvl_safepoint(), which unmaps them (safepoint.c). */

/* [L] Notes that the daemon recalls one of the namespace's sets. Returns false if there is no such
 * set. */
bool ns_note_recall(struct kvl_ns *ns, uint32_t set, bool is_idle);

/* [L] Forgets recalled sets: the namespace is being closed, or the daemon went away. */
void ns_forget_recalls(struct kvl_ns *ns);

#endif
