/* The state of automatic sizing of a tenant's reservation: lifetimes/sizing.h. */
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

/* Owned by its tenant. */
struct sizing {
        struct sizing_attrs attrs;
        struct sizer *sizer; /* owned; NULL: none needed */
        /* The latest decision. "hold" and "at-min" after a moved reservation leave its reason. */
        struct sizer_decision last;
        bool last_moved;               /* `last` moved the reservation */
        struct detail refusal;         /* SIZER_REFUSED: which tenant has the memory */
        uint64_t decided_nsec;         /* time of the first decision equal to `last`; 0: none */
        uint64_t n_changes;            /* reservations moved, since start */
        uint64_t min_bytes, max_bytes; /* in force now: the schedule's, or attrs'; whole steps, at
                                          most the tenant's limit */
        uint64_t reserved_bytes;       /* at the last look */
        uint32_t n_samples;
};

#endif
