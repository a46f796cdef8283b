/*
 * Pages kept ready: FREE pages in extent sets that are bound ahead of demand, as many as will be
 * leased in the time that making a set takes (policy/ahead.h). Only from what is free: nothing is
 * evicted, recalled or taken from anybody for it, and what nobody leases for a while goes back.
 *
 * Where no set can be bound any more, a tenant's free_ahead (percent of the pages that it holds in
 * the namespace) is kept FREE by evicting idle pages of the namespace itself: begun where half of
 * that is left, until all of it is there, while somebody leases. Loop thread only.
 */
#ifndef KVL_CORE_STOCK_H
#define KVL_CORE_STOCK_H

#include <stdbool.h>
#include <stdint.h>

struct extent_set;
struct ns;
struct store;

/* `n` pages were leased at once, or put into a magazine. O(1). */
void stock_leased(struct ns *ns, uint32_t n, uint64_t now_nsec);

/*
 * Binds what is missing, as far as limits and regions admit; gives back what is too much; evicts
 * ahead. True
 * while somebody leases: to be called again, in a tenth of a second and when store.owner.on_stock
 * says so.
 */
bool stock_work(struct store *s, uint64_t now_nsec);

/* Was a page leased in the last two seconds? */
bool stock_is_leased(const struct ns *ns, uint64_t now_nsec);

/* Nobody has the namespace open any more. */
void stock_forget(struct ns *ns);

/* FREE pages kept ready, of all namespaces. */
uint64_t stock_figure(const struct store *s);

#endif
