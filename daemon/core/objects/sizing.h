/*
 * What of a tenant's reservation is sized by the daemon itself: lifetimes/sizing.h.
 */
#ifndef KVL_CORE_OBJECTS_SIZING_H
#define KVL_CORE_OBJECTS_SIZING_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/ground/detail.h"
#include "policy/schedule.h"
#include "policy/sizer.h"

enum sizing_mode { SIZING_OFF, SIZING_DRY_RUN, SIZING_ON };

struct sizing_attrs {
        enum sizing_mode mode;
        uint64_t min_bytes, max_bytes; /* min <= max */
        struct schedule schedule;
};

/* Of a tenant; owned by it. */
struct sizing {
        struct sizing_attrs attrs;
        struct sizer *sizer; /* owned; NULL: none needed */
        /* Of now; but "hold" and "at-min" after what moved the reservation leave its reason. */
        struct sizer_decision last;
        bool last_moved;               /* `last` moved the reservation */
        struct detail refusal;         /* SIZER_REFUSED: who has the memory */
        uint64_t decided_nsec;         /* since when `last` is that; 0: none */
        uint64_t n_changes;            /* reservations moved, since start */
        uint64_t min_bytes, max_bytes; /* in force now: the schedule's, or attrs'; whole steps, at
                                          most the tenant's limit */
        uint64_t reserved_bytes;       /* when it was looked at last */
        uint32_t n_samples;
};

#endif
