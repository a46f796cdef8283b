/*
 * Preallocation: FREE pages in extent sets that are bound ahead of demand, as many as will be
 * leased while a set is being made (policy/ahead.h). Only free memory is used: no page is evicted
 * and no set recalled for it. Pages that aren't leased for a while are given back.
 *
 * If no set can be bound any more, a tenant's free_ahead is kept FREE by evicting the namespace's
 * own idle pages. It is a percentage of the pages that the tenant holds in the namespace. Evicting
 * begins when half of it is left and continues until all of it is FREE, while pages are leased.
 * Loop thread only.
 */
#ifndef KVL_CORE_PREALLOC_H
#define KVL_CORE_PREALLOC_H

#include <stdbool.h>
#include <stdint.h>

struct extent_set;
struct ns;
struct store;

/* Notes that `n` pages were leased at once, or put into a magazine. O(1). */
void prealloc_leased(struct ns *ns, uint32_t n, uint64_t now_nsec);

/* Binds missing sets, as far as limits and regions admit; frees surplus ones; evicts ahead. Returns
 * true while pages are leased: call it again in a tenth of a second, and after
 * store.owner.on_prealloc. */
bool prealloc_work(struct store *s, uint64_t now_nsec);

/* Was a page leased in the last two seconds? */
bool prealloc_is_leased(const struct ns *ns, uint64_t now_nsec);

/* No client has the namespace open any more. */
void prealloc_forget(struct ns *ns);

/* Returns the preallocated FREE pages of all namespaces. */
uint64_t prealloc_figure(const struct store *s);

#endif
