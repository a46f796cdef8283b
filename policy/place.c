#include "policy/place.h"

#include <assert.h>

#include "base/macros.h"

static bool is_eligible(const struct place_device *d, enum place_policy policy, bool exclusive)
{
        return !d->is_broken && !d->is_exclusive && !(exclusive && d->n_others > 0) &&
               (policy != PLACE_DEVICE || d->is_named);
}

/* Rank of a device by its room: higher is better. */
static int room_rank(const struct place_device *d, uint64_t set_bytes)
{
        if (d->free_bytes >= set_bytes)
                return 2;
        return d->budget_bytes >= set_bytes;
}

/* < 0: the tenant has less on a than on b. */
static int compare_own(const struct place_device *a, const struct place_device *b)
{
        if (a->own_bytes != b->own_bytes)
                return a->own_bytes < b->own_bytes ? -1 : 1;
        return (a->n_own > b->n_own) - (a->n_own < b->n_own);
}

size_t place_choose(const struct place_device *devices, size_t n, enum place_policy policy,
        bool exclusive, uint64_t set_bytes)
{
        size_t found = SIZE_MAX;

        for (size_t i = 0; i < n; i++) {
                int better;

                if (!is_eligible(&devices[i], policy, exclusive))
                        continue;
                if (found == SIZE_MAX) {
                        found = i;
                        continue;
                }
                better = room_rank(&devices[i], set_bytes) - room_rank(&devices[found], set_bytes);
                if (better == 0 && policy == PLACE_SPREAD)
                        better = compare_own(&devices[found], &devices[i]);
                else if (better == 0)
                        better = compare_own(&devices[i], &devices[found]);
                if (better > 0)
                        found = i;
        }
        return found;
}

/* Bytes that could be reserved there, in whole steps. */
static uint64_t available(const struct place_request *s, size_t i)
{
        assert(s->step_bytes[i] > 0);
        if (!is_eligible(&s->devices[i], s->policy, s->exclusive))
                return 0;
        return s->devices[i].free_bytes - s->devices[i].free_bytes % s->step_bytes[i];
}

/* In whole steps, at most `most`, which is a multiple of the step. */
static uint64_t round_up(uint64_t bytes, uint64_t step, uint64_t most)
{
        if (bytes >= most)
                return most;
        return bytes + (step - bytes % step) % step;
}

static uint64_t add_saturated(uint64_t a, uint64_t b)
{
        return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/*
 * The next device in ascending order of reservable bytes, after device `after` (SIZE_MAX: the
 * first); among equals by index.
 */
static size_t next_larger(const struct place_request *s, size_t after)
{
        uint64_t low = after == SIZE_MAX ? 0 : available(s, after);
        size_t found = SIZE_MAX;

        for (size_t i = 0; i < s->n; i++) {
                uint64_t has = available(s, i);

                if (after != SIZE_MAX && (has < low || (has == low && i <= after)))
                        continue;
                if (found == SIZE_MAX || has < available(s, found))
                        found = i;
        }
        return found;
}

/* Splits evenly: a device that can't hold an even part leaves the rest of it to the others. */
static void split_spread(const struct place_request *s, uint64_t bytes, uint64_t *ret_bytes)
{
        size_t at = SIZE_MAX;

        for (size_t left = s->n; left > 0; left--) {
                uint64_t even = bytes / left;

                at = next_larger(s, at);
                ret_bytes[at] = round_up(even, s->step_bytes[at], available(s, at));
                bytes -= MIN(bytes, ret_bytes[at]);
        }
}

/* Most bytes that `m` more devices can hold, of those without a part yet. */
static uint64_t most_in(const struct place_request *s, const uint64_t *taken, size_t m)
{
        uint64_t sum = 0, last = UINT64_MAX;
        size_t last_i = 0;
        bool is_first = true;

        for (; m > 0; m--) {
                size_t found = SIZE_MAX;

                for (size_t i = 0; i < s->n; i++) {
                        uint64_t has = available(s, i);

                        if (taken[i] > 0 || has == 0)
                                continue;
                        if (!is_first && (has > last || (has == last && i <= last_i)))
                                continue;
                        if (found == SIZE_MAX || has > available(s, found))
                                found = i;
                }
                if (found == SIZE_MAX)
                        break;
                is_first = false;
                last = available(s, found);
                last_i = found;
                sum = add_saturated(sum, last);
        }
        return sum;
}

/* Reserves on devices with the tenant's namespaces, as far as there is room: elsewhere it is
 * useless to these. Returns the rest. */
static uint64_t split_to_own(const struct place_request *s, uint64_t bytes, uint64_t *ret_bytes)
{
        while (bytes > 0) {
                size_t found = SIZE_MAX;

                for (size_t i = 0; i < s->n; i++)
                        if (s->devices[i].n_own > 0 && ret_bytes[i] == 0 && available(s, i) > 0 &&
                                (found == SIZE_MAX ||
                                        compare_own(&s->devices[i], &s->devices[found]) > 0))
                                found = i;
                if (found == SIZE_MAX)
                        break;
                ret_bytes[found] = round_up(bytes, s->step_bytes[found], available(s, found));
                bytes -= MIN(bytes, ret_bytes[found]);
        }
        return bytes;
}

/* On as few devices as hold it; of equally few those where the tenant has most. */
static void split_pack(const struct place_request *s, uint64_t bytes, uint64_t *ret_bytes)
{
        size_t m = 1;

        bytes = split_to_own(s, bytes, ret_bytes);
        while (most_in(s, ret_bytes, m) < bytes)
                m++;
        for (; bytes > 0; m--) {
                size_t found = SIZE_MAX;

                for (size_t i = 0; i < s->n; i++) {
                        uint64_t has = available(s, i);

                        if (has == 0 || ret_bytes[i] > 0)
                                continue;
                        /* If it is among the m - 1 itself, m of them are enough anyway. */
                        if (add_saturated(has, most_in(s, ret_bytes, m - 1)) < bytes)
                                continue;
                        if (found == SIZE_MAX ||
                                compare_own(&s->devices[i], &s->devices[found]) > 0)
                                found = i;
                }
                assert(found != SIZE_MAX);
                ret_bytes[found] = round_up(bytes, s->step_bytes[found], available(s, found));
                bytes -= MIN(bytes, ret_bytes[found]);
        }
}

bool place_reserve(
        const struct place_request *rq, uint64_t bytes, uint64_t *ret_bytes, uint64_t *ret_missing)
{
        uint64_t sum = 0;

        for (size_t i = 0; i < rq->n; i++) {
                ret_bytes[i] = 0;
                sum = add_saturated(sum, available(rq, i));
        }
        *ret_missing = sum < bytes ? bytes - sum : 0;
        if (*ret_missing > 0)
                return false;
        if (rq->policy == PLACE_SPREAD)
                split_spread(rq, bytes, ret_bytes);
        else if (bytes > 0)
                split_pack(rq, bytes, ret_bytes);
        return true;
}
