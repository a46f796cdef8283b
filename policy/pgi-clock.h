/*
 * PGI's clock for the ages of pages. It counts ticks of the wall clock, and also advances by uses
 * of pages. So pages have different ages even if a cache turns over within a second, or all events
 * have the same time. PURE. Not thread-safe.
 */
#ifndef KVL_POLICY_PGI_CLOCK_H
#define KVL_POLICY_PGI_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

/* All zero is the initial state. */
struct pgi_clock {
        uint64_t first;  /* tick of the wall's clock, of the first event */
        uint32_t wall;   /* ticks of the wall's clock since then */
        uint32_t now;    /* ticks, never less than `wall` */
        uint64_t n_used; /* pages since the last tick */
        uint32_t ahead;  /* ticks by use since the wall's clock moved: it makes up for them first */
        bool has_begun;
};

/* A page was used. */
static inline void pgi_clock_used(struct pgi_clock *c)
{
        c->n_used++;
}

/*
 * Advances to an event at this time, in a cache of so many pages. Returns the time in ticks: 0 at
 * the first event, never less than at the last one. A wall clock that goes back counts as standing
 * still. Ticks end at UINT32_MAX, after two years or more: then no page gets older.
 */
uint32_t pgi_clock_advance(struct pgi_clock *c, uint64_t now_nsec, uint32_t n_cached);

#endif
