#include "daemon/core/reclaim/sweep.h"

#include "daemon/core/cache/pages.h"
#include "daemon/core/sessions/session.h"

bool ns_sweep(struct ns *ns, uint32_t budget)
{
        uint32_t set_pages = ns->geometry.set_pages;
        bool more = sessions_sweep(ns, &budget);

        for (; budget > 0 && ns->catalog.n_stale > 0; budget--) {
                if (ns->catalog.sweep_page >= ns->geometry.capacity_pages)
                        ns->catalog.sweep_page = 0;
                if (ns_page(ns, ns->catalog.sweep_page))
                        ns_sweep_page(ns, ns->catalog.sweep_page++);
                else /* the rest of a set that isn't bound */
                        ns->catalog.sweep_page += set_pages - ns->catalog.sweep_page % set_pages;
        }
        return more || ns->catalog.n_stale > 0;
}
