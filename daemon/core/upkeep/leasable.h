/*
 * How many pages a lease would get now without waiting, and without anybody else giving way: what
 * is FREE in the namespace, what it has cached and nobody holds, and what the tenant may still bind
 * (room_leasable()). A hint for engines, shown in the index segment.
 *
 * What clients hold in pin segments nobody tells the daemon: it is counted in rounds, some pages at
 * a time, so that the number is as old as the last round. Loop thread only.
 */
#ifndef KVL_CORE_LEASABLE_H
#define KVL_CORE_LEASABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/core/objects/ns-parts.h"

struct ns;
struct store;

/* The namespace is there. Goes with it: leasable_end(). */
void leasable_begin(struct ns *ns);
void leasable_end(struct ns *ns);

/*
 * Goes on with the round, for at most *budget pages and unbound sets, which it takes off, and shows
 * the number. True: the round is over. O(budget * clients).
 *
 * Where nobody is disturbed by it (is_quiet), pages that nobody holds count by what they cost: 1 /
 * 64 for each client.
 */
bool leasable_look(struct ns *ns, uint32_t *budget, bool is_quiet);

/* Goes on with the round of the namespace whose turn it is, and of those after it: at most
 * n_namespaces of them, and *budget in all. Returns how many rounds were ended. */
uint32_t leasables_look(struct store *s, uint32_t n_namespaces, uint32_t *budget, bool is_quiet);

/* The number, as of now but for who holds what. */
uint32_t leasable_pages(const struct ns *ns);

#endif
