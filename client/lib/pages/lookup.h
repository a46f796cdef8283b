/*
 * A lookup in steps, for calls that extend it as more pages appear (kvl_lookup_wait()), or that
 * search several namespaces (kvl_lookup_set()). Found pages are pinned at once. At the end they are
 * counted, reported to the eviction policy and mapped. Over the socket the daemon does all of this
 * at each step.
 */
#ifndef KVL_LIB_LOOKUP_H
#define KVL_LIB_LOOKUP_H

#include <stdint.h>

#include "client/lib/calls/op.h"

/* Whether a reply that finds pages has a possible number of them. */
static inline bool is_found_right(const struct op *op, int code, size_t n)
{
        return code == 0 ? n > 0 && n <= op->n_asked : n == 0;
}

struct lookup {
        struct kvl_ns *ns;
        uint64_t request;
        const uint8_t *keys; /* borrowed, like `pages`, which has n_keys entries */
        uint32_t n_keys;
        uint32_t *pages;
        uint32_t n_pages; /* found */
        uint64_t n_tokens;
};

/* Looks up the next n_keys (>= 1, of those that are left), as far as they are cached. Returns 0: at
 * least one was found; KVL_MISS: none; KVL_STALE or -errno: as kvl_lookup(). Pages found before
 * stay. */
int lookup_extend(struct lookup *l, uint32_t n_keys);

/*
 * Asks the daemon to import the keys after the found ones from other hosts, and waits until it has,
 * or until the deadline. Only if ns->imports.
 *
 * Returns 0: *ret_n_keys more keys may be found now (otherwise *ret_n_keys is unchanged);
 * KVL_PENDING: the next key is being computed or imported; KVL_MISS: there is no more; KVL_STALE or
 * -errno: as kvl_lookup().
 */
int lookup_import(struct lookup *l, uint64_t deadline_nsec, uint32_t *ret_n_keys);

/* Releases all but the first n_pages. n_tokens is unknown afterwards if pages were released. */
void lookup_cut(struct lookup *l, uint32_t n_pages);

/* Ends a lookup as kvl_lookup() does. Returns 0, with n_pages and n_tokens on the device; KVL_MISS:
 * there are none; -errno: nothing is pinned. */
int lookup_end(struct lookup *l);

#endif
