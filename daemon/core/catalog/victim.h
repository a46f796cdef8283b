/*
 * Which page of a namespace goes next: the eviction policy's answer, with what is expected
 * (policy/expect.h) kept out of it. Whoever takes a page away that the policy chooses asks here.
 * Loop thread only.
 */
#ifndef KVL_CORE_VICTIM_H
#define KVL_CORE_VICTIM_H

#include "daemon/core/objects/ns.h"
#include "daemon/core/objects/store.h"
#include "policy/expect.h"

/* evict_ops.victim(). NODE_NONE: none can go, or none that isn't expected: ns_yield_expected(). */
static inline uint32_t ns_victim(struct ns *ns, enum tier_kind kind, enum evict_how how)
{
        uint64_t now_nsec = ns_store(ns)->now_nsec;

        expect_settle(ns->expect, now_nsec);
        return ns->evict->victim(ns->policy, kind, how, now_nsec);
}

/* Somebody needs the place, and ns_victim() named none. True: a page of an expected text may go
 * from now on, and ns_victim() is to be asked again. False comes in the end. */
static inline bool ns_yield_expected(struct ns *ns, enum tier_kind kind, enum evict_how how)
{
        return expect_yield(ns->expect, kind, how);
}

#endif
