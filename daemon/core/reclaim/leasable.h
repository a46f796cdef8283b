/*
 * Counts the pages that a lease would get now without waiting or taking memory of others: FREE
 * pages of the namespace, its cached pages that aren't held, and the sets that the tenant may still
 * bind (room_leasable()). A hint for engines, shown in the index segment.
 *
 * No event reports pins in segments, so held pages are counted in rounds, some pages at a time: the
 * number is as old as the last round. Loop thread only.
 */
#ifndef KVL_CORE_LEASABLE_H
#define KVL_CORE_LEASABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/core/state/ns.h"

struct ns;
struct store;

/* Call these when the namespace was made, and before it is freed. */
void leasable_begin(struct ns *ns);
void leasable_end(struct ns *ns);

/* Continues the round for at most *budget pages and unbound sets, which it subtracts, and shows the
 * number. Returns true at the round's end. O(budget * clients). is_idle: no other work is
 * disturbed, so a page that isn't held costs only 1/64 for each client. */
bool leasable_look(struct ns *ns, uint32_t *budget, bool is_idle);

/* Continues the rounds of the next namespaces in turn: at most n_namespaces, and *budget in all.
 * Returns how many rounds ended. */
uint32_t leasables_look(struct store *s, uint32_t n_namespaces, uint32_t *budget, bool is_idle);

/* Returns the present number, except that held pages are as of the last round. */
uint32_t leasable_pages(const struct ns *ns);

#endif
