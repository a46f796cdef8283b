#include "daemon/core/clients/grants.h"

#include <assert.h>
#include <errno.h>

#include "base/clock.h"
#include "base/fault-point.h"
#include "base/probe.h"
#include "daemon/core/cache/announced.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/pool.h"
#include "daemon/core/state/tenant.h"

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
                        "%u members of the group have namespace %s open: only the last one left can say what the group holds",
                        g->n_attach, a->ns->name);
        if (continues && !g->is_reporting)
                return detail_set(d, -ESTALE,
                        "kvleased knows no beginning of this report for namespace %s: begin it anew",
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

/* ---- magazines ------------------------------------------------------------------------------- */

/* Not tuned: some 10 ms between two refills mean a client in a prefill, a second one that has
 * stopped. The level rises from 8 to 1024 in seven refills. */
#define FAST_NSEC (10 * NSEC_PER_MSEC)
#define SLOW_NSEC (1000 * NSEC_PER_MSEC)

/* All magazines of a namespace take at most 1/4 of the pages that the tenant can have, and one of
 * them half of that. Not tuned. */
#define SHARE_OF_REACH 4

static uint32_t load_slot(const struct attach *a, uint32_t slot)
{
        return atomic_load_explicit(&a->share.magazine[slot], memory_order_acquire);
}

/* Removes the page of the slot from the magazine's state. */
static void forget_page(struct attach *a, uint32_t slot)
{
        struct magazine *m = a->magazine;
        struct page *p = ns_page(a->ns, m->pages[slot] - 1);

        p->ready = 0;
        p->tokens = 0;
        m->n_pages--;
        a->ns->clients.n_ready--;
        ns_set_of(a->ns, m->pages[slot] - 1)->n_ready--;
        m->pages[slot] = 0;
}

bool magazine_sync(struct attach *a)
{
        struct magazine *m = a->magazine;
        bool was_tampered = m->tampered;

        for (uint32_t slot = 0; slot < SHM_MAGAZINE_SLOTS; slot++) {
                uint32_t now = load_slot(a, slot);

                if (now == m->pages[slot])
                        continue;
                /* A client that obeys the rules only changes a page to 0. */
                m->tampered |= now != 0;
                if (m->pages[slot] != 0)
                        forget_page(a, slot);
        }
        return was_tampered || !m->tampered;
}

bool magazine_is_claimed(struct grants *g, uint32_t page)
{
        uint32_t slot = ns_page(g->ns, page)->tokens;

        list_for_each (a, &g->ns->clients.attachments, struct attach, ns_link) {
                if (a->grants != g || !a->magazine || a->magazine->pages[slot] != page + 1)
                        continue;
                if (load_slot(a, slot) == page + 1)
                        return false;
                forget_page(a, slot);
                return true;
        }
        assert(false); /* ready pages are in a magazine of their group */
        return true;
}

void magazine_show(struct attach *a, int64_t n_more)
{
        struct magazine *m = a->magazine;

        m->n_put += (uint64_t)n_more;
        atomic_store_explicit(&a->share.header->n_put, m->n_put, memory_order_release);
        atomic_store_explicit(&a->share.header->level, m->level, memory_order_release);
}

/* Takes back unclaimed pages until n_left are left: of all, or of those in recalled sets. */
static uint32_t drain_magazine(struct attach *a, bool only_recalled, uint32_t n_left)
{
        struct magazine *m = a->magazine;
        uint32_t n = 0;

        for (uint32_t slot = 0; slot < SHM_MAGAZINE_SLOTS && m->n_pages > n_left; slot++) {
                uint32_t page = m->pages[slot] - 1;
                uint32_t found;

                if (m->pages[slot] == 0)
                        continue;
                if (only_recalled && ns_set_of(a->ns, page)->recall.state == RECALL_NONE)
                        continue;
                FAULT_POINT("magazine-before-drain");
                found = atomic_exchange_explicit(&a->share.magazine[slot], 0, memory_order_acq_rel);
                FAULT_POINT("magazine-after-drain");
                m->tampered |= found != 0 && found != page + 1;
                forget_page(a, slot);
                if (found != page + 1)
                        continue;
                grants_remove(a->grants, page);
                ns_free_page(a->ns, page);
                n++;
        }
        magazine_show(a, -(int64_t)n);
        if (n > 0)
                PROBE(kvleased, take_back, a->ns->tenant, a->ns, a->member->id, n);
        return n;
}

uint32_t magazine_drain(struct attach *a)
{
        return drain_magazine(a, false, 0);
}

static uint32_t drain_ns(struct ns *ns, bool only_recalled)
{
        uint32_t n = 0;

        if (ns->clients.n_ready == 0)
                return 0;
        list_for_each (a, &ns->clients.attachments, struct attach, ns_link)
                if (a->magazine)
                        n += drain_magazine(a, only_recalled, 0);
        return n;
}

uint32_t magazine_drain_ns(struct ns *ns)
{
        return drain_ns(ns, false);
}

uint32_t magazine_drain_recalled(struct ns *ns)
{
        return drain_ns(ns, true);
}

/* Returns the time since the last refill; for a recovered magazine, since the first look. */
static uint64_t pause_of(struct magazine *m, uint64_t now_nsec)
{
        if (m->refill_nsec == 0)
                m->refill_nsec = now_nsec;
        return now_nsec - m->refill_nsec;
}

/* Returns the level after a pause. */
static uint32_t level_after(const struct magazine *m, uint64_t pause_nsec)
{
        uint64_t n = MIN(pause_nsec / SLOW_NSEC, UINT64_C(31));

        return n == 0 ? m->level : MAX(m->level >> n, MAGAZINE_LEVEL_MIN);
}

uint32_t magazine_trim_idle(struct ns *ns, uint64_t now_nsec)
{
        uint32_t n = 0;

        if (ns->clients.n_ready <= MAGAZINE_LEVEL_MIN)
                return 0;
        list_for_each (a, &ns->clients.attachments, struct attach, ns_link) {
                uint64_t pause = a->magazine ? pause_of(a->magazine, now_nsec) : 0;

                if (pause >= SLOW_NSEC)
                        n += drain_magazine(a, false, level_after(a->magazine, pause));
        }
        return n;
}

/* Enters the page into the magazine's state. */
static void note_page(struct attach *a, uint32_t slot, uint32_t page)
{
        struct magazine *m = a->magazine;
        struct page *p = ns_page(a->ns, page);

        p->ready = 1;
        p->tokens = (uint16_t)slot;
        m->pages[slot] = page + 1;
        m->n_pages++;
        a->ns->clients.n_ready++;
        ns_set_of(a->ns, page)->n_ready++;
}

static void put_page(struct attach *a, uint32_t slot)
{
        uint32_t page = grants_take_page(a, 0);

        note_page(a, slot, page);
        FAULT_POINT("magazine-before-put");
        atomic_store_explicit(&a->share.magazine[slot], page + 1, memory_order_release);
        FAULT_POINT("magazine-after-put");
}

uint32_t magazine_put_pages(struct attach *a, uint32_t n)
{
        uint32_t n_put = 0;

        for (uint32_t slot = 0; slot < SHM_MAGAZINE_SLOTS && n_put < n; slot++)
                if (a->magazine->pages[slot] == 0 && load_slot(a, slot) == 0) {
                        put_page(a, slot);
                        n_put++;
                }
        return n_put;
}

/* Was the page put into this magazine by a daemon, and is it in no other slot? */
static bool was_put(const struct attach *a, uint32_t page)
{
        const struct page *p = ns_page(a->ns, page);

        return p && p->state == PAGE_GRANTED && p->owner == a->grants->group->id && !p->ready &&
               ns_note(a->ns, page)->client == a->member->id && ns_note(a->ns, page)->seq == 0;
}

void magazine_adopt(struct attach *a)
{
        struct magazine *m = a->magazine;

        for (uint32_t slot = 0; slot < SHM_MAGAZINE_SLOTS; slot++) {
                uint32_t found = load_slot(a, slot);

                if (found == 0)
                        continue;
                if (was_put(a, found - 1))
                        note_page(a, slot, found - 1);
                else
                        (void)atomic_compare_exchange_strong(&a->share.magazine[slot], &found, 0);
        }
        /* Loads n_taken after the slots: pages that the client claims and counts meanwhile make
         * n_put too large, not too small. */
        m->n_put = atomic_load(&a->share.header->n_taken) + m->n_pages;
        m->level = MIN(atomic_load(&a->share.header->level), (uint32_t)SHM_MAGAZINE_SLOTS);
        magazine_show(a, 0);
}

void magazine_adapt_level(struct attach *a, uint64_t reach, uint64_t now_nsec)
{
        struct magazine *m = a->magazine;
        uint64_t most = MIN(reach / SHARE_OF_REACH / 2, (uint64_t)SHM_MAGAZINE_SLOTS);
        uint64_t since = pause_of(m, now_nsec);

        if (m->level == 0)
                m->level = MAGAZINE_LEVEL_MIN;
        else if (since < FAST_NSEC)
                m->level *= 2;
        else
                m->level = level_after(m, since);
        m->level = (uint32_t)MIN((uint64_t)m->level, most);
        m->refill_nsec = now_nsec;
}

/* Returns the pages that it lacks to have `target`. */
uint32_t magazine_shortage(const struct attach *a, uint64_t target, uint64_t reach)
{
        const struct magazine *m = a->magazine;
        uint64_t most_ready = reach / SHARE_OF_REACH;
        uint64_t most = MIN(most_ready / 2, (uint64_t)SHM_MAGAZINE_SLOTS);

        target = MIN(target, most);
        if (target <= m->n_pages || a->ns->clients.n_ready >= most_ready)
                return 0;
        return (uint32_t)MIN(target - m->n_pages, most_ready - a->ns->clients.n_ready);
}
