#include "daemon/core/state/ns.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "daemon/core/state/listeners.h"
#include "daemon/core/state/shared.h"
#include "daemon/core/state/store.h"
#include "daemon/tier/disk.h"

struct ns *ns_find(struct tenant *t, const char *name)
{
        list_for_each (ns, &t->namespaces, struct ns, link)
                if (strcmp(ns->name, name) == 0)
                        return ns;
        return NULL;
}

/* Returns the first namespace of the tenants after this link. */
static struct ns *first_after(struct store *s, struct list_link *tenant)
{
        for (tenant = tenant->next; tenant != &s->tenants; tenant = tenant->next) {
                struct tenant *t = list_entry(tenant, struct tenant, link);

                if (!list_is_empty(&t->namespaces))
                        return list_first(&t->namespaces, struct ns, link);
        }
        return NULL;
}

void ns_walk_begin(struct ns_walk *w, struct store *s)
{
        *w = (struct ns_walk){.ns = first_after(s, &s->tenants)};
        list_append(&s->ns_walks, &w->link);
}

void ns_walk_next(struct ns_walk *w)
{
        struct tenant *t = w->ns->tenant;

        if (w->ns->link.next != &t->namespaces)
                w->ns = list_entry(w->ns->link.next, struct ns, link);
        else
                w->ns = first_after(t->store, &t->link);
}

void ns_walk_end(struct ns_walk *w)
{
        list_remove(&w->link);
}

void ns_leave_walks(struct ns *ns)
{
        list_for_each (w, &ns->store->ns_walks, struct ns_walk, link) {
                if (w->ns != ns)
                        continue;
                ns_walk_next(w);
                w->n_freed++;
        }
}

struct extent_set *ns_next_set(const struct ns *ns, const struct extent_set *set)
{
        unsigned kind = set ? set_kind(set) : 0;
        const struct list_link *next = set ? set->link.next : ns->device.sets_bound.next;

        while (next == &ns->tiers[kind].sets_bound) {
                if (++kind == TIER_COUNT)
                        return NULL;
                next = ns->tiers[kind].sets_bound.next;
        }
        return container_of(next, struct extent_set, link);
}

const struct page_extra *ns_extra(const struct ns *ns, uint32_t page)
{
        static const struct page_extra none;

        return ns->records.notes[page].has_extra ? &ns->records.extras[page] : &none;
}

struct page_extra *ns_make_extra(struct ns *ns, uint32_t page)
{
        struct page_note *note = ns_note(ns, page);
        struct page_extra *extra = &ns->records.extras[page];

        if (!note->has_extra) {
                *extra = (struct page_extra){0};
                atomic_signal_fence(memory_order_seq_cst); /* before it counts */
                note->has_extra = 1;
        }
        return extra;
}

void ns_note_use(struct ns *ns, uint32_t page)
{
        ns_note(ns, page)->used_sec = store_now_sec(ns->store);
}

/* 32 bits of the epoch suffice: the sweep reaches a page before 2^32 invalidations. */
bool ns_page_is_stale(const struct ns *ns, const struct page *p)
{
        return p->state == PAGE_SEALED && p->epoch != (uint32_t)ns->epoch;
}

uint64_t ns_count_findable(const struct ns *ns)
{
        return ns_n_pages(ns, PAGE_SEALED) - ns->catalog.n_stale;
}

bool ns_page_is_kept(const struct ns *ns, uint32_t page)
{
        const struct page *p = ns_page(ns, page);

        return p->state == PAGE_DETACHED && page_pins(p) == 0 && ns_extra(ns, page)->n_windows > 0;
}

bool page_is_idle(const struct ns *ns, uint32_t page)
{
        const struct page *p = ns_page(ns, page);

        return ns_extra(ns, page)->n_windows == 0 && p->state == PAGE_SEALED &&
               !ns_page_is_stale(ns, p) && !page_is_held(p);
}

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

bool space_takes(const struct ns *ns)
{
        const struct pool *pool = ns->tiers[TIER_DISK].pool;
        const struct disk_file *disk = pool ? pool->disk : NULL;

        return ns->space.is_ready && disk_takes(disk);
}

static bool lies_below(const struct ns *ns, enum tier_kind kind)
{
        return ns->tiers[kind].pool && (kind != TIER_DISK || space_takes(ns));
}

enum tier_kind tier_below(const struct ns *ns, enum tier_kind kind)
{
        do
                kind++;
        while (kind < TIER_COUNT && !lies_below(ns, kind));
        return kind;
}

bool tier_may_demote(const struct ns *ns, enum tier_kind kind)
{
        return ns->tiers[kind].pool && tier_below(ns, kind) < TIER_COUNT;
}

bool demote_is_possible(const struct ns *ns)
{
        return tier_may_demote(ns, TIER_DEVICE);
}

void demote_note_taken(struct ns *ns)
{
        if (!tier_may_demote(ns, TIER_DEVICE))
                return;
        ns->demotion.may_be_due = true;
        store_wake_transfers(ns->store);
}
