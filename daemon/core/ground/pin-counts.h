/*
 * How often one client has pinned each page of a namespace over the socket: a counter for each
 * page, so that finding and releasing many costs no hash for each of them. A number beyond the
 * namespace has no pins. Loop thread only.
 */
#ifndef KVL_CORE_PIN_COUNTS_H
#define KVL_CORE_PIN_COUNTS_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

/* All zero: nothing is pinned, and there is no room. */
struct pin_counts {
        uint32_t *counts;  /* owned; by page; memory that is sparse where it is large */
        uint32_t len;      /* of these: 0, or the namespace's capacity */
        uint32_t n_pinned; /* pages whose counter isn't 0 */
};

/* Makes room, once. 0; -ENOMEM: nothing changed. */
int pin_counts_reserve(struct pin_counts *c, uint32_t capacity_pages);

void pin_counts_deinit(struct pin_counts *c);

/*
 * The first page from *iter on, 0 at first, that is pinned: looks at no more than `max` counters
 * (> 0), and *iter is what comes after them. PAGE_NONE: none of these; go on while *iter < len.
 */
uint32_t pin_counts_next(const struct pin_counts *c, uint32_t *iter, uint32_t max);

static inline uint32_t pin_counts_get(const struct pin_counts *c, uint32_t page)
{
        return page < c->len ? c->counts[page] : 0;
}

/* It is asked for, or changed, soon. Any number. */
static inline void pin_counts_prefetch(const struct pin_counts *c, uint32_t page)
{
        if (page < c->len)
                __builtin_prefetch(&c->counts[page], 1);
}

/* n (> 0) more, for which there is room. Returns how many it has then. */
static inline uint32_t pin_counts_add(struct pin_counts *c, uint32_t page, uint32_t n)
{
        assert(page < c->len && c->counts[page] <= UINT32_MAX - n);

        c->n_pinned += c->counts[page] == 0;
        return c->counts[page] += n;
}

/* n (> 0) less, of as many or more. Returns how many are left. */
static inline uint32_t pin_counts_drop(struct pin_counts *c, uint32_t page, uint32_t n)
{
        assert(page < c->len && c->counts[page] >= n);

        c->counts[page] -= n;
        c->n_pinned -= c->counts[page] == 0;
        return c->counts[page];
}

#endif
