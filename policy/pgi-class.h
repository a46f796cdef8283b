/*
 * The classes of PGI (pgi-table.h): which one a page's last use puts it in. PURE.
 */
#ifndef KVL_POLICY_PGI_CLASS_H
#define KVL_POLICY_PGI_CLASS_H

#include <stdint.h>

#include "policy/evict.h"

/* Hints as they are kept with a page, in 4 bits: RETURNS is one for each factor of four of time. */
enum {
        PGI_HINT_NONE,
        PGI_HINT_CONTINUES,
        PGI_HINT_DONE,
        PGI_HINT_RETURNS, /* + 0..PGI_DELAYS-1 */
};

uint32_t pgi_hint_code(enum evict_hint hint, uint64_t after_nsec);

/* The bin of a number of tokens; each is four times as wide as the one before. Bin 0 holds up to
 * 2048 tokens, bin n - 1 all that are more. */
uint32_t pgi_size_bin(uint64_t tokens, uint32_t n);

/* turn: 1.. */
uint32_t pgi_body_class(uint32_t hint_code, uint32_t turn, uint32_t length_bin, uint32_t fresh_bin);

/* What pgi_body_class() was told, where it matters; 0 of other classes. */
uint32_t pgi_fresh_bin_of(uint32_t class);

uint32_t pgi_shared_class(uint32_t accesses);

/*
 * What continues a page, as far as it tells shared pages from others, in 5 bits: PGI_NO_KID,
 * PGI_KIDS (two different pages or more), or which page the only one is, as a number of 1..30 made
 * of its tag. A page that comes back is known by this number for the continuation that it is,
 * however long ago it was evicted and forgotten. One page in 30 that a second text continues is
 * noticed with the third text only.
 */
#define PGI_NO_KID 0
#define PGI_KIDS   31

/* The same once a page with this tag continues it. */
uint32_t pgi_kid_with(uint32_t kid, uint32_t tag);

#endif
