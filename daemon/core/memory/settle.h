/*
 * The settle list (store.memory.settling): sets of which less is held than before. No set goes in
 * the middle of a call, whatever the call lets go of: a function that frees a page, or ends a
 * mapping, lists the set, and whoever called it finds all sets still there. The list is drained
 * where an entry point of the core returns (SETTLE_AT_END()): what is idle and nobody wants kept is
 * given back then, and recalls of what is held no longer go on.
 *
 * Who needs memory before that, because something is to be bound in the same call, drains the list
 * by name (settle_now()) where it has no set in its hands. Loop thread only.
 */
#ifndef KVL_CORE_SETTLE_H
#define KVL_CORE_SETTLE_H

#include "daemon/core/objects/ns.h"
#include "daemon/core/objects/store.h"

/* Less of the set is held than before, or it was bound and nothing of it is used yet. It is listed
 * where that may matter, and stays until the list is drained. Safe to repeat. */
void settle_set(struct extent_set *set);

/* What the namespace's idle sets are kept for may have ended: all of them are listed. O(sets). */
void settle_sets_of(struct ns *ns);

/* Drains the list. Pointers to sets are good no longer than to here. */
void settle_all(struct store *s);

/* Memory is needed now: the same as settle_all(), but for idle sets of the namespace `but` (NULL:
 * none) that aren't recalled. The FREE pages in these are what its call collects; they stay listed.
 */
void settle_now(struct store *s, const struct ns *but);

static inline void settle_at_end_p(struct store **s)
{
        if (!list_is_empty(&(*s)->memory.settling))
                settle_all(*s);
}

/* A declaration, with which each entry point of the core begins that may let go of something: the
 * list is drained when the function returns. */
#define SETTLE_AT_END(s) \
        __attribute__((cleanup(settle_at_end_p), unused)) struct store *settles = (s)

/* Begins another round over all recalled sets, unless one is under way. */
void recall_poll(struct store *s);

/* A set is about to be freed, or its recall is called off: nothing counts it as recalled any more.
 * Nothing is done where it is not recalled. */
void recall_forget(struct extent_set *set);

/* Nothing is held of the set any more: its recall goes on with that. Nobody is told yet. */
void recall_become_idle(struct extent_set *set);

/* All recalled sets are to be visited once more, whatever round is under way. */
void recall_begin_round(struct store *s);

/* Says that recall_work() is to be called soon (store.owner.on_recall_work). */
void recall_wake(struct store *s);

#endif
