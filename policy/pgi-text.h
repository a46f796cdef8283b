/*
 * The pages of a text, in PGI: each is used, and gets a class, in a walk from the last one up. A
 * walk ends after EVICT_WALK_PAGES.
 *
 * A request that found a page has used all that is above it as well. Its end goes up there in any
 * case, to say what class the pages are of, so they are used then: what a lookup costs doesn't
 * depend on how long the text is. Meanwhile the pages above look as if they had last been used
 * before. No victim is chosen by that, as they have what continues them below them.
 *
 * PGI's files alone include this.
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

/* Uses each page of the text, once in a request, however often that touches it. `run`: the request
 * that runs; NULL: none. Returns the turn that the request is, 1..PGI_TURNS. */
uint32_t pgi_text_use(struct pgi *p, uint32_t node, const struct pgi_run *run, uint32_t now);

/* The pages above the one that the request found are used, where they still are to be. */
void pgi_text_use_found(struct pgi *p, struct pgi_run *run);

/* The request ends with the text that ends at run->page, which is cached: its pages are used as far
 * as they are above the one that was found, and get the class that the request gives them. */
void pgi_text_end(struct pgi *p, struct pgi_run *run, uint32_t now);

#endif
