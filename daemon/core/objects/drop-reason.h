/*
 * Why a page leaves the cache. Whoever drops a page says so, and it is handed down to all that are
 * told of the page: policies, the history of keys, the chronicle, namespace sets.
 */
#ifndef KVL_CORE_DROP_REASON_H
#define KVL_CORE_DROP_REASON_H

#include "policy/evict.h"

struct tenant;

/* What is going on when a page goes. The numbers are in docs/PROBES.md. */
enum drop_cause {
        CAUSE_NONE, /* room is made */
        CAUSE_KEY,  /* kvl_invalidate() */
        CAUSE_TAG,
        CAUSE_SESSION,
        CAUSE_NAMESPACE,
        CAUSE_PURGE,      /* an administrator */
        CAUSE_RECALL,     /* memory was taken back */
        CAUSE_INCOMPLETE, /* of a namespace set */
        CAUSE_EXPIRED,
        CAUSE_DAMAGED,  /* below the device */
        CAUSE_HOST,     /* invalidated on another host */
        CAUSE_MISMATCH, /* kvl_invalidate_mismatch() */
};

struct drop_reason {
        enum evict_reason why; /* as policies are told */
        enum drop_cause cause;
        const struct tenant *by; /* EVICT_PRESSURE: whose lease the page gives way to; borrowed for
                                    the call; NULL: nobody's */
};

#endif
