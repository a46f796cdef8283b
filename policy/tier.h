/*
 * What moves between tiers (policy/tree.h), and what doesn't. PURE: figures in, figures out.
 */
#ifndef KVL_POLICY_TIER_H
#define KVL_POLICY_TIER_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Whether a page of a tier is worth a place in a full one below, of which the page that would go
 * for it has `other`: by what keeping each is worth (evict_ops.worth()) for the bytes that each
 * takes there, > 0. What is worth as much comes down: it was used later.
 */
bool tier_takes(double worth, uint64_t bytes, double other_worth, uint64_t other_bytes);

#endif
