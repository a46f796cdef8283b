/*
 * Compaction: empties an extent set with few cached pages, so that it can be freed whole. Its
 * cached pages are copied to FREE pages of other sets of the namespace, under a recall of kind
 * RECALL_COMPACT. policy/compact.h chooses the set.
 *
 *   a page:   SEALED -> copying -> the key is at the new page, the old one is FREE
 *                          \-> given up: pinned, evicted, stale or on its way to another tier by
 *                              then, or the copy failed
 *   a set:    chosen -> recalled (ASKED) -> empty (IDLE) -> unmapped by its clients -> unbound
 *                          \-> called off.
 *
 * During the copy, the old page can be found and read as before; the new one is MOVING and unused.
 * The last step is the evictor's (shared.h): RETIRING, fence, sum of the pins. Only if there is no
 * pin, the slot names the new page, so a page never moves while a client holds it. A set is called
 * off if no space is left for its pages or no page moved for a while, and if a lease lacks pages:
 * compact_call_off(). Compaction drops no page.
 *
 * Copies are jobs on a queue; without a queue, recall_work() makes them in pieces. Loop thread
 * only.
 */
#ifndef KVL_CORE_COMPACT_H
#define KVL_CORE_COMPACT_H

#include <stdbool.h>
#include <stdint.h>

struct extent_set;
struct ns;
struct store;

/* Begins to empty a set of each namespace where that is worth it and none is being emptied. Takes
 * sets that aren't mapped, or only by clients with safe points. Skips namespaces in which no page
 * was freed since it found no work there. Returns true while sets are being emptied: call it again.
 */
bool compact_turn(struct store *s, uint64_t now_nsec);

/* Frees the targets of copies that aren't needed any more. Part of compact_turn(). Returns true
 * while pages are being copied: call it again. */
bool compact_tidy(struct store *s);

/* Part of recall_work(): continues to empty a set of kind RECALL_COMPACT in state ASKED, or calls
 * it off. Looks at `budget` page records at most; returns their number. */
uint32_t compact_visit(struct extent_set *set, uint64_t now_nsec, uint32_t budget);

/* A lease lacks pages: frees pages withheld for compaction in the namespace, except the targets of
 * a queue's copies. */
void compact_call_off(struct ns *ns);

/* The namespace is being freed: ends its moves. */
void compact_forget_ns(struct ns *ns);

/* Frees all moves, after the devices' end, which doesn't report copies. */
void compact_deinit(struct store *s);

/* Returns the FREE memory in sets with other pages, which no other namespace can use, in
 * thousandths of the devices' memory (policy/compact.h). O(sets); 0 without memory. */
uint32_t compact_figure(const struct store *s);

/* For the checker: returns the number of the namespace's MOVING pages of moves. */
uint64_t compact_count_moves(const struct ns *ns);

/* For the checker: is the page the target of a move? */
bool compact_moves_to(const struct ns *ns, uint32_t page);

#endif
