/*
 * Expires cached pages that weren't used for a time, and pages that weren't found for a time since
 * they were published. The tenant sets both times; the last opener of the namespace may set the
 * first. Leaves are expired first, so that the remaining pages are always the beginning of texts.
 * Pinned pages count as used. Loop thread only.
 *
 * Rounds go over such a namespace at intervals of a tenth of that time, at least a second. So a
 * page expires late by at most that interval and the time of a round.
 */
#ifndef KVL_CORE_EXPIRE_H
#define KVL_CORE_EXPIRE_H

#include <stdbool.h>
#include <stdint.h>

struct ns;
struct store;

/* Returns the expiry time in force; 0: never. */
uint64_t expire_nsec(const struct ns *ns);

/* Begins the rounds that are due. Returns true if expire_work() has work. */
bool expire_begin(struct store *s, uint64_t now_nsec);

/* Continues the rounds: looks at up to `budget` page records. Returns true while there is more. */
bool expire_work(struct store *s, uint32_t budget);

/* Returns when expire_begin() is due next; UINT64_MAX: no cached page expires. */
uint64_t expire_deadline(const struct store *s);

#endif
