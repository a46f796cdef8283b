/*
 * What an attachment's lease waits for, if it waits: quota/wait.h.
 */
#ifndef KVL_CORE_OBJECTS_WAIT_H
#define KVL_CORE_OBJECTS_WAIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/core/objects/stake.h"

/*
 * Of one attachment, embedded; n_wanted 0: it waits for nothing. While its lease is tried (again)
 * it isn't in the list, but keeps what the order goes by: number, arrived, deadline.
 */
struct wait {
        struct list_link link; /* store.waits, in no order */
        uint32_t n_wanted;     /* pages */
        uint32_t n_asked;      /* the same, also while it isn't in the list */
        uint64_t number;       /* of arrival */
        uint64_t arrived_nsec;
        uint64_t deadline_nsec;   /* UINT64_MAX: none */
        enum lease_reason reason; /* what it waits for: DEVICE, or room */
        enum lease_reason told; /* what is said of it: what it waited for last that wasn't DEVICE */
        bool deserves;          /* when it was tried last: by fair share, or within a reservation */
};

/* Does it wait for room (not only for a device)? */
static inline bool wait_is_for_room(const struct wait *w)
{
        return w->n_wanted > 0 && w->reason != LEASE_REASON_DEVICE;
}

#endif
