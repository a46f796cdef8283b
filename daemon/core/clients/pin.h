/*
 * The pins of an attachment. A pin says that the client reads a page. Pins are counted by page, in
 * one of two segments:
 *
 *   attach.share  of a client that shares memory: it writes the counters itself, without a request
 *                 (state/shared.h)
 *   attach.pins   written by the daemon for the client: pins that it takes and releases over the
 *                 socket (state/pin-counts.h)
 *
 * All pins in the second one are added and removed by functions of this file. A page's record has
 * their sum over all clients, too (page_pins()). Callers check page numbers unless a comment says
 * otherwise. Loop thread only.
 */
#ifndef KVL_CORE_PIN_H
#define KVL_CORE_PIN_H

#include <stdbool.h>
#include <stdint.h>

struct attach;
struct detail;

/* May the client have n more pins under the tenant's max_pins? Returns 0; KVL_STATUS_QUOTA with the
 * sentence. */
int pin_check(const struct attach *a, uint32_t n, struct detail *d);

/* May the client have n more pins of this page (any number) under PAGE_MAX_CLIENT_PINS? Returns 0;
 * KVL_STATUS_QUOTA with the sentence. */
int pin_check_page(const struct attach *a, uint32_t page, uint32_t n, struct detail *d);

/* Reserves n more pins, so that the next n calls of pin_add() can't fail. Returns 0;
 * KVL_STATUS_QUOTA, as pin_check(); -ENOMEM, or as add() of keep.h, with the sentence. */
int pin_reserve(struct attach *a, uint32_t n, struct detail *d);

/* Recovery: takes over the attachment's pins over the socket from the previous daemon's file
 * (borrowed, of the right size), as far as possible. Returns 0 or -ENOMEM. */
int pin_adopt(struct attach *a, int fd);

/* Adds a pin of a SEALED or DETACHED page. Requires pin_reserve() and pin_check_page(). */
void pin_add(struct attach *a, uint32_t page);

/* Adds the first pin of a page that was just published. Requires pin_reserve() and
 * pin_check_page(). */
void pin_add_published(struct attach *a, uint32_t page);

/* Adds a pin of each page (n >= 1, any numbers; a page may occur more than once) that the client
 * has pinned over the socket already. Returns 0; otherwise no pin is added: -EINVAL: one isn't
 * pinned; KVL_STATUS_QUOTA and others, as pin_check_page() and pin_reserve(). */
int pin_again(struct attach *a, const uint32_t *pages, uint32_t n, struct detail *d);

/* Removes a pin of each page (any numbers, as often as they occur). Returns 0; -EINVAL with the
 * sentence: one has fewer pins (nothing changed). */
int pin_release(struct attach *a, const uint32_t *pages, uint32_t n, struct detail *d);

/* Releases pins over the socket of a closing attachment, in slices. Returns the work done, in pages
 * looked at, `budget` at most; less than that: no pin is left. */
uint64_t pin_release_some(struct attach *a, uint64_t budget);

/* Has the client pinned the page (any number), in either segment? */
bool pin_has(const struct attach *a, uint32_t page);

/* Has the client pinned the page (any number) over the socket? */
bool pin_has_over_socket(const struct attach *a, uint32_t page);

/* Are all pages (any numbers) leased by the attachment's group, or pinned by one of its members in
 * either segment? Returns 0; -ENOENT with a sentence that names the first that isn't. */
int pin_check_held(const struct attach *a, const uint32_t *pages, uint32_t n, struct detail *d);

#endif
