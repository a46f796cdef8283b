/*
 * Who evicted whom: cached pages of one tenant that gave way to leases of another. Counters since
 * the start; they go with the tenant that lost. Loop thread only.
 */
#ifndef KVL_CORE_BLAME_H
#define KVL_CORE_BLAME_H

#include <stdint.h>

#include "base/list.h"
#include "base/parse.h"

struct tenant;

/* Of one victim at most so many names; what comes after is counted under "(others)". */
#define BLAME_MAX    64
#define BLAME_OTHERS "(others)"

struct blame {
        struct list_link link;        /* tenant.blames of the victim, appended: lists count them */
        char by[TENANT_NAME_MAX + 1]; /* "": nobody's lease */
        uint64_t pages, sets;
};

/* Without memory it isn't counted. by NULL: nobody's lease (a limit was lowered, compaction, ...).
 */
void blame_note(struct tenant *victim, const struct tenant *by, uint64_t pages, uint64_t sets);

void blame_free(struct tenant *victim);

#endif
