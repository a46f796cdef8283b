/*
 * Why a page leaves the cache. The function that drops a page gives the reason, which is passed to
 * all modules that handle the drop: policies, the history of keys, the event log, namespace sets.
 */
#ifndef KVL_CORE_DROP_REASON_H
#define KVL_CORE_DROP_REASON_H

#include "policy/evict.h"

struct tenant;

/* The operation that drops a page. docs/reference/PROBES.md has the numbers. */
enum drop_cause {
        CAUSE_NONE, /* eviction */
        CAUSE_KEY,  /* kvl_invalidate() */
        CAUSE_TAG,
        CAUSE_SESSION,
        CAUSE_NAMESPACE,
        CAUSE_PURGE,      /* an administrator */
        CAUSE_RECALL,     /* memory is taken back */
        CAUSE_INCOMPLETE, /* the page's namespace set lacks parts */
        CAUSE_EXPIRED,
        CAUSE_DAMAGED,  /* in a lower tier */
        CAUSE_HOST,     /* invalidated on another host */
        CAUSE_MISMATCH, /* kvl_invalidate_mismatch() */
};

struct drop_reason {
        enum evict_reason why; /* reported to policies */
        enum drop_cause cause;
        const struct tenant *by; /* EVICT_PRESSURE: the tenant whose lease evicts the page, borrowed
                                    for the call; NULL: none */
};

#endif
