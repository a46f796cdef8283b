/* PGI's shelves, and the choice of their victims. */
#include "policy/pgi-shelf.h"

/* A choice of victims is kept for the finest step of age: about a second. */
#define CHOICE_TICKS PGI_FIRST_TICKS

void pgi_choices_drop(struct pgi *p)
{
        for (uint32_t shelf = 0; shelf < p->n_shelves; shelf++)
                p->choices[shelf].made = false;
}

/* The index of pages whose window has passed: less than that of any class. */
#define PASSED_INDEX (-1)

/* True if pages of list a are evicted before those of b. Pages whose window has passed come first,
 * then the list with the lower index, then the older one. by_age: age decides before the index. */
static bool goes_before(struct rank a, struct rank b, bool by_age)
{
        if ((a.index < 0) != (b.index < 0))
                return a.index < 0;
        if (a.interval < b.interval)
                return by_age || a.index <= b.index;
        return a.index < b.index && (!by_age || a.interval == b.interval);
}

/* Makes a list, which isn't empty, the choice of its shelf if it ranks before that. */
static void consider(
        struct pgi *p, uint32_t shelf, uint32_t cost, uint32_t class, uint32_t interval)
{
        struct choice *c = &p->choices[shelf];
        struct rank rank = {interval, PASSED_INDEX};

        if (class != PGI_PASSED)
                rank.index = pgi_table_index(&p->table, class, c->bins[interval]);
        if (p->crossover > 0)
                rank.index *= (float)recompute_bin_cost(cost);
        if (c->made && !goes_before(rank, c->rank, c->by_age))
                return;
        c->made = true;
        c->row = pgi_row(&p->lists, shelf, cost, class);
        c->rank = rank;
}

/* Considers the list of a page that was just linked. */
static void consider_page(struct pgi *p, uint32_t shelf, uint32_t node, uint32_t interval)
{
        if (p->choices[shelf].made)
                consider(p, shelf, pgi_cost_bin(&p->lists, node), p->pages[node].class, interval);
}

void pgi_shelf_leave(struct pgi *p, uint32_t node)
{
        if (p->pages[node].shelf_1)
                pgi_unlink(&p->lists, p->pages, node);
}

void pgi_shelf_enter(struct pgi *p, uint32_t node)
{
        uint32_t shelf, interval;

        if (!is_candidate(p, node))
                return;
        shelf = shelf_for(p, node, tree_is_leaf(p->tree, node));
        interval = pgi_link_used(&p->lists, p->pages, node, shelf);
        consider_page(p, shelf, node, interval);
}

void pgi_shelf_put(struct pgi *p, uint32_t node, bool is_tip, bool is_leaf)
{
        const struct pgi_page *page = &p->pages[node];
        bool belongs = !page->held && page->n_locks == 0 && is_tip;
        uint32_t shelf = shelf_for(p, node, is_leaf), interval;

        if (page->shelf_1 == (belongs ? shelf + 1 : 0))
                return;
        pgi_shelf_leave(p, node);
        if (!belongs)
                return;
        interval = pgi_link_exposed(&p->lists, p->pages, node, shelf);
        consider_page(p, shelf, node, interval);
}

void pgi_shelf_update(struct pgi *p, uint32_t node)
{
        pgi_shelf_put(p, node, tree_is_tip(p->tree, node), tree_is_leaf(p->tree, node));
}

/* All lists of a shelf whose pages cost the same. */
static void consider_cost(struct pgi *p, uint32_t shelf, uint32_t cost)
{
        for (uint32_t class = 0; class < PGI_ROWS; class ++) {
                uint64_t used = p->lists.used[pgi_row(&p->lists, shelf, cost, class)];

                if (used == 0)
                        continue;
                consider(p, shelf, cost, class, (uint32_t)__builtin_ctzll(used));
                if (!p->choices[shelf].by_age)
                        consider(p, shelf, cost, class, 63 - (uint32_t)__builtin_clzll(used));
        }
}

static void choose_order(struct pgi *p, uint32_t shelf, uint32_t now)
{
        struct choice *c = &p->choices[shelf];

        c->made = false;
        c->by_age = p->lru.behind;
        c->at = now;
        for (uint32_t i = 0; i < p->lists.n; i++)
                c->bins[i] = pgi_age_bin(now - p->lists.start[i]);
        for (uint32_t cost = 0; cost < p->lists.n_costs; cost++)
                consider_cost(p, shelf, cost);
}

/* A class's index is lowest at its youngest or oldest list: it rises while a reuse comes nearer,
 * and falls when the reuse is late. Amortised O(1): a choice serves its whole list. */
static const struct choice *choice_of(struct pgi *p, uint32_t shelf, uint32_t now)
{
        const struct choice *c = &p->choices[shelf];

        if (!c->made || now - c->at >= CHOICE_TICKS || c->by_age != p->lru.behind ||
                !(p->lists.used[c->row] >> c->rank.interval & 1))
                choose_order(p, shelf, now);
        return c;
}

uint32_t pgi_choices_victim(struct pgi *p, uint32_t tier, enum evict_how how, uint32_t now)
{
        const struct choice *c, *tips;
        uint32_t shelf = 2 * tier;

        c = choice_of(p, shelf, now);
        if (how == EVICT_DEMOTE && shelf + 1 < p->n_shelves) {
                tips = choice_of(p, shelf + 1, now);
                if (tips->made && (!c->made || goes_before(tips->rank, c->rank, c->by_age))) {
                        c = tips;
                        shelf++;
                }
        }
        return c->made ? pgi_first(&p->lists, c->row, c->rank.interval) : NODE_NONE;
}
