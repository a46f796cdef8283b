/*
 * Counts cached pages of one tenant that were evicted for leases of another. Counters run from the
 * start and are freed with the tenant that lost pages. Loop thread only.
 */
#ifndef KVL_CORE_BLAME_H
#define KVL_CORE_BLAME_H

#include <stdint.h>

#include "base/list.h"
#include "base/parse.h"

struct tenant;

/* The most names per victim; further ones are counted under "(others)". */
#define BLAME_MAX    64
#define BLAME_OTHERS "(others)"

struct blame {
        struct list_link link;        /* tenant.blames of the victim, appended: lists count them */
        char by[TENANT_NAME_MAX + 1]; /* "": no lease */
        uint64_t pages, sets;
};

/* Counts an eviction; without memory it isn't counted. by NULL: no lease caused it (a limit was
 * lowered, compaction, ...). */
void blame_note(struct tenant *victim, const struct tenant *by, uint64_t pages, uint64_t sets);

void blame_free(struct tenant *victim);

#endif
