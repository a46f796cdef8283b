/*
 * Pages that somebody holds already: one pin more, and whether a group does. The first pin of a
 * page comes with what found or published it (lease.h, session.h). Loop thread only.
 */
#ifndef KVL_CORE_PIN_H
#define KVL_CORE_PIN_H

#include <stdint.h>

struct attach;
struct detail;

/*
 * One more pin of each page (n >= 1; a page may stand there more than once), which the member has
 * pinned over the socket in this namespace already. 0; else none is pinned: -EINVAL, one isn't;
 * KVL_STATUS_QUOTA, and others, as attach_check_page_pins() and attach_reserve_pins().
 */
int pin_again(struct attach *a, const uint32_t *pages, uint32_t n, struct detail *d);

/*
 * Are all pages leased by the attachment's group, or pinned by one of its members, over the socket
 * or in shared memory? 0; -ENOENT, with the sentence that names the first that isn't.
 */
int pin_check_held(const struct attach *a, const uint32_t *pages, uint32_t n, struct detail *d);

#endif
