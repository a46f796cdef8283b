/*
 * The pins of an attachment: that its client reads a page. Each is counted, by page, in one of two
 * segments:
 *
 *   attach.share   the client's, where it shares memory: it writes there without asking anybody
 *                  (records/shared.h)
 *   attach.pins    the daemon's, written on behalf of the client, for what that asks for by
 * requests over its socket; every function here that adds or takes away means this one
 *
 * Page numbers are checked by the caller where nothing else is said. Loop thread only.
 */
#ifndef KVL_CORE_PIN_H
#define KVL_CORE_PIN_H

#include <stdbool.h>
#include <stdint.h>

struct attach;
struct detail;

/* Whether the client may have n pins more, by the tenant's max_pins: 0; KVL_STATUS_QUOTA with the
 * sentence. */
int pin_check(const struct attach *a, uint32_t n, struct detail *d);

/* Whether it may have n pins more of this page (any number), by PAGE_MAX_CLIENT_PINS alone: 0;
 * KVL_STATUS_QUOTA with the sentence. */
int pin_check_page(const struct attach *a, uint32_t page, uint32_t n, struct detail *d);

/*
 * Makes room for n pins more, so that pin_add() can't fail as often. 0; KVL_STATUS_QUOTA, as
 * pin_check(); -ENOMEM, or as add() of keep.h, with the sentence.
 */
int pin_reserve(struct attach *a, uint32_t n, struct detail *d);

/* One pin more of a page that is SEALED or DETACHED. pin_reserve() made room for it, and
 * pin_check_page() allows it. */
void pin_add(struct attach *a, uint32_t page);

/* The same, as the first pin of a page that was published just now. */
void pin_add_published(struct attach *a, uint32_t page);

/*
 * One more pin of each page (n >= 1, any numbers; a page may stand there more than once), which the
 * client has pinned by requests already. 0; else none is pinned: -EINVAL, one isn't;
 * KVL_STATUS_QUOTA, and others, as pin_check_page() and pin_reserve().
 */
int pin_again(struct attach *a, const uint32_t *pages, uint32_t n, struct detail *d);

/* One pin less of each page (any numbers, as often as they stand there). 0; -EINVAL with the
 * sentence, one hasn't as many: nothing is changed. */
int pin_release(struct attach *a, const uint32_t *pages, uint32_t n, struct detail *d);

/* The attachment is closing: pins go, some work at a time. Returns how much was done, `budget` at
 * most; less: none is left. */
uint64_t pin_release_some(struct attach *a, uint64_t budget);

/* Has the client pinned the page (any number), in whichever of the two segments? By a request? */
bool pin_has(const struct attach *a, uint32_t page);
bool pin_has_by_request(const struct attach *a, uint32_t page);

/*
 * Are all pages (any numbers) leased by the attachment's group, or pinned by one of its members, in
 * whichever segment? 0; -ENOENT, with the sentence that names the first that isn't.
 */
int pin_check_held(const struct attach *a, const uint32_t *pages, uint32_t n, struct detail *d);

#endif
