/* Enters the pages of a call into the process' page tables before the call returns. Otherwise the
 * first access would fault for each 4 KiB (populate.c). */
#ifndef KVL_LIB_POPULATE_H
#define KVL_LIB_POPULATE_H

#include <stdint.h>

struct kvl_ns;

/* Makes the bitmap of populated units; once, when sets are made. Returns 0; -ENOMEM with the
 * sentence. */
int ns_make_units(struct kvl_ns *ns);

/* Populates those of the pages that are mapped, once in each process. The caller holds the pages.
 * Thread-safe, without the lock: it takes microseconds for each 64 KiB. */
void ns_populate(const struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages);

/* [L] The set was unmapped, or is about to be and no longer counts as mapped. */
void ns_forget_populated(const struct kvl_ns *ns, uint32_t set);

#endif
