/*
 * A page's bytes on their way between tiers of its namespace.
 *
 *   down   SEALED -> copying -> the key is at the new page, the old one is FREE
 *   up     SEALED -> copying -> the key is on the device; the old page is DETACHED while somebody
 *                               reads it, else FREE
 *   put    as down, of a page that is read: the old page is DETACHED while somebody reads it
 *   copy   SEALED or DETACHED -> copying -> a page that is GRANTED to a client has the bytes, of
 *                                           all planes or of some
 *   out    as copy, into a buffer of the caller's
 *   in     a buffer's bytes -> copying -> a page that is GRANTED to a client has them
 *              \-> given up: pinned (down), gone or stale by then, damaged, or the copy failed
 *
 * While it is copied a page can be found and read as ever; the new one is MOVING and nobody's (or,
 * of a copy, GRANTED as before). Bytes that lie below the device are those whose sum is in the
 * page's note (page_extra.content), or it is dropped and counted: what a transfer brings up was
 * compared with it.
 *
 * How the bytes get there is carry.h's, which takes several pages at once. transfer_work() draws
 * the consequences. Loop thread only.
 */
#ifndef KVL_CORE_TRANSFER_H
#define KVL_CORE_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/objects/transfer.h"

struct ns;
struct store;
struct extent_set;
struct carry;

/*
 * `from` is SEALED, not stale and in no window (of a COPY: SEALED or DETACHED). `to` is MOVING, on
 * the device for UP and below `from` for DOWN and PUT; of a COPY it is GRANTED. The policy is told
 * that `from` is locked (not of a COPY). Urgent: somebody waits. 0: it goes with the next
 * transfer_start() or transfer_work(); how it ends is told to fetch.h (but of DOWN). -EBUSY: there
 * is no mover; -ENOMEM: nothing was done, `to` is as it was.
 */
int transfer_begin(
        struct ns *ns, enum transfer_kind kind, uint32_t from, uint32_t to, bool is_urgent);

/* The same for an urgent COPY of some planes, at least one of the layout's: the others of `to` stay
 * as they are. */
int transfer_begin_copy(struct ns *ns, uint32_t from, uint32_t to, struct plane_range planes);

/*
 * The bytes of a page, in whatever tier it lies, are copied into a buffer (`from` is SEALED or
 * DETACHED), or those of a buffer into a page of the device (`to` is GRANTED). In the buffer they
 * have the form in which pages leave the host (page_travel_form()). 0: *ret_transfer,
 * which owns the buffer's bytes, is under way, and ends with buffer.done(): a result of 0 says that
 * these are the page's bytes, as nobody else was granted it meanwhile, and of IN that it is GRANTED
 * still. -EDOM of OUT: a number isn't finite, and its codec doesn't take it; -EBADMSG of IN: no
 * encoder makes such bytes, and the page is zeros. -EBUSY; -ENOMEM: as transfer_begin(), and the
 * buffer is the caller's still.
 */
int transfer_begin_out(struct ns *ns, uint32_t from, const struct transfer_buffer *buffer,
        bool is_urgent, struct transfer **ret_transfer);
int transfer_begin_in(struct ns *ns, uint32_t to, const struct transfer_buffer *buffer,
        bool is_urgent, struct transfer **ret_transfer);

/* Of OUT or IN: nobody wants to know how it ends, and buffer.done() isn't called. It frees the
 * buffer's bytes when it is over. */
void transfer_let_go(struct transfer *t);

/* What was begun goes on its way, pages that go the same way together. True: some of it can't yet.
 */
bool transfer_start(struct store *s);

/* Of this page, down or up; NULL: none is under way. */
struct transfer *transfer_find(const struct ns *ns, uint32_t from);

/* Somebody waits for it by now. */
void transfer_hurry(struct transfer *t);

/* What is on its way down is a victim again at once: a lease lacks pages. False: there was none. */
bool transfer_call_off(struct ns *ns);

/* Nobody wants the transfer any more: it ends as soon as it can, and its bytes are of no use. */
void transfer_stop_wanting(struct transfer *t);

/* The namespace goes, and its sets: nothing of the mover's touches them when it returns. That takes
 * at most a piece of a copy (mover.h). */
void transfer_forget_ns(struct ns *ns);

/* All of them, after the devices' end. */
void transfer_deinit(struct store *s);

/* Of one kind, under way. */
uint32_t transfer_count(const struct ns *ns, enum transfer_kind kind);

/* For the checker: MOVING pages of the namespace that are known here; is the page one? */
uint64_t transfer_count_moving(const struct ns *ns);
bool transfer_moves_to(const struct ns *ns, uint32_t page);

/* All transfers end whose bytes are there, or won't be. */
void transfers_end(struct store *s);

#endif
