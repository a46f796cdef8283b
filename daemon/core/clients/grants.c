#include "daemon/core/clients/grants.h"

#include <assert.h>
#include <errno.h>

#include "daemon/core/cache/announced.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/clients/magazine.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/state/ns.h"

void grants_add(struct grants *g, uint32_t page)
{
        struct page *p = ns_page(g->ns, page);

        assert(p->state == PAGE_GRANTED && p->owner == g->group->id);

        p->prev = PAGE_NONE;
        p->next = g->head;
        if (g->head != PAGE_NONE)
                ns_page(g->ns, g->head)->prev = page;
        g->head = page;
        g->n_pages++;
}

void grants_remove(struct grants *g, uint32_t page)
{
        struct page *p = ns_page(g->ns, page);

        assert(p->state == PAGE_GRANTED && p->owner == g->group->id);

        list_for_each (a, &g->closing, struct attach, grants_link)
                if (a->grants_at == page)
                        a->grants_at = p->next;
        if (p->prev != PAGE_NONE)
                ns_page(g->ns, p->prev)->next = p->next;
        else
                g->head = p->next;
        if (p->next != PAGE_NONE)
                ns_page(g->ns, p->next)->prev = p->prev;
        p->prev = p->next = PAGE_NONE;
        g->n_pages--;
        g->n_given_back -= p->given_back;
        p->given_back = 0;
}

void grants_take(struct attach *a, uint32_t page, uint32_t seq)
{
        const struct page_use use = {.state = PAGE_GRANTED,
                .owner = a->grants->group->id,
                .client = a->member->id,
                .seq = seq};

        set_take(ns_set_of(a->ns, page), page, &use);
        grants_add(a->grants, page);
}

uint32_t grants_take_page(struct attach *a, uint32_t seq)
{
        struct extent_set *set = list_first(&a->ns->device.sets_room, struct extent_set, room_link);
        uint32_t page = set->free_head;

        grants_take(a, page, seq);
        return page;
}

int grants_check_page(const struct attach *a, uint32_t page, struct detail *d)
{
        const struct page *p = ns_page(a->ns, page);

        if (!p)
                return detail_set(
                        d, -EINVAL, "page %u isn't bound in namespace %s", page, a->ns->name);
        if (p->state != PAGE_GRANTED)
                return detail_set(
                        d, -EINVAL, "page %u is %s, not granted", page, page_state_name(p->state));
        if (p->owner != a->grants->group->id)
                return detail_set(d, -EINVAL, "page %u is granted to another group", page);
        if (p->given_back)
                return detail_set(d, -EINVAL, "page %u was given back", page);
        if (p->ready && !magazine_is_claimed(a->grants, page))
                return detail_set(
                        d, -EINVAL, "page %u lies in a magazine, and is not leased", page);
        return 0;
}

bool grants_may_be_written(const struct grants *g, uint32_t page)
{
        uint32_t set = page / g->ns->geometry.set_pages;

        if (g->group->n_lingering == 0)
                return false;
        list_for_each (a, &g->ns->clients.attachments, struct attach, ns_link)
                if (a->grants == g && a->member->lingers && map_find(&a->mapped, set))
                        return true;
        return false;
}

void grants_give_back(struct grants *g, uint32_t page)
{
        struct page *p = ns_page(g->ns, page);

        assert(p->state == PAGE_GRANTED && !p->ready && !p->given_back);

        announce_withdraw(g->ns, page);
        if (grants_may_be_written(g, page)) {
                p->given_back = 1;
                p->reported = 0;
                g->n_given_back++;
                return;
        }
        grants_remove(g, page);
        ns_free_page(g->ns, page);
}

/* ---- given back by the client ---- */

int free_pages(struct attach *a, const uint32_t *pages, uint32_t n, struct detail *d)
{
        uint32_t i;
        int r = 0;

        for (i = 0; i < n; i++) {
                r = grants_check_page(a, pages[i], d);
                if (r == 0 && ns_page(a->ns, pages[i])->mark)
                        r = detail_set(d, -EINVAL, "page %u stands in the list twice", pages[i]);
                if (r < 0)
                        break;
                ns_page(a->ns, pages[i])->mark = 1;
        }
        while (i-- > 0)
                ns_page(a->ns, pages[i])->mark = 0;
        if (r < 0)
                return r;
        for (i = 0; i < n; i++)
                grants_give_back(a->grants, pages[i]);
        return 0;
}

void free_pages_again(struct attach *a, const uint32_t *pages, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++)
                if (grants_check_page(a, pages[i], NULL) == 0 &&
                        ns_note(a->ns, pages[i])->client == a->member->id)
                        grants_give_back(a->grants, pages[i]);
}

/* ---- reported ---- */

/* Forgets the report under way. */
static void forget_report(struct grants *g)
{
        uint32_t page = g->is_reporting ? g->head : PAGE_NONE;

        for (; page != PAGE_NONE; page = ns_page(g->ns, page)->next)
                ns_page(g->ns, page)->reported = 0;
        g->is_reporting = false;
}

/* The group has no other member in the namespace, so none lingers. */
static uint64_t free_unreported(struct grants *g)
{
        uint32_t next = g->head;
        uint64_t n = 0;

        while (next != PAGE_NONE) {
                uint32_t page = next;
                struct page *p = ns_page(g->ns, page);

                next = p->next;
                if (p->reported || (p->ready && !magazine_is_claimed(g, page))) {
                        p->reported = 0;
                        continue;
                }
                grants_remove(g, page);
                ns_free_page(g->ns, page);
                n++;
        }
        return n;
}

int report_pages(struct attach *a, const uint32_t *pages, uint32_t n, bool continues, bool more,
        uint64_t *ret_freed, struct detail *d)
{
        struct grants *g = a->grants;

        *ret_freed = 0;
        if (g->n_attach > 1)
                return detail_set(d, -EBUSY,
                        "%u members of the group have namespace %s open: only the last one left "
                        "can say what the group holds",
                        g->n_attach, a->ns->name);
        if (continues && !g->is_reporting)
                return detail_set(d, -ESTALE,
                        "kvleased knows no beginning of this report for namespace %s: begin it "
                        "anew",
                        a->ns->name);
        if (!continues)
                forget_report(g);
        g->is_reporting = true;
        for (uint32_t i = 0; i < n; i++) {
                int r = grants_check_page(a, pages[i], d);

                if (r < 0) {
                        forget_report(g);
                        return r;
                }
                ns_page(a->ns, pages[i])->reported = 1;
        }
        if (more)
                return 0;
        *ret_freed = free_unreported(g);
        g->is_reporting = false;
        return 0;
}
