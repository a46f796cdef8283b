#include "daemon/core/reclaim/leasable.h"

#include "base/macros.h"
#include "daemon/core/clients/attach.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/reclaim/room.h"
#include "daemon/core/state/shared.h"

/* With so many clients, a page that isn't held costs as much as a held one. Not tuned. */
#define FULL_CLIENTS 64

void leasable_begin(struct ns *ns)
{
        struct store *s = ns->store;

        list_append(&s->leasables.namespaces, &ns->periodic.leasable.link);
        s->leasables.n++;
}

void leasable_end(struct ns *ns)
{
        list_remove(&ns->periodic.leasable.link);
        ns->store->leasables.n--;
}

/* Returns the held SEALED pages of a run in a set; *ret_looked: it looked at each of them, because
 * one may be held. */
static uint32_t count_held(const struct ns *ns, uint32_t first, uint32_t n, bool *ret_looked)
{
        bool any = shared_run_is_pinned(ns, first, n);
        uint32_t n_held = 0;

        *ret_looked = any || ns->device.n_pinned > 0;
        if (!*ret_looked)
                return 0;
        for (uint32_t page = first; page < first + n; page++) {
                const struct page *p = ns_page(ns, page);

                n_held += p->state == PAGE_SEALED &&
                          (page_pins(p) > 0 || (any && shared_is_pinned(ns, page)));
        }
        return n_held;
}

static uint32_t count_attachments(const struct ns *ns)
{
        uint32_t n = 0;

        list_for_each (a, &ns->clients.attachments, struct attach, ns_link)
                n++;
        return n;
}

static void show_leasable(struct ns *ns)
{
        _Atomic uint32_t *shown = &ns->shared.header->leasable;
        uint32_t n = leasable_pages(ns) + 1;

        if (atomic_load_explicit(shown, memory_order_relaxed) != n)
                atomic_store_explicit(shown, n, memory_order_relaxed);
}

bool leasable_look(struct ns *ns, uint32_t *budget, bool is_idle)
{
        struct leasable *l = &ns->periodic.leasable;
        uint32_t n_clients = is_idle ? count_attachments(ns) : FULL_CLIENTS;
        uint32_t set_pages = ns->geometry.set_pages,
                 end = geometry_device_slots(&ns->geometry) * set_pages;

        while (*budget > 0 && l->page < end) {
                uint32_t left = set_pages - l->page % set_pages;
                uint32_t most = MIN(left, SHARED_RUN_PAGES), n = MIN(most, *budget);

                if (ns->sets.at[l->page / set_pages]) {
                        bool looked;

                        l->n_met += count_held(ns, l->page, n, &looked);
                        l->page += n;
                        if (!looked && n_clients < FULL_CLIENTS)
                                n = 1 + n * n_clients / FULL_CLIENTS;
                        *budget -= MIN(n, *budget);
                } else {
                        l->page += left;
                        *budget -= 1;
                }
        }
        if (l->page >= end) {
                l->n_held = l->n_met;
                l->page = l->n_met = 0;
        }
        show_leasable(ns);
        return l->page == 0;
}

uint32_t leasables_look(struct store *s, uint32_t n_namespaces, uint32_t *budget, bool is_idle)
{
        uint32_t n = 0;

        while (n<n_namespaces && * budget> 0 && !list_is_empty(&s->leasables.namespaces)) {
                struct ns *ns =
                        list_first(&s->leasables.namespaces, struct ns, periodic.leasable.link);

                if (!leasable_look(ns, budget, is_idle))
                        break;
                list_remove(&ns->periodic.leasable.link);
                list_append(&s->leasables.namespaces, &ns->periodic.leasable.link);
                n++;
        }
        return n;
}

uint32_t leasable_pages(const struct ns *ns)
{
        uint64_t sealed = ns->device.n_pages[PAGE_SEALED];
        uint64_t idle = sealed - MIN(sealed, (uint64_t)ns->periodic.leasable.n_held);

        return (uint32_t)MIN(room_leasable(ns, idle), (uint64_t)SHARED_MAX_PAGES);
}
