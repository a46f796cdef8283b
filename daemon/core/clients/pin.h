/*
 * The pins of an attachment. A pin says that the client reads a page; pins are counted by page, in
 * one of two segments:
 *
 *   attach.share  of a client that shares memory: it writes there itself, and asks nobody
 *                 (records/shared.h)
 *   attach.pins   held by the daemon, which writes it on behalf of the client: what that takes and
 *                 releases over the socket (ground/pin-counts.h)
 *
 * Every pin in the second one comes and goes by a function of this file. Their sum over all clients
 * is in the page's record besides, as the daemon is told of each of them (page_pins()). Page
 * numbers are checked by the caller where nothing else is said. Loop thread only.
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

/*
 * For recovery: the attachment's pins over the socket are those in this file (borrowed) of the
 * daemon before, of the right size, as far as they can be. 0; -ENOMEM.
 */
int pin_adopt(struct attach *a, int fd);

/* One pin more of a page that is SEALED or DETACHED. pin_reserve() made room for it, and
 * pin_check_page() allows it. */
void pin_add(struct attach *a, uint32_t page);

/* Adds the first pin of a page that was published just now; room for it, as above. */
void pin_add_published(struct attach *a, uint32_t page);

/*
 * One more pin of each page (n >= 1, any numbers; a page may stand there more than once), which the
 * client has pinned over the socket already. 0; else none is pinned: -EINVAL, one isn't;
 * KVL_STATUS_QUOTA, and others, as pin_check_page() and pin_reserve().
 */
int pin_again(struct attach *a, const uint32_t *pages, uint32_t n, struct detail *d);

/* One pin less of each page (any numbers, as often as they stand there). 0; -EINVAL with the
 * sentence, one hasn't as many: nothing is changed. */
int pin_release(struct attach *a, const uint32_t *pages, uint32_t n, struct detail *d);

/* The attachment is closing: its pins over the socket go, a slice at a time. Returns how many pages
 * were looked at, or as much else was done, `budget` at most; less than that: no pin is left. */
uint64_t pin_release_some(struct attach *a, uint64_t budget);

/* Has the client pinned the page (any number), in whichever of the two segments? */
bool pin_has(const struct attach *a, uint32_t page);

/* Has it pinned the page (any number) over the socket? */
bool pin_has_over_socket(const struct attach *a, uint32_t page);

/*
 * Are all pages (any numbers) leased by the attachment's group, or pinned by one of its members, in
 * whichever segment? 0; -ENOENT, with the sentence that names the first that isn't.
 */
int pin_check_held(const struct attach *a, const uint32_t *pages, uint32_t n, struct detail *d);

#endif
