/*
 * What a group has been granted in a namespace: its pages that are leased and not published yet.
 * They are added when they are leased (lease.h, magazine.h), and leave when they are published
 * (publish.h), given back, or missing in a client's report. Loop thread only.
 */
#ifndef KVL_CORE_GRANTS_H
#define KVL_CORE_GRANTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

struct attach;
struct detail;
struct grants;
struct group;
struct ns;

/* The page, GRANTED, and the group its owner, is in its grants from now on. */
void grants_add(struct grants *g, uint32_t page);

/* The page leaves its group's grants, to be published or freed by the caller. */
void grants_remove(struct grants *g, uint32_t page);

/* The group gives a page back that is granted to it, not in a magazine and not given back before:
 * it is FREE, or will be when no lingering member of the group has its set mapped. */
void grants_give_back(struct grants *g, uint32_t page);

/* Does a lingering member of the group have the page's set mapped? */
bool grants_may_be_written(const struct grants *g, uint32_t page);

/* 0: the page is granted to this attachment's group, and to nobody's magazine; -EINVAL with what
 * else it is. */
int grants_check_page(const struct attach *a, uint32_t page, struct detail *d);

/* The namespace has a FREE page: it is the group's. seq: page_note.seq. grants_take(): this one. */
uint32_t grants_take_page(struct attach *a, uint32_t seq);
void grants_take(struct attach *a, uint32_t page, uint32_t seq);

/* Gives granted pages back (grants_give_back()): they are no more the group's. -EINVAL where one
 * isn't granted to the group: none given back. */
int free_pages(struct attach *a, const uint32_t *pages, uint32_t n, struct detail *d);

/*
 * free_pages() once more, maybe: those are given back that this member leased itself, whatever the
 * others are. A page that was given back then isn't granted to it again, as it could ask for
 * nothing since.
 */
void free_pages_again(struct attach *a, const uint32_t *pages, uint32_t n);

/*
 * The client still holds `pages` of its grants and no others: frees the group's others in the
 * namespace, but for those in magazines. `continues`: it goes on with the report that is under way;
 * else that one is forgotten. `more`: another call of the same report follows, nothing is freed
 * yet. 0 with the count; -ESTALE: none is under way that could go on, it must be begun anew (a
 * report doesn't outlive the daemon); -EBUSY: other members of the group, also such that linger,
 * have the namespace open; -EINVAL: one isn't granted to the group, the report is forgotten.
 */
int report_pages(struct attach *a, const uint32_t *pages, uint32_t n, bool continues, bool more,
        uint64_t *ret_freed, struct detail *d);

#endif
