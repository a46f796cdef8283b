/*
 * Which extent sets are worth compacting: few pages of them are live, and these have room
 * elsewhere. PURE.
 */
#ifndef KVL_POLICY_COMPACT_H
#define KVL_POLICY_COMPACT_H

#include <stddef.h>
#include <stdint.h>

struct compact_set {
        uint32_t n_usable;  /* pages */
        uint32_t n_free;    /* of these */
        uint32_t n_movable; /* cached, unpinned */
        uint32_t n_held;    /* granted or pinned: would have to be waited for; n_usable less the two
                               above */
};

/*
 * Index of the set to empty next: the one with fewest live pages (then the lower index) among those
 * that are at most a quarter live, hold nothing that can't be moved, and whose live pages fit the
 * FREE pages of other sets that hold something. A set without live pages is empty already, and none
 * is filled to empty another: every move leaves one set fewer that holds something. SIZE_MAX: none
 * is worth it.
 */
size_t compact_choose(const struct compact_set *sets, size_t n);

/* FREE pages that can't be given back, because their sets hold something else: 0 where every set is
 * full or empty. */
uint64_t compact_scattered(const struct compact_set *sets, size_t n);

#endif
