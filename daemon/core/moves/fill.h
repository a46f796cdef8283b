/*
 * A page of a device that is filled where it lies, by threads that the core knows nothing of: what
 * other hosts have is received there (remote/exchange-io.h).
 *
 *   begun -> ended: the page is GRANTED to whom it was, with what was written
 *      \-> the page is given back: MOVING, and nobody's -> ended: FREE
 *
 * The page is nobody else's before the end, and its set stays where it is. Loop thread only.
 */
#ifndef KVL_CORE_FILL_H
#define KVL_CORE_FILL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "daemon/core/objects/fill.h"

/* Do the bytes of the namespace's pages lie in this process (no device behind a queue), in the form
 * in which they leave and enter the host (page_travel_form())? */
bool fill_is_possible(const struct ns *ns);

/*
 * `page` is GRANTED, and fill_is_possible(). Where its bytes are to be written is in `planes`, one
 * of each plane of the layout. 0, with *ret_fill, which ends with fill_end() or with writer.stop();
 * -ENOMEM; -EBUSY: it is being filled already; both with nothing done.
 */
int fill_begin(struct ns *ns, uint32_t page, const struct fill_writer *writer, struct iovec *planes,
        struct fill **ret_fill);

/* Nobody writes there any more. 0: the page is GRANTED as it was; -ECANCELED: it isn't. The
 * sets are to be settled after it (settle.h). */
int fill_end(struct fill *f);

/* The namespace goes: all that is under way in it is stopped. That takes as long as who writes
 * needs to let go (remote_take_back()). */
void fill_forget_ns(struct ns *ns);

/* For the checker: MOVING pages of the namespace that are being filled; is the page one? */
uint64_t fill_count_moving(const struct ns *ns);
bool fill_has_moving(const struct ns *ns, uint32_t page);

#endif
