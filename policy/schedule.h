/*
 * A schedule of reservations: time of day -> [min, max]. PURE.
 *
 *   "08:00-20:00 8GiB-16GiB, 20:00-22:30 4GiB-8GiB"
 *
 * Times are of the day, local time of the caller, "24:00" is its end; a span may go over midnight,
 * and from a time to the same one it is the whole day. One amount alone is min and max. The first
 * span that covers the time counts; where none does, the tenant's own min and max.
 */
#ifndef KVL_POLICY_SCHEDULE_H
#define KVL_POLICY_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCHEDULE_SPANS_MAX 8 /* not tuned */

struct schedule_span {
        uint32_t from_sec, to_sec; /* of the day, 0..86399, the end not included; from > to: over
                                      midnight; equal: always */
        uint64_t min_bytes, max_bytes;
};

struct schedule {
        uint32_t n;
        struct schedule_span spans[SCHEDULE_SPANS_MAX];
};

/* "" is an empty schedule. 0; -EINVAL with a sentence in err that names the span, *ret unchanged.
 */
int schedule_parse(const char *text, struct schedule *ret, char *err, size_t err_len);

/* The span that covers the second of the day, NULL where none does. Borrowed. */
const struct schedule_span *schedule_at(const struct schedule *s, uint32_t second_of_day);

#endif
