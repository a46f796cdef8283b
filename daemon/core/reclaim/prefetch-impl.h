/*
 * Internals of prefetch.h, shared by prefetch.c (guesses under way, promotions), prefetch-guess.c
 * (choosing texts) and warm.c. Loop thread only.
 */
#ifndef KVL_CORE_PREFETCH_IMPL_H
#define KVL_CORE_PREFETCH_IMPL_H

#include "daemon/core/reclaim/prefetch.h"

/* Does the namespace have a lower tier, and a policy that knows tiers? */
bool prefetch_is_possible(const struct ns *ns);

/* Returns NULL without memory. */
struct prefetching *prefetch_get(struct ns *ns);

enum bring {
        BRING_DONE,  /* all pages are begun */
        BRING_MORE,  /* call again when a transfer has ended */
        BRING_LATER, /* no more of this kind for now (prefetch_may()) */
        BRING_FULL,  /* no space, and no page of less value to demote */
        BRING_STUCK, /* a page of it can't be promoted */
};

/* Begins to promote pages of the text that ends at `page`, which is cached: those in lower tiers
 * behind `after` (PAGE_NONE: all), from the beginning on. May bind sets and demote pages of the
 * device; drops no page from the device that can be found. */
enum bring prefetch_bring(struct ns *ns, enum prefetch_kind kind, uint32_t page, uint32_t after);

/* Ends guesses that weren't used for too long: they were wrong. Returns true if others are left. */
bool prefetch_end_old(struct ns *ns);

/* Begins to promote pages of expected texts. Returns true if there is more. */
bool prefetch_guess(struct ns *ns);

#endif
