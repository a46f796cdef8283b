/*
 * A page of a device that other threads, outside of the core, fill in place: data of other hosts is
 * received there.
 *
 *   begun -> ended: the page is GRANTED to its client as before, with the written bytes
 *      \-> the page is given back: MOVING, without an owner -> ended: FREE
 *
 * No other client gets the page before the end, and its set stays bound. Loop thread only.
 */
#ifndef KVL_CORE_FILL_H
#define KVL_CORE_FILL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "daemon/core/state/moving.h"

/* Are the namespace's pages mapped in this process (no device behind a queue), in the form in which
 * they are sent to other hosts (page_travel_form())? */
bool fill_is_possible(const struct ns *ns);

/* Begins to fill `page`, which is GRANTED; requires fill_is_possible(). `planes` gets the addresses
 * to write to, one for each plane of the layout. Returns 0 with *ret_fill, which ends with
 * fill_end() or writer.stop(); -ENOMEM; -EBUSY: it is being filled already (nothing changed). */
int fill_begin(struct ns *ns, uint32_t page, const struct fill_writer *writer, struct iovec *planes,
        struct fill **ret_fill);

/* Ends a fill whose writer has stopped. Returns 0: the page is still GRANTED; -ECANCELED: it isn't.
 * Drain the idle list afterwards (idle-sets.h). */
int fill_end(struct fill *f);

/* The namespace is being freed: stops all its fills. Waits until the writers have stopped. */
void fill_forget_ns(struct ns *ns);

/* For the checker: returns the number of the namespace's MOVING pages that are being filled; is the
 * page one? */
uint64_t fill_count_moving(const struct ns *ns);
bool fill_has_moving(const struct ns *ns, uint32_t page);

#endif
