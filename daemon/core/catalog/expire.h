/*
 * Expiry: cached pages that nobody has used for as long as their tenant (or the last opener of the
 * namespace who said so) lets them stay, and those that nobody has found for as long since they
 * were published. Leaves first, so that what goes is never the beginning of what stays; what is
 * pinned counts as used. Loop thread only.
 *
 * A namespace with such a time is gone through in rounds, each a tenth of that time after the one
 * before, at least a second: so late a page goes at most, and the time that a round takes.
 */
#ifndef KVL_CORE_EXPIRE_H
#define KVL_CORE_EXPIRE_H

#include <stdbool.h>
#include <stdint.h>

struct ns;
struct store;

/* What is in force: 0, never. */
uint64_t expire_nsec(const struct ns *ns);

/* Begins the rounds whose time has come. True: expire_work() has something to do. */
bool expire_begin(struct store *s, uint64_t now_nsec);

/* Goes on with them: looks at up to `budget` page records. True while there is more. */
bool expire_work(struct store *s, uint32_t budget);

/* When expire_begin() is to be called next; UINT64_MAX: nothing that is cached expires. */
uint64_t expire_deadline(const struct store *s);

#endif
