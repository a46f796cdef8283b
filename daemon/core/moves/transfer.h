/*
 * Moves or copies a page's bytes between tiers of its namespace.
 *
 *   down   SEALED -> copying -> the key is at the new page, the old one is FREE
 *   up     SEALED -> copying -> the key is on the device; the old page is DETACHED while clients
 *                               read it, else FREE
 *   put    as down, of a page that is read: the old page is DETACHED while clients read it
 *   copy   SEALED or DETACHED -> copying -> a page that is GRANTED to a client has the bytes, of
 *                                           all planes or of some
 *   out    as copy, into a buffer of the caller's
 *   in     a buffer's bytes -> copying -> a page that is GRANTED to a client has them
 *              \-> given up: pinned (down), gone or stale by then, damaged, or the copy failed
 *
 * During the copy, the old page can be found and read as before. The new page is MOVING and unused
 * (for a copy, GRANTED as before). Bytes from a lower tier are compared with the sum in
 * page_extra.content; a page with other bytes is dropped and counted as damaged.
 *
 * copy-batch.h copies the bytes, of several pages at once. transfer_work() handles the results.
 * Loop thread only.
 */
#ifndef KVL_CORE_TRANSFER_H
#define KVL_CORE_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/state/moving.h"

struct ns;
struct store;
struct extent_set;
struct copy_batch;

/*
 * Begins a transfer. `from` is SEALED, not stale and in no window (COPY: SEALED or DETACHED). `to`
 * is MOVING, on the device for UP and below `from` for DOWN and PUT; GRANTED for COPY. Locks `from`
 * in the policy (not for COPY). is_urgent: a client waits. Returns 0: it starts with the next
 * transfer_start() or transfer_work(), and fetch.h is notified of the end (not for DOWN). -EBUSY:
 * there is no mover; -ENOMEM (nothing changed).
 */
int transfer_begin(
        struct ns *ns, enum transfer_kind kind, uint32_t from, uint32_t to, bool is_urgent);

/* Begins an urgent COPY of some planes, at least one of the layout's: the others of `to` don't
 * change. */
int transfer_begin_copy(struct ns *ns, uint32_t from, uint32_t to, struct plane_range planes);

/*
 * Copy a page's bytes, in any tier, to a buffer, or a buffer's bytes to a page of the device.
 * `from` is SEALED or DETACHED; `to` is GRANTED. Bytes in the buffer have the form of
 * page_travel_form(). Return 0: *ret_transfer owns the buffer's bytes and ends with buffer.done().
 *
 * Results of buffer.done(): 0: the bytes are the page's, which was granted to no other client
 * meanwhile; IN: it is still GRANTED. -EDOM of OUT: a number isn't finite, which the codec refuses.
 * -EBADMSG of IN: no encoder makes such bytes, and the page is zeros.
 *
 * -EBUSY, -ENOMEM: as transfer_begin(), and the caller still owns the buffer.
 */
int transfer_begin_out(struct ns *ns, uint32_t from, const struct transfer_buffer *buffer,
        bool is_urgent, struct transfer **ret_transfer);
int transfer_begin_in(struct ns *ns, uint32_t to, const struct transfer_buffer *buffer,
        bool is_urgent, struct transfer **ret_transfer);

/* The result of an OUT or IN isn't needed any more: buffer.done() isn't called, and the transfer
 * frees the buffer's bytes at its end. */
void transfer_let_go(struct transfer *t);

/* Starts the transfers that were begun, in batches. Returns true if some can't start yet. */
bool transfer_start(struct store *s);

/* Returns the transfer of this page, down or up; NULL: none is under way. */
struct transfer *transfer_find(const struct ns *ns, uint32_t from);

/* A client waits for the transfer now. */
void transfer_hurry(struct transfer *t);

/* Calls the namespace's demotions off, so that their pages are victims again at once: a lease lacks
 * pages. Returns false if there is none. */
bool transfer_call_off(struct ns *ns);

/* The transfer isn't needed any more: it ends as soon as possible, and its bytes aren't used. */
void transfer_stop_wanting(struct transfer *t);

/* The namespace is being freed: when this returns, the mover doesn't use its sets. That takes at
 * most a piece of a copy (mover.h). */
void transfer_forget_ns(struct ns *ns);

/* Frees all transfers, after the devices' end. */
void transfer_deinit(struct store *s);

/* Returns the number of transfers of one kind under way. */
uint32_t transfer_count(const struct ns *ns, enum transfer_kind kind);

/* For the checker: returns the number of the namespace's MOVING pages of transfers; is the page
 * one? */
uint64_t transfer_count_moving(const struct ns *ns);
bool transfer_moves_to(const struct ns *ns, uint32_t page);

/* Finishes all transfers whose copy has succeeded or failed. */
void transfers_end(struct store *s);

#endif
