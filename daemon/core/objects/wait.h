/* The waiting lease of an attachment: quota/wait.h. */
#ifndef KVL_CORE_OBJECTS_WAIT_H
#define KVL_CORE_OBJECTS_WAIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/core/objects/stake.h"

/* Embedded in an attachment; n_wanted 0: no lease waits. While the lease is tried (again), the wait
 * isn't in the list, but keeps the fields that the order depends on: number, arrived, deadline. */
struct wait {
        struct list_link link; /* store.waits, unordered */
        uint32_t n_wanted;     /* pages that the lease wants */
        uint32_t n_asked;      /* n_wanted, kept while the wait isn't in the list */
        uint64_t number;       /* order of arrival */
        uint64_t arrived_nsec;
        uint64_t deadline_nsec;   /* UINT64_MAX: none */
        enum lease_reason reason; /* DEVICE, or a lack of memory */
        enum lease_reason told;   /* the reason reported: the last one that wasn't DEVICE */
        bool deserves;            /* at the last try: entitled by fair share or reservation */
};

/* Does the lease wait for memory (not only for a device)? */
static inline bool wait_is_for_room(const struct wait *w)
{
        return w->n_wanted > 0 && w->reason != LEASE_REASON_DEVICE;
}

#endif
