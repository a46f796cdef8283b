/*
 * Namespace sets: namespaces of one tenant that belong together, as of the ranks of a
 * tensor-parallel model or the layer groups of a hybrid one. A key is of use only where all of them
 * have it: where it is evicted or dropped in one it goes in all of them, and what isn't complete
 * after a while goes, too, so that a rank that died doesn't leave the others' pages unusable for
 * ever. Loop thread only.
 *
 * A set is there while one of its namespaces is. A key counts as complete while each of `size`
 * namespaces has it cached.
 *
 *   incomplete (in some) <-> complete (in all) -> doomed: gone in one of them, to go in the others
 *        \-> doomed: incomplete for NSSET_GRACE_NSEC, and pinned in none
 *
 * A key that is incomplete because a session gave its page up in one of them (session-truncate.h)
 * stays in the others until it is evicted there: their sessions may keep other pages.
 *
 * What is doomed is dropped by nssets_work(), soon: whoever drops a page may be in the middle of
 * the tenant's other namespaces. It can be found until then, in its own namespace. Where a
 * namespace is invalidated as a whole its keys become incomplete as the sweep comes by.
 */
#ifndef KVL_CORE_NSSET_H
#define KVL_CORE_NSSET_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/objects/drop-reason.h"
#include "daemon/core/objects/ns.h"
#include "daemon/core/objects/nsset.h"

struct store;

/* A key that isn't in all namespaces so long after its first publish is dropped. Ranks of one model
 * publish within milliseconds of each other; a slow one is given a thousand times that. Not tuned.
 */
#define NSSET_GRACE_NSEC UINT64_C(10000000000)

/* The namespace, just made, joins the set, which is made where it is missing. 0; -EINVAL: no name
 * or size for a set, another size than it has, or it is full; -ENOMEM. */
int nsset_join(struct ns *ns, const char *name, uint32_t size, struct detail *d);

/* The namespace goes. Nothing where it is in no set, like all below. */
void nsset_leave(struct ns *ns);

/* A page of the namespace was sealed and can be found; can't be any more; of an invalidated
 * namespace, was swept. */
void nsset_sealed(struct ns *ns, uint32_t page);
void nsset_gone(struct ns *ns, uint32_t page, struct drop_reason reason);
void nsset_swept(struct ns *ns, uint32_t page);

/* What is incomplete in the set stays, as if sessions had given up the rest of it. */
void nsset_keep_incomplete(struct nsset *set);

/* The namespaces, by struct ns.set_place, that have the key cached, and aren't to drop it because
 * another one has. One that was invalidated as a whole may still be among them until the sweep
 * comes by. */
uint64_t nsset_where(const struct nsset *set, const uint8_t key[KEY_BYTES]);

/* May this page be evicted: does nobody hold its key in another namespace of the set? */
bool nsset_may_evict(const struct ns *ns, uint32_t page);

/* fn gets each page of the namespace whose key is pinned in another one of the set. O(bound pages
 * of these * clients). */
void nsset_find_held(const struct ns *ns, void (*fn)(uint32_t page, void *data), void *data);

/* Drops what is doomed, and dooms what is incomplete for too long by store.now_nsec: at most
 * `budget` of each. True: there is more. */
bool nssets_work(struct store *s, uint32_t budget);

/* When the next key will have been incomplete for too long; UINT64_MAX: none is. */
uint64_t nssets_deadline(const struct store *s);

/* Debug: NULL, or a static sentence naming what is wrong. */
const char *nsset_check(const struct nsset *set);

#endif
