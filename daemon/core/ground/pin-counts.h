/*
 * The pin segment that the daemon holds for one client in a namespace, and alone writes: how often
 * the client has pinned each page over the socket. A counter for each page, as in the segments of
 * clients that share memory (proto/shm.h), so that finding and releasing many costs no hash for
 * each of them. Its memory is the process' own, or a file's that the daemon after this one gets. A
 * number beyond the namespace has no pins. Loop thread only.
 *
 * The lower half of a counter says how many pins there are, the upper half how many of these are
 * about to be released: a daemon that is killed meanwhile leaves them as they were.
 */
#ifndef KVL_CORE_PIN_COUNTS_H
#define KVL_CORE_PIN_COUNTS_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Pins of one client on one page: what half a counter holds. A page's record has the sum over its
 * clients in 32 bits: as many as a tenant can have, those of an earlier daemon included, don't
 * reach the end of that, whatever max_pins is. No reader needs as many.
 */
#define PAGE_MAX_CLIENT_PINS 65535

/* All zero: nothing is pinned, and there is no room. */
struct pin_counts {
        uint32_t *counts;  /* owned; by page; memory that is sparse where it is large */
        uint32_t len;      /* of these: 0, or the namespace's capacity */
        uint32_t n_pinned; /* pages that have pins */
        bool is_kept;      /* the memory is a file's */
};

/* Makes room, once, in memory that ends with the process. 0; -ENOMEM: nothing changed. */
int pin_counts_reserve(struct pin_counts *c, uint32_t capacity_pages);

/* How large a file for so many pages is. */
uint64_t pin_counts_bytes(uint32_t capacity_pages);

/* Makes room in a memory file (borrowed) of the right size that is all zero. There was none. 0;
 * -ENOMEM: nothing changed. */
int pin_counts_map(struct pin_counts *c, int fd, uint32_t capacity_pages);

/*
 * Takes over the file (borrowed) of a daemon before this one, of the right size, whatever is in it.
 * There was no room. take() gets each page that has pins there, and how many (1 to
 * PAGE_MAX_CLIENT_PINS), and returns how many it has from now on (at most as many). 0; -ENOMEM:
 * nothing changed.
 */
int pin_counts_adopt(struct pin_counts *c, int fd, uint32_t capacity_pages,
        uint32_t (*take)(uint32_t page, uint32_t n, void *data), void *data);

void pin_counts_deinit(struct pin_counts *c);

/*
 * The first page from *iter on, 0 at first, that is pinned: looks at no more than `max` counters
 * (> 0), and *iter is what comes after them. PAGE_NONE: none of these; go on while *iter < len.
 */
uint32_t pin_counts_next(const struct pin_counts *c, uint32_t *iter, uint32_t max);

static inline uint32_t pin_counts_get(const struct pin_counts *c, uint32_t page)
{
        return page < c->len ? c->counts[page] & PAGE_MAX_CLIENT_PINS : 0;
}

/* It is asked for, or changed, soon. Any number. */
static inline void pin_counts_prefetch(const struct pin_counts *c, uint32_t page)
{
        if (page < c->len)
                __builtin_prefetch(&c->counts[page], 1);
}

/* n (> 0) more, for which there is room: it has no more than PAGE_MAX_CLIENT_PINS then. */
static inline void pin_counts_add(struct pin_counts *c, uint32_t page, uint32_t n)
{
        assert(page < c->len && c->counts[page] + n <= PAGE_MAX_CLIENT_PINS);

        c->n_pinned += c->counts[page] == 0;
        c->counts[page] += n;
}

/* n (> 0) less, of as many or more. */
static inline void pin_counts_drop(struct pin_counts *c, uint32_t page, uint32_t n)
{
        assert(page < c->len && c->counts[page] >= n);

        c->counts[page] -= n;
        c->n_pinned -= c->counts[page] == 0;
}

/* ---- many at once, all or none ----------------------------------------------------------------
 */

/* One pin of the page (any number) is about to be released. False: all that it has are. */
static inline bool pin_counts_begin_release(struct pin_counts *c, uint32_t page)
{
        if (pin_counts_get(c, page) == 0 || c->counts[page] >> 16 == pin_counts_get(c, page))
                return false;
        c->counts[page] += UINT32_C(1) << 16;
        return true;
}

/* One of these stays. */
static inline void pin_counts_cancel_release(struct pin_counts *c, uint32_t page)
{
        assert(page < c->len && c->counts[page] >> 16 > 0);

        c->counts[page] -= UINT32_C(1) << 16;
}

/* One of these goes. */
static inline void pin_counts_release(struct pin_counts *c, uint32_t page)
{
        pin_counts_cancel_release(c, page);
        pin_counts_drop(c, page, 1);
}

#endif
