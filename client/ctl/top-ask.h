/* One look of kvleasectl top at the daemon: what it is asked for, and what of that is kept. */
#ifndef KVL_CTL_TOP_ASK_H
#define KVL_CTL_TOP_ASK_H

#include "client/ctl/admin.h"
#include "client/ctl/top-view.h"

#define TOP_NAME_MAX 64

/* Of all devices, or of what lies below them. */
struct top_tier {
        unsigned n, n_bad;
        char name[TOP_NAME_MAX]; /* of the first one; cut */
        uint64_t budget_bytes, used_bytes;
};

/* What the lines above the view say, besides rates. */
struct top_daemon {
        char version[TOP_NAME_MAX];
        uint64_t uptime_sec, lookup_keys, lookup_hits;
        unsigned n_tenants, n_namespaces, n_clients, n_waiting, fragmentation_permille;
        bool is_draining;
        struct top_tier device, host, disk;
        /* Of all devices: what is reserved, and used of that; what is not, likewise. */
        uint64_t pinned_bytes, pinned_used_bytes, pool_bytes, pool_used_bytes;
};

struct top_look {
        struct top_daemon daemon;
        struct top_sample totals;
        struct top_sample views[TOP_N_VIEWS]; /* namespaces and regions, and the one asked for */
        bool has[TOP_N_VIEWS];
};

/*
 * Asks for all that a view needs. CTL_OK: *ret_look is owned by the caller, its counters aren't
 * rated yet. Else it is untouched, and a sentence has been printed.
 */
int top_ask(struct admin *admin, enum top_view_id view, struct top_look *ret_look);
void top_look_deinit(struct top_look *look);

/* Rates all that is in `now`, against the last look that had it, which takes its place: `last` is
 * what is shown from then on, and `now` is empty. `last` may be zeroed, before the first one. */
void top_look_advance(struct top_look *last, struct top_look *now);

#endif
