#include "policy/pgi-text.h"

#include "base/macros.h"
#include "policy/pgi-shelf.h"

/* Pages that a walk prefetches: only the way up is waited for, and pages are used meanwhile. From 2
 * to 16 the cost of a touch differs by less than by chance. Not tuned. */
#define AHEAD 4

/* Uses a page for a request that found it at that time, with LRU's contents as of lru_base. */
static void use_then(struct pgi *p, uint32_t node, uint32_t now, uint32_t lru_base)
{
        struct pgi_page *page = pgi_page_of(p, node);
        uint32_t stamp = stamp_of(p, page);
        bool linked = page->shelf_1;

        pgi_shelf_leave(p, node);
        pgi_table_used(&p->table, page->class, pgi_age_of(page->touched, now));
        pgi_lru_used(&p->lru, lru_base, &stamp, true, pgi_cost(&p->lists, node), p->n_cached);
        pgi_set_stamp(page, stamp);
        if (page->turn)
                pgi_ended_used(p->endings, page->tag, now);
        pgi_count_use(p, page);
        page->class = (uint8_t)pgi_class_with_body(page, page->class);
        page->touched = MAX(page->touched, now);
        page->hint = PGI_HINT_NONE;
        if (linked)
                pgi_shelf_enter(p, node);
}

void pgi_use_page(struct pgi *p, uint32_t node, uint32_t now)
{
        use_then(p, node, now, p->lru.base);
}

/* The next page up, after the memory of this one was asked for. */
static uint32_t look_ahead(const struct pgi *p, uint32_t node)
{
        if (node == NODE_NONE)
                return NODE_NONE;
        __builtin_prefetch(&p->pages[node].touched, 1);
        return tree_parent(p->tree, node);
}

void pgi_text_use_found(struct pgi *p, struct pgi_run *run)
{
        uint32_t node = run->found_1 - 1, ahead;

        run->found_1 = 0;
        if (node == NODE_NONE || p->pages[node].tag != run->found_tag)
                return;
        ahead = node = tree_parent(p->tree, node);
        for (int i = 0; i < AHEAD; i++)
                ahead = look_ahead(p, ahead);
        for (uint32_t n = 0; node != NODE_NONE && n < EVICT_WALK_PAGES;
                n++, node = tree_parent(p->tree, node)) {
                ahead = look_ahead(p, ahead);
                use_then(p, node, run->found_at, run->lru_base);
        }
}

uint32_t pgi_text_use(struct pgi *p, uint32_t node, const struct pgi_run *run, uint32_t now)
{
        uint32_t ahead = node, turn = 0;

        for (int i = 0; i < AHEAD; i++)
                ahead = look_ahead(p, ahead);
        for (uint32_t n = 0; node != NODE_NONE && n < EVICT_WALK_PAGES;
                n++, node = tree_parent(p->tree, node)) {
                const struct pgi_page *page = pgi_page_of(p, node);

                ahead = look_ahead(p, ahead);
                if (turn == 0)
                        turn = page->turn;
                if (!run || page->touched < run->began)
                        use_then(p, node, now, run ? run->lru_base : p->lru.base);
        }
        return MIN(turn + 1, PGI_TURNS);
}

uint32_t pgi_text_end_page(const struct pgi *p, uint32_t node)
{
        uint32_t parent = tree_parent(p->tree, node);

        return pgi_page_of(p, node)->class == PGI_PARTIAL && parent != NODE_NONE ? parent : node;
}

void pgi_set_class(struct pgi *p, uint32_t node, uint32_t class, uint32_t touched)
{
        struct pgi_page *page = &p->pages[node];
        bool linked = page->shelf_1;

        if (linked && (class != page->class || touched != page->touched))
                pgi_shelf_leave(p, node);
        page->class = (uint8_t) class;
        page->touched = touched;
        if (linked && !page->shelf_1)
                pgi_shelf_enter(p, node);
}

/* Which turn the request is: the one after the last that ended on its text. */
static uint32_t turn_of(const struct pgi *p, const struct pgi_run *run)
{
        uint32_t node = run->page, turn = run->turn;

        for (uint32_t n = 0; turn == 0 && node != NODE_NONE && n < EVICT_WALK_PAGES;
                n++, node = tree_parent(p->tree, node))
                if (pgi_page_of(p, node)->turn)
                        turn = MIN(pgi_page_of(p, node)->turn + 1U, PGI_TURNS);
        return MAX(turn, 1U);
}

/* The hint of a request that ends. A text that only "continues" has none if texts with this ending
 * return late: a session that an engine names by itself says no more than that. */
static uint32_t hint_at_end(const struct pgi *p, const struct pgi_run *run)
{
        uint32_t told = p->pages[run->page].hint, learnt = p->endings->hint[run->ending];

        if (told == PGI_HINT_NONE)
                return learnt;
        return told == PGI_HINT_CONTINUES && learnt == PGI_HINT_DONE ? PGI_HINT_NONE : told;
}

void pgi_text_end(struct pgi *p, struct pgi_run *run, uint32_t now)
{
        uint32_t node = run->page, ahead = node, turn = turn_of(p, run);
        uint32_t end = pgi_text_end_page(p, node);
        uint32_t body = pgi_body_class(hint_at_end(p, run), turn, p->pages[node].length,
                pgi_size_bin(run->fresh_tokens, PGI_FRESHES));
        bool is_above = false;

        pgi_page_of(p, end)->turn = turn & 7;
        if (run->ending)
                pgi_ended(p->endings, p->pages[end].tag, run->ending, now);
        for (int i = 0; i < AHEAD; i++)
                ahead = look_ahead(p, ahead);
        for (uint32_t n = 0; node != NODE_NONE && n < EVICT_WALK_PAGES;
                n++, node = tree_parent(p->tree, node)) {
                ahead = look_ahead(p, ahead);
                if (is_above)
                        use_then(p, node, run->found_at, run->lru_base);
                is_above |= run->found_1 == node + 1 && run->found_tag == p->pages[node].tag;
                pgi_set_class(p, node, pgi_class_with_body(&p->pages[node], body), now);
        }
        if (is_above)
                run->found_1 = 0;
}
