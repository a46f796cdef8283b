/*
 * Applies the region sizer's decisions (policy/sizer.h, schedule.h) to pinned tenants: samples
 * their demand, and changes reservations. Loop thread only.
 *
 * The demand of a tenant is computed for each namespace: bytes of the extent sets that its granted
 * and pinned pages and the pages of its waiting leases would fill. It is at least a set more than
 * the reservation if a lease was refused in the last second. Cached pages and unclaimed pages in
 * magazines don't count.
 *
 * The sizer continues from the present reservation, even if it was changed otherwise; an
 * administrator's change begins a cool-down like one of its own. The configured reservation
 * (attrs.reserve_bytes) is the initial one. It is restored if both sizer and schedule are removed,
 * or if the sizer is switched to a dry run.
 */
#ifndef KVL_CORE_SIZING_H
#define KVL_CORE_SIZING_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/state/detail.h"
#include "daemon/core/state/tenant.h"
#include "policy/schedule.h"
#include "policy/sizer.h"

struct store;
struct tenant;

/* Sets sizer and schedule, for the next sizing_work(). If nothing changes the reservation any more,
 * the configured one is restored at once if it fits: check with tenant_reserve() before. Returns 0
 * or -ENOMEM (nothing changed). */
int sizing_set(struct tenant *t, const struct sizing_attrs *attrs);

void sizing_free(struct tenant *t);

/* Returns the exact demand. O(pages * clients) of namespaces whose clients pin in segments. */
uint64_t sizing_demand(const struct tenant *t);

/* Returns the sum over the tenant's shares. */
uint64_t sizing_reserved(const struct tenant *t);

/* Returns the reason of the last decision: a sentence without an end, borrowed. */
const char *sizing_why(const struct tenant *t);

struct sizing_params {
        uint64_t window_nsec, cooldown_nsec;
        uint32_t second_of_day; /* local time */
        /* A reservation was changed; may be NULL. */
        void (*on_moved)(const struct tenant *t, uint64_t before_bytes, void *data);
        void *data;
};

/* Samples all tenants and acts, except for dry runs. Call it every sizer_interval. O(namespaces +
 * clients), and looks at SIZING_LOOK_PINS pins in segments: if there are more, it looks at a part
 * of the sets, another each time, and extrapolates. */
#define SIZING_LOOK_PINS (1u << 18) /* pages times clients: 1 MiB of counters; not tuned */
void sizing_work(struct store *s, const struct sizing_params *p, uint64_t now_nsec);

/* Does any tenant have a sizer or a schedule? */
bool sizing_is_needed(const struct store *s);

#endif
