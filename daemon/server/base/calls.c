#include "daemon/server/base/calls.h"

#include <assert.h>
#include <string.h>

const uint64_t calls_bounds_nsec[CALLS_BUCKETS - 1] = CALLS_BOUNDS;

const char *const calls_rules[CALLS_RULES] = {
#define X(rule) rule,
        CALLS_RULE_TABLE(X)
#undef X
};

void call_times_note(struct call_times *t, uint64_t nsec)
{
        size_t bucket = 0;

        while (bucket + 1 < CALLS_BUCKETS && nsec > calls_bounds_nsec[bucket])
                bucket++;
        t->counts[bucket]++;
        t->sum_nsec += nsec;
}

void calls_note(struct calls *c, const struct msg_info *info, uint64_t nsec)
{
        size_t row = (size_t)(info - msg_at(0));

        assert(row < CALLS_KINDS);
        call_times_note(&c->times[row], nsec);
}

void calls_note_violation(struct calls *c, const char *rule)
{
        size_t i = 0;

        while (i + 1 < CALLS_RULES && strcmp(calls_rules[i], rule) != 0)
                i++;
        c->broken[i]++;
}
