/*
 * The shelves of PGI (pgi-list.h), and the next victim of each. Each page that may be a victim
 * (is_candidate()) lies on a shelf of its tier: one for leaves, one for other tips. A shelf's
 * *choice* is its list from which victims are taken, kept while it is the best. PURE. Not
 * thread-safe. Only PGI's own files include this.
 */
#ifndef KVL_POLICY_PGI_SHELF_H
#define KVL_POLICY_PGI_SHELF_H

#include "policy/evict.h"
#include "policy/pgi-impl.h"

/* Forgets the choices after lists or their value have changed. */
void pgi_choices_drop(struct pgi *p);

/* Implements evict_ops.victim(). now: in ticks. */
uint32_t pgi_choices_victim(struct pgi *p, uint32_t tier, enum evict_how how, uint32_t now);

/* Takes a page off its shelf, if it is on one. */
void pgi_shelf_leave(struct pgi *p, uint32_t node);

/* Puts a page that was used just now, and is on no shelf, at the end of its shelf, if it may be a
 * victim. */
void pgi_shelf_enter(struct pgi *p, uint32_t node);

/* Moves a page to its shelf, if any, after a change of its continuation, tier or lock; (_put):
 * before a change, is_tip and is_leaf tell the new state. Not a use. */
void pgi_shelf_put(struct pgi *p, uint32_t node, bool is_tip, bool is_leaf);
void pgi_shelf_update(struct pgi *p, uint32_t node);

#endif
