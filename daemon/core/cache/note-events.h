/*
 * Notes in the store's event log: one function for each kind of event. They do nothing if the log
 * is off.
 */
#ifndef KVL_CORE_NOTE_EVENTS_H
#define KVL_CORE_NOTE_EVENTS_H

#include <stdint.h>

#include "daemon/core/cache/history.h"
#include "daemon/core/state/pool.h"
#include "daemon/core/memory/region.h"

struct ns;
struct extent_set;
struct tenant;

/* A page that could be found is dropped. */
void note_gone(struct ns *ns, uint32_t page, struct drop_reason reason);

/* All `n` pages of the namespace are dropped at once. */
void note_emptied(struct ns *ns, uint64_t n, enum drop_cause cause);

/* A lease of n pages is refused; detail: the sentence that is reported, or NULL. */
void note_refused(struct ns *ns, uint32_t n, enum lease_reason reason, const struct detail *detail);

/* A page was demoted to `to`. */
void note_demoted(struct ns *ns, uint32_t to);

/* A set is recalled for a lease of `by` (NULL: no lease). */
void note_revoked(struct extent_set *set, const struct tenant *by, enum recall_kind kind);

/* An unused session expired. */
void note_session_expired(struct ns *ns);

#endif
