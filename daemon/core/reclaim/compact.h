/*
 * Compaction: an extent set in which little is cached is emptied, so that it can go back whole.
 * What is cached in it is copied to FREE pages of other sets of the namespace (policy/compact.h
 * says which set), under a recall of kind RECALL_COMPACT.
 *
 *   a page:   SEALED -> copying -> the key is at the new page, the old one is FREE
 *                          \-> given up: pinned, evicted, stale or on its way to another tier by
 *                              then, or the copy failed
 *   a set:    chosen -> recalled (ASKED) -> empty (IDLE) -> unmapped by its clients -> unbound
 *                          \-> called off
 *
 * While it is copied a page can be found and read as ever; the new one is MOVING and nobody's. The
 * last step is the evictor's (shared.h): RETIRING, fence, sum of the pins, and only where nobody
 * pins it the slot names the new page. So nobody who holds a page sees it move. A set is called off
 * where its pages have no room any more, where a lease lacks pages (compact_call_off()), or where
 * nothing moved for a while. Nothing is dropped for it.
 *
 * On a queue the copies are jobs; inline they are made in pieces, by recall_work(). Loop thread
 * only.
 */
#ifndef KVL_CORE_COMPACT_H
#define KVL_CORE_COMPACT_H

#include <stdbool.h>
#include <stdint.h>

struct extent_set;
struct ns;
struct store;

/*
 * Begins to empty a set of each namespace where one is worth it and none is being emptied: of sets
 * that nobody has mapped, or only clients that keep safe points. Looks at namespaces in which pages
 * were freed since it found nothing to do. True while sets are being emptied: to be called again.
 */
bool compact_turn(struct store *s, uint64_t now_nsec);

/* Pages that were to be copied and aren't any more are FREE again. Part of compact_turn(). True
 * while pages are being copied: to be called again. */
bool compact_tidy(struct store *s);

/*
 * Of recall_work(), for a set of kind RECALL_COMPACT in state ASKED with something in it: goes on
 * with it, or calls it off. At most `budget` page records are looked at. Returns how many were.
 */
uint32_t compact_visit(struct extent_set *set, uint64_t now_nsec, uint32_t budget);

/* A lease lacks pages: what is withheld for compaction in the namespace is FREE again, but for what
 * a queue is copying to. */
void compact_call_off(struct ns *ns);

/* The namespace goes: nothing of it is moved any more. */
void compact_forget_ns(struct ns *ns);

/* After the devices' end, which never says that copies are done. */
void compact_deinit(struct store *s);

/* Thousandths of the devices' memory that are FREE in sets that hold other pages, so that no other
 * namespace can have them (policy/compact.h). O(sets); without memory 0. */
uint32_t compact_figure(const struct store *s);

/* Pages of the namespace that are MOVING, by what is known of moves. For the checker. */
uint64_t compact_count_moves(const struct ns *ns);

/* Is the page where a move leads? For the checker. */
bool compact_moves_to(const struct ns *ns, uint32_t page);

#endif
