/*
 * Puts the region sizer's decisions (policy/sizer.h, schedule.h) in force: samples what tenants
 * need, and moves reservations. Of pinned tenants alone. Loop thread only.
 *
 * Demand of a tenant: bytes of extent sets that its granted and pinned pages would fill, of each
 * namespace, with those that its waiting leases want; and a set more than is reserved where a lease
 * was refused in the last second. Neither cached pages nor what lies unclaimed in magazines.
 *
 * What is reserved now is where the sizer goes on from, whoever reserved it; an administrator's
 * change begins a cool-down like one of its own. The reservation that is configured
 * (attrs.reserve_bytes) is what a tenant begins with, and goes back to when both sizer and schedule
 * are taken from it, or its sizer only says what it would do from now on.
 */
#ifndef KVL_CORE_SIZING_H
#define KVL_CORE_SIZING_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/ground/detail.h"
#include "daemon/core/objects/sizing.h"
#include "policy/schedule.h"
#include "policy/sizer.h"

struct store;
struct tenant;

/*
 * 0; -ENOMEM: unchanged. Takes effect with the next sizing_work(); where nothing moves the
 * reservation any more, what is configured is reserved again at once, or, where that doesn't fit,
 * nothing: to be asked for by tenant_reserve() before.
 */
int sizing_set(struct tenant *t, const struct sizing_attrs *attrs);

void sizing_free(struct tenant *t);

/* Exact. O(pages * clients) of namespaces whose clients pin in segments. */
uint64_t sizing_demand(const struct tenant *t);

/* Sum over its stakes. */
uint64_t sizing_reserved(const struct tenant *t);

/* Why the last decision was made; a sentence without an end. Borrowed. */
const char *sizing_why(const struct tenant *t);

struct sizing_params {
        uint64_t window_nsec, cooldown_nsec;
        uint32_t second_of_day; /* local time */
        /* A reservation was moved; may be NULL. */
        void (*on_moved)(const struct tenant *t, uint64_t before_bytes, void *data);
        void *data;
};

/*
 * Samples all tenants and acts; a dry run never does. To be called every sizer_interval.
 * O(namespaces + clients), and a look at SIZING_LOOK_PINS pins in segments: where there are more
 * sets than that, a part of them is looked at, another each time, and stands for all.
 */
#define SIZING_LOOK_PINS (1u << 18) /* pages times clients: 1 MiB of counters; not tuned */
void sizing_work(struct store *s, const struct sizing_params *p, uint64_t now_nsec);

/* Has any tenant a sizer or a schedule? */
bool sizing_is_needed(const struct store *s);

#endif
