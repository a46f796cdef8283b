/*
 * What becomes of a set when less of it is held: it is given back where it is idle and nobody wants
 * it kept, and a recall of it goes on. Loop thread only.
 */
#ifndef KVL_CORE_SETTLE_H
#define KVL_CORE_SETTLE_H

#include "daemon/core/objects/ns.h"

/* Something of the set was let go of. It is given back where it is idle now and nobody wants it
 * kept; where it is recalled its recall goes on. The set may be gone after. */
void ns_settle_set(struct extent_set *set);

/* A call that kept idle sets (ns.keep_idle_sets) is over: those that nobody wants are given back.
 */
void ns_trim(struct ns *ns);

/* Begins another round over all recalled sets, unless one is under way. */
void recall_poll(struct store *s);

/* Pages of a recalled set were freed, or it isn't mapped any more: the set may be gone after. */
void recall_settle(struct extent_set *set);

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
