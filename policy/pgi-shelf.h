/*
 * The shelves of PGI (pgi-list.h), and which page of one goes first. Each page that may be a victim
 * (is_candidate()) lies on the shelf of its tier, and of those there that are leaves or only tips.
 * A shelf's *choice* is the list of it that victims are taken from, kept while it is the best.
 * PURE. Not thread-safe. PGI's own files include it, nobody else.
 */
#ifndef KVL_POLICY_PGI_SHELF_H
#define KVL_POLICY_PGI_SHELF_H

#include "policy/evict.h"
#include "policy/pgi-impl.h"

/* Forgets the choices: lists or what they are worth have changed. */
void pgi_choices_drop(struct pgi *p);

/* Does what evict_ops.victim() promises. now: in ticks. */
uint32_t pgi_choices_victim(struct pgi *p, uint32_t tier, enum evict_how how, uint32_t now);

/* Off its shelf, where it lies on one. */
void pgi_shelf_leave(struct pgi *p, uint32_t node);

/* It lies on none, and was used just now: as the last, if it may be a victim. */
void pgi_shelf_enter(struct pgi *p, uint32_t node);

/* To the shelf where it belongs, if to any: what continues it, or its tier, or its lock, has
 * changed, or (_put) will have: is_tip and is_leaf say what it is then. Not a use. */
void pgi_shelf_put(struct pgi *p, uint32_t node, bool is_tip, bool is_leaf);
void pgi_shelf_update(struct pgi *p, uint32_t node);

#endif
