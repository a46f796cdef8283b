#include "daemon/core/cache/pages.h"

#include <assert.h>

#include "daemon/core/cache/announced.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/state/feed.h"
#include "daemon/core/state/moving.h"
#include "daemon/core/state/listeners.h"
#include "daemon/core/state/store.h"
#include "daemon/core/memory/wait.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/shared.h"

uint32_t ns_find_page(const struct ns *ns, const uint8_t key[KEY_BYTES])
{
        return shared_find(ns, shared_hash(&ns->shared, key), key);
}

bool ns_is_pinned(const struct ns *ns, uint32_t page)
{
        return page_pins(ns_page(ns, page)) > 0 || shared_is_pinned(ns, page);
}

/* Is a granted page being filled by other code? Then it stays MOVING until that has ended. */
static bool is_being_filled(struct ns *ns, uint32_t page)
{
        if (!fill_has(ns_set_of(ns, page), page))
                return false;
        ns_set_state(ns, page, PAGE_MOVING);
        return true;
}

/* Does a transfer copy to the page? Then it stays MOVING for the transfer. */
static bool is_copied_to(struct ns *ns, uint32_t page)
{
        struct transfer *found = NULL;

        if (ns_set_of(ns, page)->moving.n_copies == 0)
                return false;
        list_for_each (t, &ns->store->moving.transfers, struct transfer, link)
                if (t->ns == ns && transfer_fills_granted(t) && t->to == page && !t->is_unwanted)
                        found = t;
        if (!found)
                return false;
        ns_set_state(ns, page, PAGE_MOVING);
        ns->store->listeners->copy_unwanted(found);
        return true;
}

void ns_free_page(struct ns *ns, uint32_t page)
{
        struct extent_set *set = ns_set_of(ns, page);

        announce_withdraw(ns, page);
        if (set->moving.n_busy > 0 && (is_being_filled(ns, page) || is_copied_to(ns, page)))
                return;
        set_put_page(set, page);
        idle_sets_add(set);
        wait_wake(ns->store);
}

void ns_watch(struct ns *ns, uint32_t page)
{
        struct page *p = ns_page(ns, page);

        assert(!p->watched && page_pins(p) == 0 && page_is_shown(p->state));

        p->watched = 1;
        p->prev = ns->catalog.watched.last;
        p->next = PAGE_NONE;
        if (ns->catalog.watched.last != PAGE_NONE)
                ns_page(ns, ns->catalog.watched.last)->next = page;
        else
                ns->catalog.watched.first = page;
        ns->catalog.watched.last = page;
        ns->catalog.watched.n++;
}

static void unwatch(struct ns *ns, uint32_t page)
{
        struct page *p = ns_page(ns, page);

        if (p->prev != PAGE_NONE)
                ns_page(ns, p->prev)->next = p->next;
        else
                ns->catalog.watched.first = p->next;
        if (p->next != PAGE_NONE)
                ns_page(ns, p->next)->prev = p->prev;
        else
                ns->catalog.watched.last = p->prev;
        p->next = PAGE_NONE;
        p->n_pins = 0;
        p->watched = 0;
        ns->catalog.watched.n--;
}

void ns_pin_page(struct ns *ns, uint32_t page, uint32_t n)
{
        struct page *p = ns_page(ns, page);

        assert(page_is_shown(p->state) && n > 0 && page_pins(p) <= UINT32_MAX - n);

        if (page_pins(p) > 0) {
                p->n_pins += n;
                return;
        }
        ns_set_of(ns, page)->tier->n_pinned++;
        if (p->watched) /* held already */
                unwatch(ns, page);
        else if (p->state == PAGE_SEALED && !ns_page_is_stale(ns, p))
                ns->evict->hold(ns->policy, page);
        p->n_pins = n;
}

void ns_pin_published(struct ns *ns, uint32_t page)
{
        assert(page_pins(ns_page(ns, page)) == 0);

        ns_set_of(ns, page)->tier->n_pinned++;
        ns_page(ns, page)->n_pins = 1;
}

/* Pages that windows hold stay DETACHED. */
void ns_let_go(struct ns *ns, uint32_t page, bool is_retired)
{
        struct page *p = ns_page(ns, page);

        if (p->watched)
                unwatch(ns, page);
        if (ns_page_is_stale(ns, p)) {
                (void)shared_remove(ns, page); /* its slot may have been taken over */
                ns->store->listeners->page_swept(ns, page);
                ns->catalog.n_stale--;
        }
        if (ns_extra(ns, page)->n_windows > 0) {
                ns_set_state(ns, page, PAGE_DETACHED);
                return;
        }
        if (is_retired || shared_withdraw(ns, page)) {
                ns_free_page(ns, page);
                return;
        }
        ns_set_state(ns, page, PAGE_DETACHED);
        ns_watch(ns, page);
}

void ns_leave_page(struct ns *ns, uint32_t page)
{
        if (page_pins(ns_page(ns, page)) > 0)
                ns_set_state(ns, page, PAGE_DETACHED);
        else
                ns_let_go(ns, page, false);
}

void ns_let_go_unheld(struct ns *ns, uint32_t page)
{
        const struct page *p = ns_page(ns, page);

        assert(p->state == PAGE_DETACHED && !p->watched);

        if (page_pins(p) == 0 && ns_extra(ns, page)->n_windows == 0)
                ns_let_go(ns, page, false);
}

