/*
 * The idle list (store.memory.idle_sets): sets with fewer holds than before. No set is freed in
 * the middle of a call. A function that frees a page or ends a mapping lists the set, so its
 * callers find all sets still there. The caller of the core drains the list with idle_sets_drain()
 * where a request, a ring's slice, a slice of background work or a timer ends. Then idle sets that
 * aren't needed are freed, and recalls of sets without holds continue. The event loop never sleeps
 * with sets in the list: a debug build (KVL_DEBUG) asserts it.
 *
 * A function that needs memory earlier, to bind a set in the same call, drains the list with
 * idle_sets_drain_except() while it uses no set. Loop thread only.
 */
#ifndef KVL_CORE_IDLE_SETS_H
#define KVL_CORE_IDLE_SETS_H

#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"

/* Lists a set that has fewer holds than before, or that was bound and isn't used yet, if that may
 * matter. It stays listed until the list is drained. Idempotent. */
void idle_sets_add(struct extent_set *set);

/* Lists all idle sets of the namespace, because the reason to keep them may have ended. O(sets). */
void idle_sets_add_all(struct ns *ns);

/* Drains the list; cheap if it is empty. Pointers to sets become invalid here. */
void idle_sets_drain(struct store *s);

/* Drains the list because memory is needed now. Exception: idle sets of the namespace `but` (NULL:
 * none) that aren't recalled stay listed, as the caller uses their FREE pages. */
void idle_sets_drain_except(struct store *s, const struct ns *but);

/* Begins another round over all recalled sets, unless one is under way. */
void recall_poll(struct store *s);

/* Stops counting the set as recalled, because it is about to be freed or its recall is called off.
 * Does nothing if it isn't recalled. */
void recall_forget(struct extent_set *set);

/* The set has no holds any more, so its recall continues. Notifies no client yet. */
void recall_become_idle(struct extent_set *set);

/* Begins a round over all recalled sets, even if one is under way. */
void recall_begin_round(struct store *s);

/* Requests a call of recall_work() (store.owner.on_recall_work). */
void recall_wake(struct store *s);

#endif
