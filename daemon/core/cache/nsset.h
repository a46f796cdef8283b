/*
 * Namespace sets: namespaces of one tenant that belong together, such as the ranks of a
 * tensor-parallel model or the layer groups of a hybrid one. A key is of use only if all of them
 * have it. If it is evicted or dropped in one namespace, it is dropped in all. A key that stays
 * incomplete is dropped after a while: the death of a rank must not leave unusable pages in the
 * others for ever. Loop thread only.
 *
 * A set exists while one of its namespaces does. A key is complete while each of `size` namespaces
 * has it cached.
 *
 *   incomplete (in some) <-> complete (in all) -> doomed: dropped in one, next in the others
 *        \-> doomed: incomplete for NSSET_GRACE_NSEC, and pinned in none
 *
 * A key that is incomplete because a session gave its page up in a namespace (session-truncate.h)
 * stays in the others until it is evicted there: their sessions may keep other pages.
 *
 * nssets_work() drops doomed keys soon after, not at once: the code that drops a page may be in the
 * middle of the tenant's other namespaces. Until then the key can be found in its own namespace. If
 * a namespace is invalidated as a whole, its keys become incomplete when the sweep reaches them.
 */
#ifndef KVL_CORE_NSSET_H
#define KVL_CORE_NSSET_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/state/drop-reason.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/nsset-keys.h"

struct store;

/* A key that isn't in all namespaces this long after its first publish is dropped. Ranks of a model
 * publish within milliseconds of each other; this allows a thousand times that. Not tuned. */
#define NSSET_GRACE_NSEC UINT64_C(10000000000)

/* A new namespace joins the set, which is made if it doesn't exist. Returns 0; -EINVAL: bad name or
 * size, another size than the set's, or the set is full; -ENOMEM. */
int nsset_join(struct ns *ns, const char *name, uint32_t size, struct detail *d);

/* The namespace is being freed. This function and the next do nothing without a set. */
void nsset_leave(struct ns *ns);

/* A page of the namespace was sealed and can be found; was dropped; was swept after an
 * invalidation. */
void nsset_sealed(struct ns *ns, uint32_t page);
void nsset_gone(struct ns *ns, uint32_t page, struct drop_reason reason);
void nsset_swept(struct ns *ns, uint32_t page);

/* Keeps the set's incomplete keys, as if sessions had given up the rest of them. */
void nsset_keep_incomplete(struct nsset *set);

/* Returns a mask of the namespaces, by struct ns.set_place, that have the key cached and not
 * doomed. May include a namespace that was invalidated as a whole, until the sweep reaches the
 * page. */
uint64_t nsset_where(const struct nsset *set, const uint8_t key[KEY_BYTES]);

/* May this page be evicted, because its key isn't held in another namespace of the set? */
bool nsset_may_evict(const struct ns *ns, uint32_t page);

/* Calls fn for each page of the namespace whose key is pinned in another one of the set. O(bound
 * pages of these * clients). */
void nsset_find_held(const struct ns *ns, void (*fn)(uint32_t page, void *data), void *data);

/* Drops doomed keys, and dooms keys that were incomplete for too long by store.now_nsec: at most
 * `budget` of each. Returns true if there is more. */
bool nssets_work(struct store *s, uint32_t budget);

/* Returns when the next key will have been incomplete for too long; UINT64_MAX: none. */
uint64_t nssets_deadline(const struct store *s);

/* For the checker: returns NULL, or a static sentence about an error. */
const char *nsset_check(const struct nsset *set);

#endif
