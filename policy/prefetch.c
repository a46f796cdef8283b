#include "policy/prefetch.h"

#include <assert.h>

#include "base/macros.h"

void prefetch_init(struct prefetch *p, enum prefetch_kind kind)
{
        *p = (struct prefetch){.is_guess = kind != PREFETCH_WARM};
        if (p->is_guess) {
                p->window = PREFETCH_START;
                p->pause_nsec = PREFETCH_PAUSE_NSEC;
        }
}

uint32_t prefetch_may(struct prefetch *p, uint32_t n, uint64_t now_nsec)
{
        struct bucket_limit limit;

        if (!p->is_guess)
                return n;
        if (p->window == 0 && now_nsec >= p->on_again_nsec)
                p->window = PREFETCH_PROBE;
        if (p->n_stake >= p->window)
                return 0;
        limit = (struct bucket_limit){.rate = p->window * PREFETCH_RATE, .burst = p->window};
        if (bucket_wait_nsec(&p->rate, limit, now_nsec) > 0)
                return 0;
        return MIN(n, p->window - p->n_stake);
}

void prefetch_begin(struct prefetch *p, uint32_t n, uint64_t now_nsec)
{
        struct bucket_limit limit = {.rate = p->window * PREFETCH_RATE, .burst = p->window};

        assert(!p->is_guess || p->n_stake + n <= p->window);

        if (p->is_guess)
                bucket_take(&p->rate, limit, n, now_nsec);
        p->n_stake += n;
        p->n_begun += n;
}

/* Pages begun before it was switched off don't open the window; a probe does. */
void prefetch_useful(struct prefetch *p)
{
        assert(p->n_stake > 0);

        p->n_stake--;
        p->n_useful++;
        if (!p->is_guess)
                return;
        if (p->window > 0 && p->window < PREFETCH_MOST)
                p->window++;
        if (p->window >= PREFETCH_START)
                p->pause_nsec = PREFETCH_PAUSE_NSEC;
}

void prefetch_wasted(struct prefetch *p, uint64_t now_nsec)
{
        assert(p->n_stake > 0);

        p->n_stake--;
        p->n_wasted++;
        if (p->window == 0 || --p->window > 0)
                return;
        p->on_again_nsec = now_nsec + p->pause_nsec;
        p->pause_nsec = MIN(p->pause_nsec * 2, PREFETCH_PAUSE_MOST_NSEC);
}

void prefetch_give_up(struct prefetch *p)
{
        assert(p->n_stake > 0);

        p->n_stake--;
        p->n_given_up++;
}

uint32_t prefetch_steps(uint32_t at, uint32_t n_asked, uint32_t n_pages, uint32_t steps)
{
        uint64_t end = MIN((uint64_t)at + 1 + steps, (uint64_t)n_pages);
        uint64_t from = MAX((uint64_t)at + 1, (uint64_t)n_asked);

        return from < end ? (uint32_t)(end - from) : 0;
}

bool prefetch_expects(double chance)
{
        return chance >= 0.5;
}
