/* Selects extent sets to compact: few of their pages are live, and these fit elsewhere. PURE. */
#ifndef KVL_POLICY_COMPACT_H
#define KVL_POLICY_COMPACT_H

#include <stddef.h>
#include <stdint.h>

struct compact_set {
        uint32_t n_usable;  /* pages */
        uint32_t n_free;    /* of these */
        uint32_t n_movable; /* cached, unpinned; the others, granted or pinned, can't be moved */
};

/*
 * Index of the set to empty next; SIZE_MAX: none is worth it. Candidates are at most a quarter
 * live, hold only movable pages, and their live pages fit the FREE pages of other non-empty sets.
 * The one with fewest live pages is chosen, then the lower index. Sets without live pages are empty
 * already, and none is filled to empty another. So every move leaves one non-empty set fewer.
 */
size_t compact_choose(const struct compact_set *sets, size_t n);

/* FREE pages that can't be given back because their sets are partly used. */
uint64_t compact_scattered(const struct compact_set *sets, size_t n);

#endif
