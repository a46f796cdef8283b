/* The part of the checker (check.c) for holds on pages and sets of a namespace. */
#include <string.h>

#include "base/list.h"
#include "daemon/core/check-impl.h"
#include "daemon/core/state/page.h"
#include "daemon/core/state/pin-counts.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/ns.h"
#include "proto/shm.h"

static void add_pins(struct checker *c, const struct attach *a, uint32_t first, uint32_t n)
{
        uint32_t iter = first, page;

        while (iter - first < n) {
                page = pin_counts_next(&a->pins, &iter, n - (iter - first));
                if (page == PAGE_NONE)
                        return;
                c->pins[page - first] += pin_counts_get(&a->pins, page);
        }
}

void check_sum_pins(struct checker *c, uint32_t first, uint32_t n)
{
        memset(c->pins, 0, sizeof(c->pins));
        list_for_each (a, &c->ns->clients.attachments, struct attach, ns_link)
                add_pins(c, a, first, n);
        list_for_each (a, &c->ns->clients.closing, struct attach, ns_link)
                add_pins(c, a, first, n);
}

static int count_pinned(struct checker *c, const struct attach *a)
{
        uint32_t iter = 0, page, n_pinned = 0;

        while ((page = pin_counts_next(&a->pins, &iter, UINT32_MAX)) != PAGE_NONE) {
                if (!ns_page(c->ns, page))
                        return BROKEN(c->d,
                                "client %llu pins page %u of namespace %s, which isn't bound",
                                llu(a->member->id), page, c->ns->name);
                n_pinned++;
        }
        if (n_pinned != a->pins.n_pinned)
                return BROKEN(c->d, "client %llu counts %u pinned pages of namespace %s, has %u",
                        llu(a->member->id), a->pins.n_pinned, c->ns->name, n_pinned);
        return 0;
}

int check_pin_counts(struct checker *c)
{
        int r = 0;

        list_for_each (a, &c->ns->clients.attachments, struct attach, ns_link) {
                if (a->ns != c->ns || a->member->group->tenant != c->ns->tenant)
                        return BROKEN(c->d,
                                "client %llu of another tenant has namespace %s/%s open",
                                llu(a->member->id), c->ns->tenant->name, c->ns->name);
                r = count_pinned(c, a);
                if (r < 0)
                        return r;
        }
        list_for_each (a, &c->ns->clients.closing, struct attach, ns_link) {
                r = task_is_queued(&a->task) ? count_pinned(c, a)
                                             : BROKEN(c->d, "what is closing waits for no turn");
                if (r < 0)
                        return r;
        }
        return 0;
}

int check_mapped(struct checker *c)
{
        const struct list_link *lists[] = {&c->ns->clients.attachments, &c->ns->clients.closing};
        uint64_t n_mapped = 0, n_entries = 0;
        struct map_slot slot;

        ns_for_each_set (set, c->ns) {
                uint32_t n = 0;

                for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
                        list_for_each (a, lists[i], struct attach, ns_link)
                                n += map_find(&a->mapped, set->index) != NULL;
                if (n != set->n_mapped)
                        return BROKEN(c->d,
                                "set %u of namespace %s/%s is mapped by %u clients, it says %u",
                                set->index, c->ns->tenant->name, c->ns->name, n, set->n_mapped);
                n_mapped += n;
        }
        for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
                list_for_each (a, lists[i], struct attach, ns_link)
                        for (size_t iter = 0; map_next(&a->mapped, &iter, &slot);)
                                n_entries++;
        return check_expect(c, "clients' entries of mapped sets", c->ns->name, n_entries, n_mapped);
}

/* Does a page that was given back have a reason to wait? */
static bool is_waited_for(const struct checker *c, const struct grants *g, uint32_t page)
{
        list_for_each (a, &c->ns->clients.attachments, struct attach, ns_link)
                if (a->member->group == g->group && a->member->lingers &&
                        map_find(&a->mapped, page / c->ns->geometry.set_pages))
                        return true;
        list_for_each (a, &g->closing, struct attach, grants_link)
                if (a->grants_at != PAGE_NONE)
                        return true;
        return false;
}

static int check_grant_list(struct checker *c, const struct grants *g)
{
        uint32_t page = g->head, before = PAGE_NONE, n = 0, n_given_back = 0;

        for (; page != PAGE_NONE && n <= g->n_pages; n++) {
                const struct page *p = ns_page(c->ns, page);

                if (!p || p->state != PAGE_GRANTED)
                        return check_page_broken(
                                c, page, "is among a group's grants but not granted");
                if (p->owner != g->group->id)
                        return check_page_broken(
                                c, page, "is in the grants of a group that isn't its owner");
                if (p->prev != before)
                        return check_page_broken(
                                c, page, "its neighbours among the grants disagree");
                if (p->given_back && !is_waited_for(c, g, page))
                        return check_page_broken(c, page, "was given back but isn't free");
                n_given_back += p->given_back;
                before = page;
                page = p->next;
        }
        if (page != PAGE_NONE || n != g->n_pages)
                return BROKEN(c->d, "group %u has not n_pages (%u) grants in namespace %s",
                        g->group->id, g->n_pages, c->ns->name);
        return check_expect(c, "grants given back", c->ns->name, g->n_given_back, n_given_back);
}

/* Every ready page lies in exactly one magazine, one of its group. */
int check_magazines(struct checker *c)
{
        uint64_t n_ready = 0;

        list_for_each (a, &c->ns->clients.attachments, struct attach, ns_link) {
                const struct magazine *m = a->magazine;
                uint32_t n = 0;

                if ((m != NULL) != pins_is_open(&a->share))
                        return BROKEN(c->d, "client %llu has a magazine or a pin segment alone",
                                llu(a->member->id));
                for (uint32_t slot = 0; m && slot < SHM_MAGAZINE_SLOTS; slot++) {
                        uint32_t page = m->pages[slot] - 1;
                        const struct page *p = ns_page(c->ns, page);

                        if (page == PAGE_NONE)
                                continue;
                        n++;
                        if (!p || !p->ready || p->tokens != slot ||
                                p->owner != a->grants->group->id)
                                return check_page_broken(
                                        c, page, "isn't ready as its magazine has it");
                }
                if (m && m->n_pages != n)
                        return BROKEN(c->d, "the magazine of client %llu has %u pages, not %u",
                                llu(a->member->id), n, m->n_pages);
                n_ready += n;
        }
        return check_expect(c, "pages in magazines", c->ns->name, n_ready, c->ns->clients.n_ready);
}

int check_grants(struct checker *c)
{
        uint64_t n_granted = 0;
        int r;

        list_for_each (group, &c->ns->tenant->groups, struct group, link)
                list_for_each (g, &group->grants, struct grants, link) {
                        uint32_t n_attach = 0;

                        if (g->ns != c->ns)
                                continue;
                        list_for_each (a, &c->ns->clients.attachments, struct attach, ns_link)
                                n_attach += a->grants == g && a->member->group == group;
                        r = check_expect(c, "attachments that share grants", c->ns->name,
                                g->n_attach, n_attach);
                        if (r == 0)
                                r = check_grant_list(c, g);
                        if (r < 0)
                                return r;
                        n_granted += g->n_pages;
                }
        return check_expect(c, "granted pages in groups' lists", c->ns->name, n_granted,
                c->ns->device.n_pages[PAGE_GRANTED]);
}
