/* The insides of prefetch.h, shared by prefetch.c (what is at stake, and how a page comes up),
 * prefetch-guess.c (which) and warm.c. Loop thread only. */
#ifndef KVL_CORE_PREFETCH_IMPL_H
#define KVL_CORE_PREFETCH_IMPL_H

#include "daemon/core/tiers/prefetch.h"

/* Has the namespace anything below its device, with a policy that knows tiers? */
bool prefetch_is_possible(const struct ns *ns);

/* NULL: no memory. */
struct prefetching *prefetch_get(struct ns *ns);

enum bring {
        BRING_DONE,  /* nothing of it is left to be begun */
        BRING_MORE,  /* call again when something has ended */
        BRING_LATER, /* no more of this kind for now (prefetch_may()) */
        BRING_FULL,  /* no room that anybody would miss less */
        BRING_STUCK, /* a page of it can't come up */
};

/*
 * Of the text that ends at `page`, which is cached, what lies below the device and behind `after`
 * (PAGE_NONE: all of it), from its beginning on. Sets may be bound, and pages of the device may be
 * on their way down, after; nothing that can be found goes from the device.
 */
enum bring prefetch_bring(struct ns *ns, enum prefetch_kind kind, uint32_t page, uint32_t after);

/* Guesses that weren't used for too long are wrong. True: others are at stake. */
bool prefetch_end_old(struct ns *ns);

/* What is expected there. True: there is more. */
bool prefetch_guess(struct ns *ns);

#endif
