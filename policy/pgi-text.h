/*
 * Pages of a text, in PGI: each is used, and gets a class, in a walk from the last one up. A walk
 * ends after EVICT_WALK_PAGES.
 *
 * A request that found a page has used all pages above it. These are used at the request's end,
 * which walks up there in any case to set their class. So the cost of a lookup doesn't depend on
 * the length of the text. Meanwhile the pages above look as last used before. No victim is chosen
 * by that, as they have continuations below them.
 *
 * Only PGI's own files include this.
 */
#ifndef KVL_POLICY_PGI_TEXT_H
#define KVL_POLICY_PGI_TEXT_H

#include "policy/pgi-impl.h"

/* One page of a text that was looked up. */
void pgi_use_page(struct pgi *p, uint32_t node, uint32_t now);

/* Another class and time of use. */
void pgi_set_class(struct pgi *p, uint32_t node, uint32_t class, uint32_t touched);

/* The last whole page of the text that ends at the node. */
uint32_t pgi_text_end_page(const struct pgi *p, uint32_t node);

/* Uses each page of the text, once in a request. `run`: the running request; NULL: none. Returns
 * the turn of the request, 1..PGI_TURNS. */
uint32_t pgi_text_use(struct pgi *p, uint32_t node, const struct pgi_run *run, uint32_t now);

/* Uses the pages above the one that the request found, if they weren't used yet. */
void pgi_text_use_found(struct pgi *p, struct pgi_run *run);

/* Ends the request with the text that ends at run->page, which is cached. Uses the pages above the
 * found one, and sets the class of all its pages. */
void pgi_text_end(struct pgi *p, struct pgi_run *run, uint32_t now);

#endif
