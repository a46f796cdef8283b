/*
 * The pins that one client has taken over the socket in one namespace: a counter for each page, as
 * in the segments of clients that share memory (proto/shm.h). So finding and releasing many pages
 * costs no hash lookup for each. Only the daemon writes the counters. Their memory belongs to the
 * process, or is a file that the next daemon gets. Page numbers beyond the namespace have no pins.
 * Loop thread only.
 *
 * The lower half of a counter is the number of pins. The upper half says how many of these are
 * about to be released: a daemon that is killed meanwhile leaves all pins in place.
 */
#ifndef KVL_CORE_PIN_COUNTS_H
#define KVL_CORE_PIN_COUNTS_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

/* The most pins of one client on one page: half a counter. A page's record has the sum over its
 * clients in 32 bits. The most clients that a tenant can have, those of an earlier daemon included,
 * can't overflow it for any max_pins. */
#define PAGE_MAX_CLIENT_PINS 65535

/* All zero: no pins, and no memory for any. */
struct pin_counts {
        uint32_t *counts;  /* owned; by page; large memory is sparse */
        uint32_t len;      /* of `counts`: 0, or the namespace's capacity */
        uint32_t n_pinned; /* pages that have pins */
        bool is_kept;      /* the memory is a file */
};

/* Allocates the counters, once, in memory that ends with the process. Returns 0 or -ENOMEM (nothing
 * changed). */
int pin_counts_reserve(struct pin_counts *c, uint32_t capacity_pages);

/* Returns the size of a file for so many pages. */
uint64_t pin_counts_bytes(uint32_t capacity_pages);

/* Maps the counters from a memory file (borrowed) of the right size that is all zero. There were
 * none. Returns 0 or -ENOMEM (nothing changed). */
int pin_counts_map(struct pin_counts *c, int fd, uint32_t capacity_pages);

/* Maps the previous daemon's file (borrowed), of the right size and with any contents. There were
 * no counters. For each page with pins there, take() gets their number (1 to PAGE_MAX_CLIENT_PINS)
 * and returns how many to keep (at most as many). Returns 0 or -ENOMEM (nothing changed). */
int pin_counts_adopt(struct pin_counts *c, int fd, uint32_t capacity_pages,
        uint32_t (*take)(uint32_t page, uint32_t n, void *data), void *data);

void pin_counts_deinit(struct pin_counts *c);

/* Returns the first pinned page from *iter on (0 at first), or PAGE_NONE. Looks at no more than
 * `max` counters (> 0) and advances *iter behind them. Go on while *iter < len. */
uint32_t pin_counts_next(const struct pin_counts *c, uint32_t *iter, uint32_t max);

static inline uint32_t pin_counts_get(const struct pin_counts *c, uint32_t page)
{
        return page < c->len ? c->counts[page] & PAGE_MAX_CLIENT_PINS : 0;
}

/* Prefetches the counter of a page (any number) that is used soon. */
static inline void pin_counts_prefetch(const struct pin_counts *c, uint32_t page)
{
        if (page < c->len)
                __builtin_prefetch(&c->counts[page], 1);
}

/* Adds n (> 0) pins. The sum must not exceed PAGE_MAX_CLIENT_PINS. */
static inline void pin_counts_add(struct pin_counts *c, uint32_t page, uint32_t n)
{
        assert(page < c->len && c->counts[page] + n <= PAGE_MAX_CLIENT_PINS);

        c->n_pinned += c->counts[page] == 0;
        c->counts[page] += n;
}

/* Removes n (> 0) of the page's pins, which are n or more. */
static inline void pin_counts_drop(struct pin_counts *c, uint32_t page, uint32_t n)
{
        assert(page < c->len && c->counts[page] >= n);

        c->counts[page] -= n;
        c->n_pinned -= c->counts[page] == 0;
}

/* ---- many at once, all or none ----------------------------------------------------------------
 */

/* Marks one pin of the page (any number) as about to be released. Returns false if none is left to
 * mark. */
static inline bool pin_counts_begin_release(struct pin_counts *c, uint32_t page)
{
        if (pin_counts_get(c, page) == 0 || c->counts[page] >> 16 == pin_counts_get(c, page))
                return false;
        c->counts[page] += UINT32_C(1) << 16;
        return true;
}

/* Unmarks one pin; it stays. */
static inline void pin_counts_cancel_release(struct pin_counts *c, uint32_t page)
{
        assert(page < c->len && c->counts[page] >> 16 > 0);

        c->counts[page] -= UINT32_C(1) << 16;
}

/* Releases one marked pin. */
static inline void pin_counts_release(struct pin_counts *c, uint32_t page)
{
        pin_counts_cancel_release(c, page);
        pin_counts_drop(c, page, 1);
}

#endif
