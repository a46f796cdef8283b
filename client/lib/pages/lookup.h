/*
 * A lookup in steps, for calls that look further once there is more (kvl_lookup_wait()), or in
 * several namespaces (kvl_lookup_set()): what is found is pinned at once, and counted, told to the
 * eviction policy and mapped at the end. Over the socket the daemon does all of that with each
 * step.
 */
#ifndef KVL_LIB_LOOKUP_H
#define KVL_LIB_LOOKUP_H

#include <stdint.h>

#include "client/lib/calls/op.h"

/* Whether the reply to a request that finds pages brings as many as it may. */
static inline bool is_found_right(const struct op *op, int code, size_t n)
{
        return code == 0 ? n > 0 && n <= op->n_asked : n == 0;
}

struct lookup {
        struct kvl_ns *ns;
        uint64_t request;
        const uint8_t *keys; /* borrowed, as the pages, which have room for n_keys */
        uint32_t n_keys;
        uint32_t *pages;
        uint32_t n_pages; /* found */
        uint64_t n_tokens;
};

/* The next n_keys (>= 1, of those that are left), as far as they are cached. 0: there was one;
 * KVL_MISS: none. KVL_STALE or -errno: as kvl_lookup(); what was found before stays. */
int lookup_extend(struct lookup *l, uint32_t n_keys);

/*
 * Asks the daemon for the keys after what was found, which it may have from other hosts, and waits
 * until it has brought what it can, or the time is over. 0: there may be more to be found now, of
 * the next *ret_n_keys, which else stay as they are; KVL_PENDING: somebody else computes the next
 * one, or brings it; KVL_MISS: there is no more; KVL_STALE or -errno: as kvl_lookup(). Only where
 * ns->imports.
 */
int lookup_import(struct lookup *l, uint64_t deadline_nsec, uint32_t *ret_n_keys);

/* Lets all but the first n_pages go; n_tokens isn't known any more where that is fewer than there
 * were. */
void lookup_cut(struct lookup *l, uint32_t n_pages);

/* Ends a lookup as kvl_lookup() does: 0, with n_pages and n_tokens of what is on the device;
 * KVL_MISS, where that is nothing; -errno, then nothing is pinned. */
int lookup_end(struct lookup *l);

#endif
