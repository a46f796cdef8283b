/* Debug: is an instance of PGI consistent? */
#include <stddef.h>

#include "policy/pgi-class.h"
#include "policy/pgi-impl.h"

static const char *check_page(const struct pgi *p, uint32_t node)
{
        const struct pgi_page *page = &p->pages[node];

        if ((page->tag != 0) != tree_has(p->tree, node))
                return "a page is known, or in the tree, but not both";
        if (page->tag == 0)
                return page->shelf_1 ? "a page that isn't cached lies on a shelf" : NULL;
        if (page->class >= PGI_ROWS)
                return "a page has no class";
        if (!is_candidate(p, node))
                return page->shelf_1 ? "a page on a shelf isn't an idle tip" : NULL;
        if (page->shelf_1 != shelf_for(p, node, tree_is_leaf(p->tree, node)) + 1)
                return "an idle tip doesn't lie on its shelf";
        return NULL;
}

const char *pgi_check_node(const void *policy, uint32_t node)
{
        const struct pgi *p = policy;
        const char *wrong = node < p->n_pages ? check_page(p, node) : NULL;

        if (wrong || node >= p->n_pages || p->pages[node].shelf_1 == 0 ||
                pgi_lists_refer_to(&p->lists, p->pages, p->n_pages, node))
                return wrong;
        return "a page isn't in the list of its shelf, class and time";
}

struct lru_census {
        const struct pgi_lru *lru;
        uint64_t n;
};

static void count_ghost_in_lru(void *data, const struct pgi_ghost *ghost)
{
        struct lru_census *c = data;

        c->n += pgi_lru_has(c->lru, ghost->stamp);
}

/* Pages and ghosts that plain LRU would have. */
static uint64_t count_in_lru(const struct pgi *p)
{
        struct lru_census c = {.lru = &p->lru};

        for (uint32_t i = 0; i < p->n_pages; i++)
                c.n += p->pages[i].tag != 0 && pgi_lru_has(&p->lru, stamp_of(p, &p->pages[i]));
        pgi_ghosts_each(&p->ghosts, count_ghost_in_lru, &c);
        return c.n;
}

const char *pgi_check(const void *policy)
{
        const struct pgi *p = policy;
        const char *wrong;
        uint32_t n = 0;

        if (!is_made(p))
                return NULL;
        for (uint32_t node = 0; node < p->n_pages; node++) {
                wrong = check_page(p, node);
                if (wrong)
                        return wrong;
                n += p->pages[node].tag != 0;
        }
        if (n != p->n_cached)
                return "the number of cached pages is wrong";
        wrong = pgi_lists_check(&p->lists, p->pages, p->n_pages);
        if (!wrong)
                wrong = pgi_ghosts_check(&p->ghosts);
        if (!wrong && count_in_lru(p) != p->lru.n)
                wrong = "the pages that LRU would have are not as many as it counts";
        return wrong;
}