void ns_keep_page(struct ns *ns, uint32_t page)
{
        ns_make_extra(ns, page)->n_windows++;
}

void ns_unkeep_page(struct ns *ns, uint32_t page)
{
        bool was_kept = ns_page_is_kept(ns, page);

        assert(ns_extra(ns, page)->n_windows > 0);

        if (--ns_make_extra(ns, page)->n_windows == 0 && was_kept)
                ns_let_go(ns, page, false);
}

void ns_unpin_page(struct ns *ns, uint32_t page, uint32_t n)
{
        struct page *p = ns_page(ns, page);

        assert(page_pins(p) >= n && n > 0);

        p->n_pins -= n;
        if (p->n_pins > 0)
                return;
        ns_set_of(ns, page)->tier->n_pinned--;
        if (p->state == PAGE_DETACHED || ns_page_is_stale(ns, p)) {
                ns_let_go(ns, page, false);
        } else {
                ns_note_use(ns, page);
                ns->evict->idle(ns->policy, page, ns->store->now_nsec);
        }
        wait_wake(ns->store);
}

void ns_look_again(struct ns *ns, uint32_t budget)
{
        for (uint64_t n = MIN((uint64_t)budget, ns->catalog.watched.n); n > 0; n--) {
                uint32_t page = ns->catalog.watched.first;
                const struct page *p = ns_page(ns, page);
                bool is_sealed = p->state == PAGE_SEALED;

                /* Moves the page to the end of the list; the sweep handles stale pages. */
                if (ns_page_is_stale(ns, p) || shared_is_pinned(ns, page)) {
                        unwatch(ns, page);
                        ns_watch(ns, page);
                } else if (is_sealed) {
                        unwatch(ns, page);
                        ns_note_use(ns, page);
                        ns->evict->idle(ns->policy, page, ns->store->now_nsec);
                } else {
                        ns_let_go(ns, page, false);
                }
        }
}

/* Finds pinned pages in a run of a set's pages, from the `at`-th on. */
static uint64_t find_pinned_of_run(const struct ns *ns, const struct extent_set *set, uint32_t at,
        void (*fn)(uint32_t page, void *data), void *data)
{
        uint32_t first = set->index * ns->geometry.set_pages;
        uint32_t end = at + MIN(ns->geometry.set_pages - at, SHARED_RUN_PAGES);
        bool any = shared_run_is_pinned(ns, first + at, end - at);
        uint64_t n = 0;

        for (; at < end; at++) {
                const struct page *p = &set->pages[at];

                if (!page_is_shown(p->state) ||
                        (page_pins(p) == 0 && !(any && shared_is_pinned(ns, first + at))))
                        continue;
                n++;
                if (fn)
                        fn(first + at, data);
        }
        return n;
}

uint64_t ns_find_pinned(const struct ns *ns, void (*fn)(uint32_t page, void *data), void *data)
{
        uint64_t n = 0;

        ns_for_each_set (set, ns)
                for (uint32_t at = 0; at < ns->geometry.set_pages; at += SHARED_RUN_PAGES)
                        n += find_pinned_of_run(ns, set, at, fn, data);
        return n;
}

uint64_t ns_count_pinned(const struct ns *ns, uint32_t *budget)
{
        uint64_t n = 0;

        ns_for_each_set (set, ns)
                for (uint32_t at = 0; *budget > 0 && at < ns->geometry.set_pages;
                        at += SHARED_RUN_PAGES) {
                        uint32_t n_run = MIN(ns->geometry.set_pages - at, SHARED_RUN_PAGES);

                        n += find_pinned_of_run(ns, set, at, NULL, NULL);
                        *budget -= MIN(*budget, n_run);
                }
        return n;
}

void ns_enter_tree(struct ns *ns, uint32_t page, uint32_t parent)
{
        tree_insert(&ns->tree, page, parent);
        ancestors_insert(&ns->catalog.ancestors, &ns->tree, page, ns_note(ns, page)->depth);
        feed_stored(ns, page);
}

void ns_leave_tree(struct ns *ns, uint32_t page)
{
        ancestors_remove(&ns->catalog.ancestors, page, ns_note(ns, page)->depth);
        tree_remove(&ns->tree, page);
        feed_removed(ns, page);
}

uint32_t ns_page_of_text(const struct ns *ns, uint32_t page, uint32_t depth)
{
        return ancestors_find(
                &ns->catalog.ancestors, &ns->tree, page, ns_note(ns, page)->depth, depth);
}

void ns_note_stale(struct ns *ns)
{
        ns->catalog.n_stale = ns_n_pages(ns, PAGE_SEALED);
}

void ns_sweep_page(struct ns *ns, uint32_t page)
{
        const struct page *p = ns_page(ns, page);

        if (!ns_page_is_stale(ns, p))
                return;
        if (page_pins(p) == 0) {
                ns_let_go(ns, page, false);
                return;
        }
        (void)shared_remove(ns, page);
        ns->store->listeners->page_swept(ns, page);
        ns->catalog.n_stale--;
        ns_set_state(ns, page, PAGE_DETACHED);
}
