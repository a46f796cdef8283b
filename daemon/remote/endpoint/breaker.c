#include "daemon/remote/endpoint/breaker.h"

#include "base/macros.h"

const char *breaker_state_name(enum breaker_state state)
{
        static const char *const names[] = {
                [BREAKER_CLOSED] = "closed",
                [BREAKER_OPEN] = "open",
                [BREAKER_HALF_OPEN] = "half-open",
        };

        return names[state];
}

bool breaker_admits(struct breaker *b, uint64_t now_nsec, bool *ret_is_trial)
{
        *ret_is_trial = false;
        if (b->state == BREAKER_CLOSED)
                return true;
        if (b->state == BREAKER_OPEN) {
                if (now_nsec < b->until_nsec)
                        return false;
                b->state = BREAKER_HALF_OPEN;
                b->is_trying = false;
        }
        if (b->is_trying)
                return false;
        *ret_is_trial = b->is_trying = true;
        return true;
}

void breaker_success(struct breaker *b)
{
        *b = (struct breaker){0};
}

void breaker_trip(struct breaker *b, uint64_t now_nsec)
{
        /* A late failure doesn't extend an open breaker. */
        if (b->state == BREAKER_OPEN)
                return;
        b->open_nsec = b->open_nsec == 0 ? BREAKER_OPEN_NSEC
                                         : MIN(2 * b->open_nsec, BREAKER_OPEN_MAX_NSEC);
        b->until_nsec = now_nsec + b->open_nsec;
        b->state = BREAKER_OPEN;
        b->is_trying = false;
}

void breaker_failure(struct breaker *b, uint64_t now_nsec)
{
        if (b->n_failures < UINT32_MAX)
                b->n_failures++;
        if (b->state == BREAKER_HALF_OPEN || b->n_failures >= BREAKER_FAILURES)
                breaker_trip(b, now_nsec);
}

void breaker_give_back(struct breaker *b)
{
        if (b->state == BREAKER_HALF_OPEN)
                b->is_trying = false;
}
