#include "policy/admission.h"

#include <assert.h>

#include "base/macros.h"

typedef unsigned __int128 u128;

static uint64_t aged_priority(const struct admission_request *r, uint64_t now_nsec)
{
        uint64_t waited_nsec = minus_u64(now_nsec, r->arrived_nsec);

        return r->priority + waited_nsec / ADMISSION_AGE_NSEC;
}

int admission_compare(
        const struct admission_request *a, const struct admission_request *b, uint64_t now_nsec)
{
        uint64_t a_aged = aged_priority(a, now_nsec), b_aged = aged_priority(b, now_nsec);
        u128 a_share = (u128)a->served_bytes * b->weight;
        u128 b_share = (u128)b->served_bytes * a->weight;

        assert(a->weight > 0 && b->weight > 0);
        if (a_aged != b_aged)
                return a_aged > b_aged ? -1 : 1;
        if (a->deadline_nsec != b->deadline_nsec)
                return a->deadline_nsec < b->deadline_nsec ? -1 : 1;
        if (a_share != b_share)
                return a_share < b_share ? -1 : 1;
        return (a->number > b->number) - (a->number < b->number);
}
