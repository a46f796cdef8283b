/*
 * Pages that a call brings are made known to the process' page tables before it returns, so that
 * the first access to them isn't a fault for each 4 KiB (populate.c).
 */
#ifndef KVL_LIB_POPULATE_H
#define KVL_LIB_POPULATE_H

#include <stdint.h>

struct kvl_ns;

/* Makes the bits that say what is populated; once, when sets are made. 0; -ENOMEM with the
 * sentence. */
int ns_make_units(struct kvl_ns *ns);

/* Populates the pages, which the caller holds, as far as they are mapped and it is the first time.
 * Any threads, without the lock: it takes microseconds for each 64 KiB.
 */
void ns_populate(const struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages);

/* [L] The set isn't mapped any more, or is about to be unmapped and doesn't count as mapped. */
void ns_forget_populated(const struct kvl_ns *ns, uint32_t set);

#endif
