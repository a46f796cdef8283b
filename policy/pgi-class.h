/* The classes of PGI (pgi-table.h), by a page's last use. PURE. */
#ifndef KVL_POLICY_PGI_CLASS_H
#define KVL_POLICY_PGI_CLASS_H

#include <stdint.h>

#include "policy/evict.h"

/* Hints as stored with a page, in 4 bits: RETURNS has one for each factor of four of time. */
enum {
        PGI_HINT_NONE,
        PGI_HINT_CONTINUES,
        PGI_HINT_DONE,
        PGI_HINT_RETURNS, /* + 0..PGI_DELAYS-1 */
};

uint32_t pgi_hint_code(enum evict_hint hint, uint64_t after_nsec);

/* The bin of a number of tokens; each is four times as wide as the one before. Bin 0 holds up to
 * 2048 tokens; bin n - 1 is open. */
uint32_t pgi_size_bin(uint64_t tokens, uint32_t n);

/* turn: 1.. */
uint32_t pgi_body_class(uint32_t hint_code, uint32_t turn, uint32_t length_bin, uint32_t fresh_bin);

/* The fresh_bin given to pgi_body_class() for this class, if it matters; else 0. */
uint32_t pgi_fresh_bin_of(uint32_t class);

uint32_t pgi_shared_class(uint32_t accesses);

/*
 * Continuation of a page, in 5 bits, to detect shared pages: PGI_NO_KID, PGI_KIDS (two different
 * pages or more), or the tag of the only one, reduced to 1..30. A page that is published again is
 * recognized by this number, however long ago it was evicted and forgotten. For one page in 30, a
 * second text that continues it is only noticed with the third.
 */
#define PGI_NO_KID 0
#define PGI_KIDS   31

/* The code after a page with this tag continues it. */
uint32_t pgi_kid_with(uint32_t kid, uint32_t tag);

#endif
