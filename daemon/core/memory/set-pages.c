/* The pages of a set: the list of FREE pages, taking a page and putting it back (sets.h). */
#include <assert.h>
#include <string.h>

#include "base/fault-point.h"
#include "daemon/core/memory/below.h"
#include "daemon/core/memory/run.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/state/ns.h"

static struct page *page_of(struct extent_set *set, uint32_t page)
{
        assert(page / set->ns->geometry.set_pages == set->index);
        return &set->pages[page % set->ns->geometry.set_pages];
}

void set_list_page(struct extent_set *set, uint32_t page)
{
        struct page *p = page_of(set, page);

        p->prev = PAGE_NONE;
        p->next = set->free_head;
        if (set->free_head != PAGE_NONE)
                page_of(set, set->free_head)->prev = page;
        set->free_head = page;
        set->n_free++;
        run_mark(set, page, true);
}

static void unlist_page(struct extent_set *set, uint32_t page)
{
        struct page *p = page_of(set, page);

        if (p->prev != PAGE_NONE)
                page_of(set, p->prev)->next = p->next;
        else
                set->free_head = p->next;
        if (p->next != PAGE_NONE)
                page_of(set, p->next)->prev = p->prev;
        p->prev = p->next = PAGE_NONE;
        set->n_free--;
        run_mark(set, page, false);
}

void set_take(struct extent_set *set, uint32_t page, const struct page_use *use)
{
        struct page *p = page_of(set, page);
        struct page_note *note = ns_note(set->ns, page);

        assert(set->n_free > 0 && p->state == PAGE_FREE);

        unlist_page(set, page);
        if (set->n_free == 0)
                list_remove(&set->room_link);
        p->epoch = (uint32_t)set->ns->epoch;
        p->owner = use->owner;
        note->client = use->client;
        note->seq = use->seq;
        FAULT_POINT("page-before-take");
        ns_set_granted(set->ns, page, use->state);
        if (set_kind(set) == TIER_DEVICE)
                demote_note_taken(set->ns);
}

uint32_t set_take_page(struct extent_set *set, const struct page_use *use)
{
        uint32_t page = set->free_head;

        set_take(set, page, use);
        return page;
}

void set_put_page(struct extent_set *set, uint32_t page)
{
        struct page *p = page_of(set, page);

        assert(p->state != PAGE_FREE && p->state != PAGE_NULL && !page_is_held(p));

        /* Inserts at the head: a set that was full is used before those that may become empty. */
        if (set->recall.state != RECALL_NONE)
                set->tier->n_withheld++;
        else if (set->n_free == 0)
                list_insert_before(set->tier->sets_room.next, &set->room_link);
        ns_set_state(set->ns, page, PAGE_FREE);
        FAULT_POINT("page-before-wipe");
        *ns_note(set->ns, page) = (struct page_note){0};
        memset(p->key, 0, sizeof(p->key));
        p->tokens = 0;
        p->end_token = 0;
        p->ready = p->reported = p->unindexed = 0;
        p->owner = 0;
        set_list_page(set, page);
        set->ns->reclaim.compaction.is_possible = true;
}
