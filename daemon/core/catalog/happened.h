/*
 * What the store notes in its chronicle: one function for each kind, so that whoever does something
 * says no more than what it was. Without effect where the chronicle is off.
 */
#ifndef KVL_CORE_HAPPENED_H
#define KVL_CORE_HAPPENED_H

#include <stdint.h>

#include "daemon/core/catalog/history.h"
#include "daemon/core/objects/pool.h"
#include "daemon/core/quota/region.h"

struct ns;
struct extent_set;
struct tenant;

/* A page that could be found goes. */
void happened_gone(struct ns *ns, uint32_t page, struct drop_reason reason);

/* All `n` pages of it, at once. */
void happened_emptied(struct ns *ns, uint64_t n, enum drop_cause cause);

/* A lease of n pages; detail: the sentence that is told, may be NULL. */
void happened_refused(
        struct ns *ns, uint32_t n, enum lease_reason reason, const struct detail *detail);

/* A page went to where `to` is. */
void happened_demoted(struct ns *ns, uint32_t to);

/* A set is asked back, for a lease of `by` (NULL: nobody's). */
void happened_revoked(struct extent_set *set, const struct tenant *by, enum recall_kind kind);

/* A session that nobody used. */
void happened_session_expired(struct ns *ns);

#endif
