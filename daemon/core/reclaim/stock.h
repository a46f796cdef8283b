/*
 * The stock: FREE pages in extent sets that are bound ahead of demand, as many as will be leased
 * while a set is being made (policy/ahead.h). Only free memory is used: no page is evicted and no
 * set recalled for it. Stock that isn't leased for a while is given back.
 *
 * If no set can be bound any more, a tenant's free_ahead is kept FREE by evicting the namespace's
 * own idle pages. It is a percentage of the pages that the tenant holds in the namespace. Evicting
 * begins when half of it is left and continues until all of it is FREE, while pages are leased.
 * Loop thread only.
 */
#ifndef KVL_CORE_STOCK_H
#define KVL_CORE_STOCK_H

#include <stdbool.h>
#include <stdint.h>

struct extent_set;
struct ns;
struct store;

/* Notes that `n` pages were leased at once, or put into a magazine. O(1). */
void stock_leased(struct ns *ns, uint32_t n, uint64_t now_nsec);

/* Binds missing sets, as far as limits and regions admit; frees surplus ones; evicts ahead. Returns
 * true while pages are leased: call it again in a tenth of a second, and after
 * store.owner.on_stock. */
bool stock_work(struct store *s, uint64_t now_nsec);

/* Was a page leased in the last two seconds? */
bool stock_is_leased(const struct ns *ns, uint64_t now_nsec);

/* No client has the namespace open any more. */
void stock_forget(struct ns *ns);

/* Returns the FREE pages in stock, of all namespaces. */
uint64_t stock_figure(const struct store *s);

#endif
