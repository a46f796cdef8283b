#include "daemon/core/state/page-state.h"

#include <assert.h>

#include "daemon/core/state/listeners.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/shared.h"

/* Changes the record first: clients' view is rebuilt from it. */
static void change_state(struct ns *ns, uint32_t page, uint64_t generation, enum page_state s)
{
        struct ns_tier *tier = ns_set_of(ns, page)->tier;
        struct page *p = ns_page(ns, page);
        bool shows = page_is_shown(p->state) || page_is_shown(s);

        assert(tier->n_pages[p->state] > 0);
        if (tier == &ns->tiers[TIER_DISK] && page_is_shown(p->state) && !page_is_shown(s) &&
                p->epoch == (uint32_t)ns->epoch) /* older pages were dropped as a whole */
                ns->store->listeners->page_leaves_disk(ns, page);
        tier->n_pages[p->state]--;
        if (!page_is_shown(p->state) && page_is_shown(s)) /* it is in no list any more */
                p->n_pins = 0;
        page_turn(p, generation, s);
        tier->n_pages[s]++;
        if (shows)
                shared_show_state(ns, page);
}

void ns_set_state(struct ns *ns, uint32_t page, enum page_state s)
{
        change_state(ns, page, ns_page(ns, page)->generation, s);
}

void ns_set_granted(struct ns *ns, uint32_t page, enum page_state s)
{
        change_state(ns, page, ns_page(ns, page)->generation + 1, s);
}
