/*
 * The next page to evict: the eviction policy's choice, without expected pages (policy/expect.h).
 * All code that evicts by the policy uses these functions. Loop thread only.
 */
#ifndef KVL_CORE_VICTIM_H
#define KVL_CORE_VICTIM_H

#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "policy/expect.h"

/* Calls evict_ops.victim(). NODE_NONE: no page can be evicted, or only expected ones: see
 * ns_yield_expected(). */
static inline uint32_t ns_victim(struct ns *ns, enum tier_kind kind, enum evict_how how)
{
        uint64_t now_nsec = ns->store->now_nsec;

        expect_prune(ns->expect, now_nsec);
        return ns->evict->victim(ns->policy, kind, how, now_nsec);
}

/* A caller needs the space, and ns_victim() returned none. Returns true if an expected text may
 * lose pages from now on: call ns_victim() again. Repeated calls return false in the end. */
static inline bool ns_yield_expected(struct ns *ns, enum tier_kind kind, enum evict_how how)
{
        return expect_yield(ns->expect, kind, how);
}

#endif
